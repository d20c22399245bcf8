// File descriptors that one process or thread serves to others.
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "bootstrap/endpoint.hpp"
#include "bootstrap/endpoint_wire.hpp"
#include "bootstrap/unix_socket.hpp"
#include "bootstrap_support.hpp"
#include "repetitions.h"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace dsc;
using namespace dsc::test;

// Serves an endpoint as a monitor thread does.
class Server {
 public:
  Server() : thread_([this] { run(); }) {}
  ~Server() {
    stop_.store(true);
    thread_.join();
  }
  Endpoint& endpoint() { return endpoint_; }

 private:
  void run() {
    while (!stop_.load())
      if (wait_ready(endpoint_.poll_fd(), POLLIN, Deadline::after_ms(5))) endpoint_.serve();
  }
  Endpoint endpoint_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

ItemKey key_of(const Nonce& nonce, uint64_t id) {
  ItemKey key;
  key.nonce = nonce;
  key.rank = 1;
  key.kind = 2;
  key.id = id;
  return key;
}

// Returns an unnamed file that contains `text`.
UniqueFd make_item(const char* text) {
  UniqueFd fd(::memfd_create("item", MFD_CLOEXEC));
  if (::write(fd.get(), text, std::strlen(text)) < 0) fd.reset();
  return fd;
}

std::string text_of(const UniqueFd& fd) {
  char text[64] = {};
  const ssize_t got = ::pread(fd.get(), text, sizeof text - 1, 0);
  return got < 0 ? "unreadable" : text;
}

struct Outcome {
  dsc_result_t code = DSC_OK;
  std::string text;
};

Outcome fetched(const std::string& endpoint, const ItemKey& key, int64_t timeout_ms,
                const std::function<void()>& check = nullptr) {
  try {
    return {DSC_OK, text_of(fetch(endpoint, "rank " + std::to_string(key.rank), key,
                                  Deadline::after_ms(timeout_ms), check))};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

void test_published_item_is_fetched(void**) {
  Server server;
  const ItemKey key = key_of(random_nonce(), 7);
  server.endpoint().publish(key, make_item("hello").get());
  const UniqueFd item = fetch(server.endpoint().name(), "rank 0", key, Deadline::after_ms(20'000), nullptr);
  assert_string_equal(text_of(item).c_str(), "hello");
  assert_int_not_equal(::fcntl(item.get(), F_GETFD) & FD_CLOEXEC, 0);
}

void test_fetch_waits_for_publish(void**) {
  Server server;
  const ItemKey key = key_of(random_nonce(), 7);
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&] { text = fetched(server.endpoint().name(), key, 20'000).text; });
  ::usleep(100'000);
  const int64_t start_ns = now_ns();
  server.endpoint().publish(key, make_item("later").get());
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) assert_string_equal(text.c_str(), "later");
  assert_true(now_ns() - start_ns < kAtOnceMs * kNsPerMs);
}

void test_processes_fetch_from_each_other(void**) {
  constexpr int kProcesses = 4;
  Reports names;
  const Nonce nonce = random_nonce();
  Children children;
  for (size_t me = 0; me < kProcesses; ++me)
    children.start([&, me] {
      Server server;
      std::snprintf(names[me].text, sizeof names[me].text, "%s", server.endpoint().name().c_str());
      names[me].came.store(1);
      for (size_t i = 0; i < kProcesses; ++i)
        if (!eventually([&] { return names[i].came.load() >= 1; })) return 1;
      server.endpoint().publish(key_of(nonce, me), make_item(std::to_string(me).c_str()).get());
      int bad = 0;
      for (size_t i = 0; i < kProcesses; ++i)
        bad += fetched(names[i].text, key_of(nonce, i), 20'000).text != std::to_string(i);
      names[me].came.store(2);
      for (size_t i = 0; i < kProcesses; ++i)
        if (!eventually([&] { return names[i].came.load() == 2; })) return 1;
      return bad;
    });
  assert_int_equal(children.wait_all(30'000), 0);
}

void test_wrong_nonce_gets_nothing(void**) {
  Server server;
  ItemKey key = key_of(random_nonce(), 7);
  server.endpoint().publish(key, make_item("secret").get());
  key.nonce[15] ^= 1;
  const Outcome outcome = fetched(server.endpoint().name(), key, 200);
  assert_int_equal(outcome.code, DSC_ERR_TIMEOUT);
  assert_true(outcome.text.find("rank 1 did not send the file descriptor") != std::string::npos);
}

void test_withdrawn_item_is_gone(void**) {
  Server server;
  const ItemKey key = key_of(random_nonce(), 7);
  server.endpoint().publish(key, make_item("gone").get());
  server.endpoint().withdraw(key);
  assert_int_equal(fetched(server.endpoint().name(), key, 150).code, DSC_ERR_TIMEOUT);
  server.endpoint().publish(key, make_item("first").get());
  server.endpoint().publish(key, make_item("second").get());
  assert_string_equal(fetched(server.endpoint().name(), key, 20'000).text.c_str(), "second");
}

void test_leaving_a_world_tells_who_waits(void**) {
  Server server;
  const Nonce nonce = random_nonce();
  Outcome outcome;
  std::thread waiting([&] { outcome = fetched(server.endpoint().name(), key_of(nonce, 7), 20'000); });
  ::usleep(100'000);
  ItemKey of_rank_2 = key_of(nonce, 7);
  of_rank_2.rank = 2;
  server.endpoint().publish(of_rank_2, make_item("stays").get());
  server.endpoint().leave_world(nonce, 1);
  waiting.join();
  assert_int_equal(outcome.code, DSC_ERR_PEER_LEFT);
  assert_non_null(std::strstr(outcome.text.c_str(), "rank 1 has left"));
  const Outcome later = fetched(server.endpoint().name(), key_of(nonce, 8), 20'000);
  assert_int_equal(later.code, DSC_ERR_PEER_LEFT);
  assert_string_equal(fetched(server.endpoint().name(), of_rank_2, 20'000).text.c_str(), "stays");
}

void test_dead_owner(void**) {
  Reports names;
  Children children;
  const pid_t owner = children.start([&] {
    Server server;
    std::snprintf(names[0].text, sizeof names[0].text, "%s", server.endpoint().name().c_str());
    names[0].came.store(1);
    ::pause();
    return 0;
  });
  assert_true(eventually([&] { return names[0].came.load() == 1; }));
  Outcome outcome;
  std::atomic<int64_t> end_ns{0};
  std::thread waiting([&] {
    outcome = fetched(names[0].text, key_of(Nonce{}, 7), 30'000);
    end_ns.store(now_ns());
  });
  ::usleep(100'000);
  const int64_t start_ns = now_ns();
  children.kill_now(owner);
  waiting.join();
  assert_int_equal(outcome.code, DSC_ERR_PEER_DEAD);
  assert_non_null(std::strstr(outcome.text.c_str(), "rank 1"));
  assert_true(end_ns.load() - start_ns < kAtOnceMs * kNsPerMs);
  assert_int_equal(fetched(names[0].text, key_of(Nonce{}, 7), 30'000).code, DSC_ERR_PEER_DEAD);
}

void test_stopped_owner_is_left_at_the_deadline_or_by_check(void**) {
  Endpoint nobody_serves;
  assert_int_equal(fetched(nobody_serves.name(), key_of(Nonce{}, 7), 200).code, DSC_ERR_TIMEOUT);
  int calls = 0;
  const int64_t start_ns = now_ns();
  const auto check = [&] {
    if (++calls == 3) throw Error(DSC_ERR_REVOKED, "the world was aborted");
  };
  assert_int_equal(fetched(nobody_serves.name(), key_of(Nonce{}, 7), 60'000, check).code, DSC_ERR_REVOKED);
  assert_true(now_ns() - start_ns < kAtOnceMs * kNsPerMs);
}

void test_strangers_and_crowds_do_no_harm(void**) {
  Server server;
  const ItemKey key = key_of(random_nonce(), 7);
  server.endpoint().publish(key, make_item("still here").get());
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 700; ++i) {  // more connections than the endpoint keeps
    int error = 0;
    UniqueFd fd = connect_abstract(server.endpoint().name(), error);
    if (i % 3 == 0 && fd) send_message(fd.get(), "GET /", 5);
    crowd.push_back(std::move(fd));
  }
  assert_string_equal(fetched(server.endpoint().name(), key, 20'000).text.c_str(), "still here");
}

void test_endpoint_without_descriptors_recovers(void**) {
  Server server;
  const ItemKey key = key_of(random_nonce(), 7);
  server.endpoint().publish(key, make_item("rare").get());
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  const rlimit low{static_cast<rlim_t>(open_descriptors() + 8), old.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  std::vector<UniqueFd> fill;
  for (int fd; (fd = ::dup(0)) >= 0;) fill.emplace_back(fd);
  fill.pop_back();  // leaves one descriptor for the client and none for the server
  int error = 0;
  const UniqueFd client = connect_abstract(server.endpoint().name(), error);
  const bool told = wait_ready(client.get(), POLLIN, Deadline::after_ms(20'000));
  ReplyWire reply{};
  const ssize_t got = receive_message(client.get(), &reply, sizeof reply);
  fill.clear();
  ::setrlimit(RLIMIT_NOFILE, &old);
  assert_true(told);
  // the server refuses the connection, so that it does not wake up for it again and again
  assert_int_equal(got, sizeof reply);
  assert_int_equal(reply.code, DSC_ERR_SYSTEM);
  assert_string_equal(fetched(server.endpoint().name(), key, 20'000).text.c_str(), "rare");
}

void test_foreign_endpoint(void**) {
  const std::string name = "dsc-test-foreign-" + std::to_string(::getpid());
  const UniqueFd listener = listen_abstract(name, 4);
  Outcome outcome;
  std::thread client([&] { outcome = fetched(name, key_of(Nonce{}, 7), 20'000); });
  int error = 0;
  UniqueFd connection;
  eventually([&] { return static_cast<bool>(connection = accept_connection(listener.get(), error)); });
  const ReplyWire lie{kEndpointMagic, kEndpointVersion, DSC_OK};  // claims success but sends no descriptor
  send_message(connection.get(), &lie, sizeof lie);
  client.join();
  assert_int_equal(outcome.code, DSC_ERR_PROTOCOL);
}

void test_nothing_is_left(void**) {
  int before = 0;
  const int rounds = test_repetitions(50, 5);
  for (int round = 0; round < rounds; ++round) {
    {
      Server server;
      const Nonce nonce = random_nonce();
      for (uint64_t id = 0; id < 4; ++id) {
        server.endpoint().publish(key_of(nonce, id), make_item("x").get());
        fetched(server.endpoint().name(), key_of(nonce, id), 20'000);
      }
      server.endpoint().leave_world(nonce, 1);
    }
    if (round == 0) before = open_descriptors();
  }
  assert_int_equal(open_descriptors(), before);
}

}  // namespace

int main() {
  rlimit limit{};  // the test needs both ends of 700 connections
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_published_item_is_fetched),
      cmocka_unit_test(test_fetch_waits_for_publish),
      cmocka_unit_test(test_processes_fetch_from_each_other),
      cmocka_unit_test(test_wrong_nonce_gets_nothing),
      cmocka_unit_test(test_withdrawn_item_is_gone),
      cmocka_unit_test(test_leaving_a_world_tells_who_waits),
      cmocka_unit_test(test_dead_owner),
      cmocka_unit_test(test_stopped_owner_is_left_at_the_deadline_or_by_check),
      cmocka_unit_test(test_strangers_and_crowds_do_no_harm),
      cmocka_unit_test(test_endpoint_without_descriptors_recovers),
      cmocka_unit_test(test_foreign_endpoint),
      cmocka_unit_test(test_nothing_is_left),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
