// Failures between hosts: each gives its error, immediately or at the deadline, and leaves nothing behind.
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <latch>

#include "dtype/dtype.hpp"
#include "repetitions.h"
#include "store/file_store.hpp"
#include "transport/hello.hpp"
#include "transport_support.hpp"

using namespace dsc;
using namespace dsc::test;

namespace {

constexpr ReduceSpec kSum{.dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM};
constexpr size_t kManyFloats = 3 << 20;

Environment environment_of(const char* path) {
  return [path](const char* name) -> std::optional<std::string> {
    if (std::string(name) == "DSC_GLOO_LIBRARY" && path) return path;
    return std::nullopt;
  };
}

size_t entries_of(const char* folder) {
  size_t count = 0;
  DIR* const open = ::opendir(folder);
  while (::readdir(open)) ++count;
  ::closedir(open);
  return count;
}

struct Operation {
  const char* name;
  std::function<void(TransportGroup&, std::vector<float>&, Deadline)> run;
};

std::vector<TransportBlock> same_blocks(TransportGroup& wire, std::vector<float>& data) {
  const size_t each = data.size() / static_cast<size_t>(wire.size());
  std::vector<TransportBlock> blocks;
  for (size_t host = 0; host < static_cast<size_t>(wire.size()); ++host)
    blocks.push_back({data.data() + host * each, each * sizeof(float)});
  return blocks;
}

// In operations that have a root, host 2 is the root, and all other hosts wait for it.
const Operation kOperations[] = {
    {"header exchange",
     [](TransportGroup& wire, std::vector<float>&, Deadline deadline) {
       std::vector<std::string> all;
       wire.exchange_headers("here", all, deadline);
     }},
    {"all_reduce",
     [](TransportGroup& wire, std::vector<float>& data, Deadline deadline) {
       wire.all_reduce(data.data(), data.data(), data.size(), kSum, deadline);
     }},
    {"all_reduce", [](TransportGroup& wire, std::vector<float>& data,
                      Deadline deadline) { wire.all_reduce(data.data(), data.data(), 10, kSum, deadline); }},
    {"reduce",
     [](TransportGroup& wire, std::vector<float>& data, Deadline deadline) {
       wire.reduce(data.data(), data.data(), data.size(), kSum, 2, deadline);
     }},
    {"reduce_scatter",
     [](TransportGroup& wire, std::vector<float>& data, Deadline deadline) {
       const std::vector<size_t> counts(3, data.size() / 3);
       wire.reduce_scatter(data.data(), data.data(), counts, kSum, deadline);
     }},
    {"broadcast", [](TransportGroup& wire, std::vector<float>& data,
                     Deadline deadline) { wire.broadcast(data.data(), data.size() * 4, 2, deadline); }},
    {"all_gather", [](TransportGroup& wire, std::vector<float>& data,
                      Deadline deadline) { wire.all_gather(same_blocks(wire, data), deadline); }},
    {"exchange",
     [](TransportGroup& wire, std::vector<float>& data, Deadline deadline) {
       std::vector<float> in(data.size());
       wire.exchange(same_blocks(wire, data), same_blocks(wire, in), deadline);
     }},
};

// Hosts 0 and 1 are inside the operation, host 2 is not. Then `overlap` runs. Host 2 leaves only after both
// have failed.
void both_fail(const Operation& operation, dsc_result_t code, const char* word, int64_t limit_ms,
               const std::function<void(Hosts&)>& overlap) {
  Hosts hosts(3);
  std::latch both_failed(2);
  const int64_t start = now_ns();
  const std::vector<Outcome> outcomes = hosts.outcomes([&](TransportGroup& wire) {
    std::vector<float> data(kManyFloats, 1);
    if (wire.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      overlap(hosts);
      return both_failed.wait();
    }
    const Outcome first = outcome_of([&] { operation.run(wire, data, Deadline::after_ms(limit_ms)); });
    both_failed.count_down();
    CHECK_FAILS(wire.barrier(soon()), DSC_ERR_REVOKED, "given up", operation.name);
    if (first.code != DSC_OK) throw Error(first.code, first.text.c_str());
  });
  for (const size_t host : {0, 1}) {
    const bool good = outcomes[host].code == code && outcomes[host].text.find(word) != std::string::npos;
    if (!good)
      print_error("%s on host %zu: %s: %s\n", operation.name, host, result_name(outcomes[host].code),
                  outcomes[host].text.c_str());
    assert_true(good);
  }
  assert_true(now_ns() - start < kAtOnceNs);
}

void abort_ends_every_wait(void**) {
  for (const Operation& operation : kOperations)
    both_fail(operation, DSC_ERR_REVOKED, "aborted", 60'000, [](Hosts& hosts) {
      hosts.wire(0).abort();
      hosts.wire(1).abort();
    });
}

void who_stays_away_is_named(void**) {
  for (const Operation& operation : kOperations)
    both_fail(operation, DSC_ERR_TIMEOUT, "rank 20", 1500, [](Hosts&) {});
}

void who_leaves_is_named(void**) {
  for (const Operation& operation : kOperations)
    both_fail(operation, DSC_ERR_PEER_DEAD, "rank 20", 60'000, [](Hosts& hosts) { hosts.drop(2); });
}

void abort_comes_before_the_operation(void**) {
  Hosts hosts(2);
  hosts.wire(0).abort();
  CHECK_FAILS(hosts.wire(0).barrier(soon()), DSC_ERR_REVOKED, "aborted");
  CHECK_FAILS(hosts.wire(0).barrier(soon()), DSC_ERR_REVOKED, "given up");
}

void who_never_connects_is_named(void**) {
  MemoryStore store;
  const std::shared_ptr<Transport> transport = loopback_transport();
  TransportGroup wire(transport, 1, {5, 6, 7, 8});
  // Host 0 is registered in the store but does not connect. Hosts 2 and 3 are not registered.
  TransportGroup silent(transport, 0, {5, 6, 7, 8});
  CHECK_FAILS(silent.connect(store, "wire", Deadline::after_ms(0)), DSC_ERR_TIMEOUT, "rank 6");
  CHECK_FAILS(wire.connect(store, "wire", Deadline::after_ms(100)), DSC_ERR_TIMEOUT, "rank 7", "rank 8");
  store.put("wire/9/0", "too short", soon());
  TransportGroup other(transport, 1, {5, 6});
  CHECK_FAILS(other.connect(store, "wire/9", soon()), DSC_ERR_PROTOCOL, "9 bytes", "rank 5");
}

// Fails like a store that has no room for a large value.
class FullStore : public Exchange {
 public:
  explicit FullStore(Exchange& store) : store_(store) {}

  void put(std::string_view key, std::string_view value, Deadline deadline) override {
    if (value.size() > 128) throw Error(DSC_ERR_NOSPACE, "the store is full");
    store_.put(key, value, deadline);
  }
  std::string get(std::string_view key, int32_t owner, Deadline deadline) override {
    return store_.get(key, owner, deadline);
  }

 private:
  Exchange& store_;
};

// If one host cannot put its address into the store, all hosts report its error immediately.
void a_host_that_cannot_take_part_says_why(void**) {
  MemoryStore store;
  FullStore full(store);
  const std::shared_ptr<Transport> transport = loopback_transport();
  const int64_t start = now_ns();
  std::vector<Outcome> outcomes(3);
  std::vector<std::thread> threads;
  for (const int32_t host : {0, 1, 2})
    threads.emplace_back([&, host] {
      TransportGroup wire(transport, host, {5, 6, 7});
      Exchange& exchange = host == 1 ? static_cast<Exchange&>(full) : store;
      outcomes[static_cast<size_t>(host)] =
          outcome_of([&] { wire.connect(exchange, "wire", Deadline::after_ms(60'000)); });
    });
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes) {
    assert_int_equal(outcome.code, DSC_ERR_NOSPACE);
    assert_non_null(std::strstr(outcome.text.c_str(), "the store is full"));
  }
  for (const size_t host : {0, 2})
    assert_non_null(std::strstr(outcomes[host].text.c_str(), "host 1 (rank 6)"));
  assert_true(now_ns() - start < kAtOnceNs);
}

void too_few_descriptors_are_told_before_connecting(void**) {
  rlimit limit{};
  assert_int_equal(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{60, limit.rlim_max};
  assert_int_equal(::setrlimit(RLIMIT_NOFILE, &few), 0);
  CHECK_FAILS(TransportGroup(loopback_transport(), 0, std::vector<int32_t>(200)), DSC_ERR_CONFIG,
              "connects to 199 other ranks", "its limit is 60", "ulimit -n");
  assert_int_equal(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void bytes_that_are_no_hello_are_refused(void**) {
  const std::string nonce(16, 'n'), low("a\0b", 3), high("a\xff!", 3);
  const std::string whole = encode_hello("Gloo 1", nonce, {low, "", high});
  for (const int32_t reader : {0, 2}) {
    const TransportHello read = decode_hello(whole, reader, "host 1");
    assert_true(read.library == "Gloo 1" && read.nonce == nonce &&
                read.address == (reader == 0 ? low : high));
  }
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    CHECK_FAILS(decode_hello(whole.substr(0, bytes), 2, "host 1"), DSC_ERR_PROTOCOL, "host 1",
                "without an address for host 2");
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const Outcome outcome = outcome_of([&] { decode_hello(changed, 2, "host 1"); });
    assert_true(outcome.code == DSC_OK || outcome.code == DSC_ERR_PROTOCOL);
  }
  CHECK_FAILS(decode_hello(encode_hello("Gloo 1", nonce, {low, "", high}), 3, "host 1"), DSC_ERR_PROTOCOL);
  CHECK_FAILS(decode_hello(encode_refusal(Error(DSC_ERR_NOMEM, "no memory")), 0, "host 1"), DSC_ERR_NOMEM,
              "host 1: no memory");
}

// A host uses a different port for each peer, so the data that all hosts exchange grows with the square of
// the number of hosts. The data of one host must be small.
void many_hosts_tell_little_of_each(void**) {
  constexpr int32_t kHosts = 40;
  MemoryStore store;
  TransportGroup wire(loopback_transport(), 0, std::vector<int32_t>(kHosts));
  CHECK_FAILS(wire.connect(store, "wire", Deadline::after_ms(0)), DSC_ERR_TIMEOUT, "did not arrive");
  const std::string told = store.get("wire/0", soon());
  print_message("a host tells %zu bytes to %d others\n", told.size(), kHosts - 1);
  assert_true(told.size() < 200 + 8 * kHosts);
}

// One name may resolve to different kinds of addresses on different hosts.
void two_families_of_addresses_are_told(void**) {
  const TransportLibrary library = load_transport(process_environment());
  MemoryStore store;
  TransportGroup first(std::make_shared<Transport>(library, "127.0.0.1"), 0, {5, 6});
  TransportGroup second(std::make_shared<Transport>(library, "::1"), 1, {5, 6});
  Outcome there;
  std::thread other([&] { there = outcome_of([&] { second.connect(store, "wire", soon()); }); });
  CHECK_FAILS(first.connect(store, "wire", soon()), DSC_ERR_BACKEND, "host 1 (rank 6)", "is IPv4 (",
              "is IPv6 (", "MASTER_ADDR");
  other.join();
  assert_int_equal(there.code, DSC_ERR_BACKEND);
  assert_non_null(std::strstr(there.text.c_str(), "host 0 (rank 5)"));
}

// A variant of Gloo's table. Its send() delays a message with data until a message without data was sent, but
// not for long.
namespace slow {

const dsc_transport_table* gloo;
std::atomic<bool> holds{false}, goes{false}, other_has_gone{false};

int send(dsc_transport_pair* pair, int32_t slot, const void* memory, size_t bytes, size_t offset, char* error,
         size_t error_bytes) {
  if (bytes > 0) {
    holds = true;
    for (int i = 0; i < 20 && !other_has_gone; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    goes = true;
  }
  const int result = gloo->send(pair, slot, memory, bytes, offset, error, error_bytes);
  if (bytes == 0) other_has_gone = true;
  return result;
}

}  // namespace slow

void await(const std::function<bool()>& condition) {
  for (const Deadline patience = soon(); !condition(); std::this_thread::yield())
    assert_false(patience.passed());
}

// abort() may be called by any thread. It must wait until its own message is sent, not just any message.
void a_farewell_beside_another_message_is_waited_for(void**) {
  const TransportLibrary library = load_transport(process_environment());
  slow::gloo = library.table;
  dsc_transport_table table = *library.table;
  table.send = slow::send;
  Poller completions;
  TransportChannel here(std::make_shared<Transport>(TransportLibrary{library.path, &table}, "127.0.0.1"),
                        completions);
  TransportChannel there(loopback_transport(), completions);
  here.connect(there.address());
  there.connect(here.address());
  await([&] { return here.open() && there.open(); });
  std::thread abort([&] { here.send_abort(Error(DSC_ERR_REVOKED, "given up").failure()); });
  await([] { return slow::holds.load(); });
  std::thread credits([&] {
    for (uint64_t i = 0; i < TransportChannel::kSlots; ++i) here.release();
  });
  bool early = false;
  while (!slow::goes && !early) {
    const bool sent = here.all_sent();
    early = sent && !slow::goes;
  }
  abort.join();
  credits.join();
  assert_false(early);
  await([&] { return here.all_sent() && there.abort_cause() != nullptr; });
}

// A transport that can drop its messages, as if the other hosts had gone from the network.
namespace lossy {

const dsc_transport_table* gloo;
std::atomic<bool> drops{false};

int send(dsc_transport_pair* pair, int32_t slot, const void* memory, size_t bytes, size_t offset, char* error,
         size_t error_bytes) {
  return drops ? DSC_OK : gloo->send(pair, slot, memory, bytes, offset, error, error_bytes);
}

}  // namespace lossy

// Each abort waits until its message is sent or times out. Here all messages time out, and the groups must
// wait for them at the same time.
void many_groups_abort_within_one_deadline(void**) {
  constexpr size_t kGroups = 6;
  const TransportLibrary library = load_transport(process_environment());
  lossy::gloo = library.table;
  dsc_transport_table table = *library.table;
  table.send = lossy::send;
  const auto transport = std::make_shared<Transport>(TransportLibrary{library.path, &table}, "127.0.0.1");
  std::vector<std::unique_ptr<Hosts>> hosts;
  std::vector<TransportGroup*> groups;
  for (size_t i = 0; i < kGroups; ++i) {
    hosts.push_back(std::make_unique<Hosts>(2, transport));
    groups.push_back(&hosts.back()->wire(0));
  }
  lossy::drops = true;
  const int64_t start = now_ns();
  TransportGroup::abort_all(groups);
  const int64_t took = now_ns() - start;
  lossy::drops = false;
  assert_true(took < 2 * kNsPerSecond);
  for (TransportGroup* group : groups) CHECK_FAILS(group->barrier(soon()), DSC_ERR_REVOKED, "aborted");
}

// Waits until all hosts have connected. An earlier death would not be the failure of an operation.
void await_all_connected(FileStore& store) {
  store.add("connected", 1, soon());
  for (const Deadline patience = soon(); store.add("connected", 0, soon()) < 3 && !patience.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// A process is killed in the middle of a large operation, or between two operations.
[[noreturn]] void die_among(const std::string& path, int32_t rank, bool inside) {
  FileStore store(path, "job", soon());
  TransportGroup wire(loopback_transport(), rank, {0, 1, 2});
  wire.connect(store, "wire", soon());
  await_all_connected(store);
  std::vector<float> data(kManyFloats, 1);
  std::thread killer;
  if (inside)
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      ::kill(::getpid(), SIGKILL);
    });
  else
    ::kill(::getpid(), SIGKILL);
  for (;;) wire.all_reduce(data.data(), data.data(), data.size(), kSum, soon());
}

// The children are forked before this process has threads.
void the_killed_are_named_at_once(void**) {
  for (const bool inside : {true, false}) {
    Folder folder;
    const std::string path = folder.file("store");
    const pid_t child = ::fork();
    if (child == 0) die_among(path, 1, inside);
    FileStore store(path, "job", soon());
    const std::shared_ptr<Transport> transport = loopback_transport();
    std::vector<Outcome> outcomes(3);
    std::vector<std::thread> threads;
    for (const int32_t rank : {0, 2})
      threads.emplace_back([&, rank] {
        TransportGroup wire(transport, rank, {0, 1, 2});
        wire.connect(store, "wire", soon());
        await_all_connected(store);
        std::vector<float> data(kManyFloats, 1);
        outcomes[static_cast<size_t>(rank)] = outcome_of([&] {
          for (;;) wire.all_reduce(data.data(), data.data(), data.size(), kSum, Deadline::after_ms(60'000));
        });
      });
    for (std::thread& thread : threads) thread.join();
    int status = 0;
    ::waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    // The host that notices the death later may learn of it from the other host. So only one text must name
    // the rank.
    assert_int_equal(outcomes[0].code, DSC_ERR_PEER_DEAD);
    assert_int_equal(outcomes[2].code, DSC_ERR_PEER_DEAD);
    assert_true(outcomes[0].text.find("rank 1") != std::string::npos ||
                outcomes[2].text.find("rank 1") != std::string::npos);
  }
}

// Writing to a closed connection raises SIGPIPE. The operation must report an error even if this process does
// not ignore SIGPIPE.
void a_broken_pipe_is_an_error_and_no_signal(void**) {
  assert_true(::signal(SIGPIPE, SIG_DFL) != SIG_ERR);
  for (int round = 0; round < 5; ++round) {
    Hosts hosts(2);
    hosts.drop(1);
    std::vector<float> data(kManyFloats, 1);
    CHECK_FAILS(hosts.wire(0).all_reduce(data.data(), data.data(), data.size(), kSum, soon()),
                DSC_ERR_PEER_DEAD, "rank 10");
  }
  sigset_t pending;
  ::sigpending(&pending);
  assert_false(::sigismember(&pending, SIGPIPE));
}

// Invalid bytes end the connection that sent them, but not the process.
void garbage_at_the_port_is_an_error(void**) {
  const std::shared_ptr<Transport> transport = loopback_transport();
  for (const uint64_t opcode : {0, 1, 2, 3, 77}) {
    Poller completions;
    TransportChannel channel(transport, completions);
    sockaddr_storage address;
    std::memcpy(&address, channel.address().data(), sizeof address);
    const UniqueFd stranger(::socket(AF_INET, SOCK_STREAM, 0));
    assert_int_equal(
        ::connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)), 0);
    // A message in Gloo's format that asks for a write to the ring, with more bytes than the ring has.
    const uint64_t message[6] = {48 + (1ull << 40), opcode, 1, 0, 1ull << 40, 0};
    assert_int_equal(::send(stranger.get(), message, sizeof message, MSG_NOSIGNAL), sizeof message);
    const Deadline deadline = soon();
    const auto has_come = [&] { return channel.ended() || (opcode > 1 && channel.open()); };
    while (!has_come() && !deadline.passed()) ::usleep(1000);
    ::usleep(20'000);
    if (opcode <= 1) assert_true(channel.ended());
    if (opcode <= 1) assert_false(channel.why_ended().empty());
  }
}

// Messages that must be refused. They would write before the ring because a sum wraps around, write behind
// the ring, write to an unused slot, or have a wrong length.
void nobody_writes_beside_the_ring(void**) {
  const uint64_t before = ~uint64_t{0} - 4095;
  const uint64_t messages[][6] = {
      {48 + 4104, 0, 1, 0, 4104, before},
      {48 + 4104, 1, 1, 0, 4104, before},
      {48 + 8, 0, 1, 0, 8, TransportChannel::kSlots * TransportChannel::kSlotBytes},
      {48 + 8, 0, 77, 0, 8, 0},
      {48 + 9, 0, 1, 0, 8, 0}};
  for (const auto& message : messages) {
    Poller completions;
    TransportChannel channel(loopback_transport(), completions);
    sockaddr_storage address;
    std::memcpy(&address, channel.address().data(), sizeof address);
    const UniqueFd stranger(::socket(AF_INET, SOCK_STREAM, 0));
    assert_int_equal(
        ::connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)), 0);
    assert_int_equal(::send(stranger.get(), message, sizeof message, MSG_NOSIGNAL), sizeof message);
    const Deadline deadline = soon();
    while (!channel.ended() && !deadline.passed()) ::usleep(1000);
    assert_true(channel.ended());
  }
}

void many_wires_leave_nothing(void**) {
  const auto once = [] {
    Hosts hosts(2);
    hosts.each([](TransportGroup& wire) {
      std::vector<float> data(100'000, 1);
      wire.all_reduce(data.data(), data.data(), data.size(), kSum, soon());
    });
  };
  once();
  const size_t files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  const std::shared_ptr<Transport> transport = loopback_transport();
  const int rounds = test_repetitions(100, 10);
  for (int round = 0; round < rounds; ++round) once();
  assert_int_equal(entries_of("/proc/self/task"), threads + 1);  // the thread of the transport
  assert_int_equal(entries_of("/proc/self/fd"), files + 1);
}

void modules_that_do_not_fit_are_refused(void**) {
  const auto load = [](const char* path) { load_transport(environment_of(path)); };
  CHECK_FAILS(load("/nowhere/libdsc_gloo.so"), DSC_ERR_NO_BACKEND, "DSC_GLOO_LIBRARY", "/nowhere/");
  CHECK_FAILS(load(FAKE_NONE), DSC_ERR_NO_BACKEND, FAKE_NONE, "has no symbol dsc_transport_module");
  CHECK_FAILS(load(FAKE_OLD), DSC_ERR_NO_BACKEND, FAKE_OLD, "version 1", "expected");
  const auto named = [](const char* name) {
    load_transport([name](const char* asked) -> std::optional<std::string> {
      if (std::string(asked) == "DSC_TRANSPORT") return name;
      return std::nullopt;
    });
  };
  CHECK_FAILS(named("glo"), DSC_ERR_CONFIG, "DSC_TRANSPORT is \"glo\"", "expected one of: gloo");
  // There is no module in the folder of this program. Whether the loader finds one elsewhere depends on
  // LD_LIBRARY_PATH.
  const Outcome found = outcome_of([&] { load(nullptr); });
  if (found.code != DSC_OK)
    CHECK_FAILS(load(nullptr), DSC_ERR_NO_BACKEND, "unit/libdsc_gloo.so", "unit/libdsc/libdsc_gloo.so",
                "; libdsc_gloo.so: cannot open");
}

void hosts_with_different_modules_do_not_connect(void**) {
  static const TransportLibrary library = load_transport(process_environment());
  static dsc_transport_table another = *library.table;
  another.library = "Another 1.0";
  const std::shared_ptr<Transport> transports[] = {
      std::make_shared<Transport>(library, "127.0.0.1"),
      std::make_shared<Transport>(TransportLibrary{library.path, &another}, "127.0.0.1")};
  MemoryStore store;
  Outcome outcomes[2];
  std::vector<std::thread> threads;
  for (int32_t host = 0; host < 2; ++host)
    threads.emplace_back([&, host] {
      TransportGroup group(transports[host], host, {0, 10});
      outcomes[host] = outcome_of([&] { group.connect(store, "differ", soon()); });
    });
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes) {
    assert_int_equal(outcome.code, DSC_ERR_VERSION);
    assert_non_null(std::strstr(outcome.text.c_str(), "\"Another 1.0\""));
    assert_non_null(std::strstr(outcome.text.c_str(), library.table->library));
  }
}

void addresses_that_do_not_fit_are_refused(void**) {
  const TransportLibrary library = load_transport(process_environment());
  CHECK_FAILS(Transport(library, "localhost"), DSC_ERR_BACKEND, "localhost", "numeric");
  CHECK_FAILS(Transport(library, "203.0.113.7"), DSC_ERR_BACKEND, "203.0.113.7");
  const Transport other(library, "127.0.0.2");
}

void gloos_thread_is_named_and_deaf(void**) {
  const std::shared_ptr<Transport> transport = loopback_transport();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  assert_false(::sigismember(&before, SIGTERM));
  bool found = false;
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* task = ::readdir(tasks)) {
    char text[4096] = "";
    const std::string path = std::string("/proc/self/task/") + task->d_name + "/status";
    const UniqueFd file(::open(path.c_str(), O_RDONLY));
    if (!file || ::read(file.get(), text, sizeof text - 1) <= 0) continue;
    if (!std::strstr(text, "Name:\tdsc-gloo\n")) continue;
    found = true;
    unsigned long long blocked = 0;
    assert_int_equal(std::sscanf(std::strstr(text, "SigBlk:"), "SigBlk:\t%llx", &blocked), 1);
    assert_true(blocked >> (SIGTERM - 1) & 1 && blocked >> (SIGINT - 1) & 1 && blocked >> (SIGPIPE - 1) & 1);
  }
  ::closedir(tasks);
  assert_true(found);
}

}  // namespace

int main() {
  if (const Outcome outcome = outcome_of([] { load_transport(process_environment()); });
      outcome.code != DSC_OK) {
    std::printf("skipped: %s\n", outcome.text.c_str());
    return 77;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_killed_are_named_at_once),
      cmocka_unit_test(abort_ends_every_wait),
      cmocka_unit_test(who_stays_away_is_named),
      cmocka_unit_test(who_leaves_is_named),
      cmocka_unit_test(abort_comes_before_the_operation),
      cmocka_unit_test(who_never_connects_is_named),
      cmocka_unit_test(a_host_that_cannot_take_part_says_why),
      cmocka_unit_test(too_few_descriptors_are_told_before_connecting),
      cmocka_unit_test(bytes_that_are_no_hello_are_refused),
      cmocka_unit_test(many_hosts_tell_little_of_each),
      cmocka_unit_test(two_families_of_addresses_are_told),
      cmocka_unit_test(a_farewell_beside_another_message_is_waited_for),
      cmocka_unit_test(many_groups_abort_within_one_deadline),
      cmocka_unit_test(a_broken_pipe_is_an_error_and_no_signal),
      cmocka_unit_test(garbage_at_the_port_is_an_error),
      cmocka_unit_test(nobody_writes_beside_the_ring),
      cmocka_unit_test(many_wires_leave_nothing),
      cmocka_unit_test(modules_that_do_not_fit_are_refused),
      cmocka_unit_test(hosts_with_different_modules_do_not_connect),
      cmocka_unit_test(addresses_that_do_not_fit_are_refused),
      cmocka_unit_test(gloos_thread_is_named_and_deaf),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
