// How much memory the members of a store can make its server use: large requests that stop in the middle, and
// waits for many keys.
#include <atomic>
#include <cstdio>
#include <span>

#include "store/bytes.hpp"
#include "store_raw.hpp"

namespace {

using namespace dsc;
using namespace dsc::test;

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint64_t kMostRoom = 16 * kMiB;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasuresMemory = false;  // it would measure the memory of the sanitizer
#else
constexpr bool kMeasuresMemory = true;
#endif

size_t resident_bytes() {
  size_t all = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  assert_int_equal(std::fscanf(file, "%zu %zu", &all, &resident), 2);
  std::fclose(file);
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Sends until the socket takes no more, because the other end does not read.
size_t push(int fd, std::string_view bytes) {
  size_t pushed = 0;
  while (pushed < bytes.size()) {
    const ssize_t sent =
        ::send(fd, bytes.data() + pushed, bytes.size() - pushed, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) break;
    pushed += static_cast<size_t>(sent);
  }
  return pushed;
}

const std::string& large_set() {
  static const std::string request =
      encode(StoreRequest{StoreOp::kSet, {"large"}, std::string(kMiB, 'x'), "", 0});
  return request;
}

void ask_for_room(Raw& member, size_t bytes) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(bytes));
  say(member.fd.get(), member.outgoing->seal(FrameType::kRoom, writer.take()));
}

bool ended_already(int fd) {
  char byte;
  return ::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

// Returns whether the store's answer that grants room has arrived.
bool has_room(int fd) {
  char reply[kFrameHeadBytes + 12 + kFrameCodeBytes];
  return ::recv(fd, reply, sizeof reply, MSG_DONTWAIT) == sizeof reply;
}

// Many members begin a large request and stop before its last byte. Together they use no more than the limit
// of memory. Small requests are still served, and other large requests are accepted when the unfinished ones
// are given up.
void unfinished_requests_are_bounded(void**) {
  constexpr size_t kMembers = 60;
  StoreServer::Options options = server_options();
  options.frame_ms = 4000;
  const StoreServer server(options);
  TcpStore store(target_of(server), soon());
  store.set("small", "before", soon());
  std::vector<Raw> members;
  for (size_t i = 0; i < kMembers; ++i) members.push_back(introduce(server, {}));
  for (Raw& member : members) ask_for_room(member, large_set().size());
  // The frames of the members differ only in their last 16 bytes, the authentication code (HMAC). So one
  // unfinished frame serves all members.
  FrameCounter counter(*token_of('1'));
  counter.seal(FrameType::kRoom, "");
  const std::string frame = counter.seal(FrameType::kRequest, large_set());
  const std::string_view unfinished = std::string_view(frame).substr(0, frame.size() - kFrameCodeBytes);
  std::vector<size_t> pushed(kMembers);
  std::vector<bool> welcome(kMembers);
  const size_t before = resident_bytes();
  uint64_t most = 0;
  size_t grown = 0;
  const Deadline end = Deadline::after_ms(300), latest = Deadline::after_ms(3500);
  while (!end.passed() || (most <= kMostRoom / 2 && !latest.passed())) {
    for (size_t i = 0; i < kMembers; ++i) {
      welcome[i] = welcome[i] || has_room(members[i].fd.get());
      if (welcome[i]) pushed[i] += push(members[i].fd.get(), unfinished.substr(pushed[i]));
    }
    most = std::max(most, server.counts().incoming);
    grown = std::max(grown, resident_bytes() - std::min(before, resident_bytes()));
    assert_int_equal(store.add("n", 0, soon()), 0);
  }
  std::printf("%zu members of one MiB: %llu bytes let in, %zu bytes of memory more\n", kMembers,
              static_cast<unsigned long long>(most), grown);
  assert_true(most > kMostRoom / 2 && most <= kMostRoom);
  if (kMeasuresMemory) assert_true(grown <= 3 * kMostRoom);
  store.set("other", std::string(kMiB, 'y'), Deadline::after_ms(30000));
  assert_int_equal(store.get("other", soon()).size(), kMiB);
  members.clear();
  const Deadline patience = soon();
  while (server.counts().incoming > 0 && !patience.passed()) ::usleep(1000);
  assert_int_equal(server.counts().incoming, 0);
}

// A client is disconnected if it does not ask for room, sends more than it asked for, or asks for an amount
// that no request needs.
void room_is_asked_for(void**) {
  const StoreServer server(server_options());
  const auto ends = [&](size_t asked, size_t value_bytes) {
    Raw member = introduce(server, {});
    if (asked > 0) ask_for_room(member, asked);
    const StoreRequest request{StoreOp::kSet, {"k"}, std::string(value_bytes, 'x'), "", 0};
    const Deadline patience = soon();
    while (asked > 0 && !has_room(member.fd.get()))
      if (patience.passed() || ended_already(member.fd.get())) return true;
    say(member.fd.get(), member.outgoing->seal(FrameType::kRequest, encode(request)));
    char byte;
    return ::recv(member.fd.get(), &byte, 1, 0) <= 0;
  };
  assert_true(ends(0, 5000));
  assert_true(ends(5000, 6000));
  assert_true(ends(100, 0));
  assert_true(ends(size_t{3} << 20, 0));
  assert_false(ends(5000, 4900));
  assert_false(ends(5000, 10));
  assert_false(ends(0, 1000));
  const Deadline patience = soon();
  while (server.counts().incoming > 0 && !patience.passed()) ::usleep(1000);
  assert_int_equal(server.counts().incoming, 0);
}

// A deadline that passes while a client waits for room gives a time-out. The connection can still be used.
void who_waits_for_room_keeps_his_deadline(void**) {
  const StoreServer server(server_options());
  std::vector<Raw> members;
  for (int i = 0; i < 16; ++i) members.push_back(introduce(server, {}));
  for (Raw& member : members) ask_for_room(member, kMiB);
  const Deadline patience = soon();
  while (server.counts().incoming < kMostRoom && !patience.passed()) ::usleep(1000);
  TcpStore store(target_of(server), soon());
  const std::string value(kMiB, 'y');
  CHECK_FAILS(store.set("k", value, Deadline::after_ms(100)), DSC_ERR_TIMEOUT,
              "not have enough free memory for this request");
  assert_false(store.check(std::vector<std::string>{"k"}, soon()));
  assert_int_equal(server.counts().members, 17);
  members.pop_back();
  members.pop_back();
  store.set("k", value, Deadline::after_ms(30000));
}

// When more clients send than there is room for, they take turns.
void large_requests_take_turns(void**) {
  const StoreServer server(server_options());
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 24; ++i)
    clients.emplace_back([&, i] {
      TcpStore store(target_of(server), Deadline::after_ms(30000));
      const std::string value(kMiB - static_cast<size_t>(i), static_cast<char>('0' + i));
      const std::string key = "k" + std::to_string(i % 4);
      for (int round = 0; round < 2; ++round) store.set(key, value, Deadline::after_ms(30000));
      right += store.get(key, Deadline::after_ms(30000)).size() > kMiB - 40;
    });
  for (std::thread& client : clients) client.join();
  assert_int_equal(right, 24);
  assert_int_equal(server.counts().incoming, 0);
}

// Waits do not block other clients, in particular not those that set the awaited keys. The waits have their
// own limit.
void waits_for_many_keys_are_bounded(void**) {
  constexpr size_t kKeys = 2000;  // in total these keys have 2 MiB
  constexpr int kWaiters = 40;
  const StoreServer server(server_options());
  std::vector<std::string> keys(kKeys);
  for (size_t i = 0; i < kKeys; ++i) keys[i] = std::string(1000, static_cast<char>('a' + i % 10));
  std::atomic<int> came{0}, refused{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < kWaiters; ++i)
    waiters.emplace_back([&] {
      TcpStore store(target_of(server), Deadline::after_ms(60000));
      const Outcome outcome = outcome_of([&] { store.wait(keys, Deadline::after_ms(60000)); });
      const bool full =
          outcome.code == DSC_ERR_NOSPACE && outcome.text.find("fewer keys") != std::string::npos;
      if (outcome.code != DSC_OK && !full) print_error("%s\n", outcome.text.c_str());
      came += outcome.code == DSC_OK;
      refused += full;
    });
  const Deadline patience = Deadline::after_ms(30000);
  while (server.counts().waiting + static_cast<uint64_t>(refused) < kWaiters && !patience.passed())
    ::usleep(1000);
  assert_int_equal(server.counts().incoming, 0);
  TcpStore store(target_of(server), Deadline::after_ms(60000));
  store.set("large", std::string(kMiB, 'x'), Deadline::after_ms(60000));
  assert_int_equal(store.get("large", Deadline::after_ms(60000)).size(), kMiB);
  for (size_t i = 0; i < 10; ++i) store.set(keys[i], "", Deadline::after_ms(60000));
  for (std::thread& waiter : waiters) waiter.join();
  std::printf("of %d waits for %zu keys %d were let in\n", kWaiters, kKeys, came.load());
  assert_int_equal(came + refused, kWaiters);
  assert_true(came >= 16 && refused >= 1);
  assert_int_equal(server.counts().waiting, 0);
}

// An empty key costs its sender four bytes, but the server a whole string.
void keys_of_one_request_are_bounded(void**) {
  const StoreServer server(server_options());
  TcpStore store(target_of(server), soon());
  const std::vector<std::string> keys(kMostRequestKeys + 1, "k");
  CHECK_FAILS(store.check(keys, soon()), DSC_ERR_INVALID_ARG, "has 131073 keys, expected at most 131072");
  const StoreRequest request{StoreOp::kCheck, std::vector<std::string>(kMostRequestKeys + 1), "", "", 0};
  Raw member = introduce(server, {});
  say(member.fd.get(), member.outgoing->seal(FrameType::kRequest, encode(request)));
  assert_true(ended(member.fd.get()));
  assert_false(store.check(std::span(keys).first(kMostRequestKeys), soon()));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(unfinished_requests_are_bounded),
      cmocka_unit_test(room_is_asked_for),
      cmocka_unit_test(who_waits_for_room_keeps_his_deadline),
      cmocka_unit_test(large_requests_take_turns),
      cmocka_unit_test(waits_for_many_keys_are_bounded),
      cmocka_unit_test(keys_of_one_request_are_bounded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
