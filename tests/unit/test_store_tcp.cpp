// The TCP store and unauthenticated clients: tokens, other services, floods, broken frames, ends of
// processes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/fd.hpp"
#include "repetitions.h"
#include "store_raw.hpp"

namespace {

using namespace dsc;
using namespace dsc::test;

std::string from_hex(const char* digits) {
  std::string bytes;
  for (; *digits != '\0'; digits += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits, 2), nullptr, 16));
  return bytes;
}

// Test vectors for HMAC (RFC 4231, cases 1, 2 and 6) and for HKDF (RFC 5869, case 1, the first 32 bytes).
void codes_are_those_of_the_standards(void**) {
  const struct {
    std::string key, text;
    const char* digest;
  } cases[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
  };
  for (const auto& one : cases) {
    const Digest digest = hmac_sha256(one.key, {one.text.substr(0, 5), one.text.substr(5)});
    assert_true(bytes_of(digest) == from_hex(one.digest));
  }
  const Digest key = hkdf_extract(from_hex("000102030405060708090a0b0c"), std::string(22, '\x0b'));
  assert_true(bytes_of(key) == from_hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"));
  const Digest expanded = hkdf_expand(key, from_hex("f0f1f2f3f4f5f6f7f8f9"));
  assert_true(bytes_of(expanded) ==
              from_hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"));
}

bool accepts(FrameCounter& counter, const std::string& frame) {
  const std::string_view head = std::string_view(frame).substr(0, kFrameHeadBytes);
  const auto payload = counter.payload_bytes(head);
  if (!payload || frame.size() != kFrameHeadBytes + *payload + kFrameCodeBytes) return false;
  return counter.open(frame).has_value();
}

void frames_show_every_change(void**) {
  const Digest key = *token_of('1');
  FrameCounter sender(key);
  const std::string first = sender.seal(FrameType::kRequest, "payload");
  const std::string second = sender.seal(FrameType::kReply, "");
  for (size_t bit = 0; bit < 8 * first.size(); ++bit) {
    std::string changed = first;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    FrameCounter receiver(key);
    assert_false(accepts(receiver, changed));
  }
  FrameCounter receiver(key);
  assert_false(accepts(receiver, second));  // a frame is missing
  assert_true(accepts(receiver, first));
  assert_true(payload_of(first) == "payload");
  assert_false(accepts(receiver, first));  // the same frame again
  assert_true(accepts(receiver, second));
  FrameCounter other(*token_of('2'));
  assert_false(accepts(other, first));
}

void tokens_have_64_digits(void**) {
  assert_true(*find_token(nullptr, [](const char* name) -> std::optional<std::string> {
    return std::string(name) == "DSC_TOKEN" ? std::optional(std::string(64, 'A') + "\n") : std::nullopt;
  }) == *token_of('a'));
  CHECK_FAILS(parse_token("secret", "DSC_TOKEN"), DSC_ERR_CONFIG, "DSC_TOKEN has 6 characters", "64");
  const Outcome outcome = outcome_of([] { parse_token(std::string(63, 'a') + "g", "DSC_TOKEN"); });
  assert_non_null(std::strstr(outcome.text.c_str(), "position 64"));
  // a refused token is still a secret, so the message must not contain it
  assert_null(std::strstr(outcome.text.c_str(), "aaaa"));
  assert_true(parse_token(random_token(), "x") != parse_token(random_token(), "x"));
}

Environment only(const char* name, const std::string& value) {
  return [name, value](const char* asked) -> std::optional<std::string> {
    return std::string(name) == asked ? std::optional(value) : std::nullopt;
  };
}

void tokens_come_from_files(void**) {
  Folder folder;
  const std::string path = folder.file("token");
  FILE* file = std::fopen(path.c_str(), "w");
  std::fprintf(file, "%s\n", std::string(64, 'b').c_str());
  std::fclose(file);
  assert_int_equal(::chmod(path.c_str(), 0644), 0);
  CHECK_FAILS(find_token(nullptr, only("DSC_TOKEN_FILE", path)), DSC_ERR_AUTH, "mode 644", "expected 600");
  assert_int_equal(::chmod(path.c_str(), 0600), 0);
  assert_true(*find_token(nullptr, only("DSC_TOKEN_FILE", path)) == *token_of('b'));
  const UniqueFd open(::open(path.c_str(), O_RDONLY));
  const Environment by_number = only("DSC_TOKEN_FD", std::to_string(open.get()));
  for (int i = 0; i < 2; ++i) assert_true(*find_token(nullptr, by_number) == *token_of('b'));
  CHECK_FAILS(find_token(nullptr, only("DSC_TOKEN_FD", "x")), DSC_ERR_CONFIG, "'x'", "descriptor");
  CHECK_FAILS(find_token(nullptr, only("DSC_TOKEN_FD", "987")), DSC_ERR_SYSTEM, "987");
  CHECK_FAILS(find_token(nullptr, only("DSC_TOKEN_FILE", path + "x")), DSC_ERR_SYSTEM, "No such file");
  assert_false(find_token(nullptr, only("OTHER", "")).has_value());
}

void only_the_same_token_joins(void**) {
  const StoreServer server(server_options(token_of('1')));
  CHECK_FAILS(TcpStore(target_of(server, token_of('2')), soon()), DSC_ERR_AUTH, "127.0.0.1", "same token");
  CHECK_FAILS(TcpStore(target_of(server), soon()), DSC_ERR_AUTH, "requires a token", "DSC_TOKEN");
  CHECK_FAILS(TcpStore(target_of(server, token_of('1'), "other job"), soon()), DSC_ERR_ADDR_IN_USE,
              "another id");
  TcpStore(target_of(server, token_of('1')), soon()).set("k", "v", soon());
  const StoreServer open(server_options());
  CHECK_FAILS(TcpStore(target_of(open, token_of('1')), soon()), DSC_ERR_AUTH, "has none");
  TcpStore(target_of(open), soon()).set("k", "v", soon());
  assert_int_equal(server.counts().refused, 1);
}

void listens_where_it_may(void**) {
  const StoreServer server(server_options());
  StoreServer::Options taken = server_options();
  taken.addresses = loopback(server.port());
  const int64_t start = now_ns();
  CHECK_FAILS(StoreServer server_there(taken), DSC_ERR_ADDR_IN_USE, "127.0.0.1",
              std::to_string(server.port()).c_str());
  assert_true(now_ns() - start < kNsPerSecond);
  StoreServer::Options anywhere = server_options();
  anywhere.addresses = listening_addresses("127.0.0.1", "any", 0, soon());
  CHECK_FAILS(StoreServer server_there(anywhere), DSC_ERR_AUTH, "without a token", "DSC_TOKEN",
              "DSC_ALLOW_UNAUTHENTICATED");
  anywhere.token = token_of('1');
  const StoreServer everywhere(anywhere);
  TcpStore(target_of(everywhere, token_of('1')), soon()).set("k", "v", soon());
  StoreServer::Options elsewhere = server_options(token_of('1'));
  elsewhere.addresses = resolve("192.0.2.1", 0, "the address", soon());
  CHECK_FAILS(StoreServer server_there(elsewhere), DSC_ERR_CONFIG, "192.0.2.1",
              "not an address of this host");
  assert_string_equal(to_text(listening_addresses("x", "lo", 1, soon()).front()).c_str(), "127.0.0.1");
  CHECK_FAILS(resolve("no.such.name.invalid", 1, "MASTER_ADDR", soon()), DSC_ERR_CONFIG, "MASTER_ADDR",
              "cannot be resolved");
}

void speaks_the_sixth_version_of_ip_too(void**) {
  StoreServer::Options options = server_options();
  options.addresses = resolve("::1", 0, "the address", soon());
  const Outcome outcome = outcome_of([&] {
    const StoreServer server(options);
    StoreTarget target = target_of(server);
    target.addresses = resolve("::1", server.port(), "the address", soon());
    TcpStore(target, soon()).set("k", "v", soon());
  });
  if (outcome.code == DSC_ERR_CONFIG) skip();  // this host has no IPv6
  assert_int_equal(outcome.code, DSC_OK);
}

// A listener that treats every connection as the test says.
class Foreign {
 public:
  explicit Foreign(std::function<void(int)> talk) : talk_(std::move(talk)) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    assert_int_equal(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    assert_int_equal(::listen(listener_.get(), 16), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      while (true) {
        const UniqueFd one(::accept(listener_.get(), nullptr, nullptr));
        if (!one) return;
        talk_(one.get());
      }
    });
  }
  ~Foreign() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  StoreTarget target() const {
    StoreTarget target;
    target.host = "127.0.0.1";
    target.port = port_;
    target.addresses = loopback(port_);
    return target;
  }

 private:
  std::function<void(int)> talk_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

void names_what_is_no_store(void**) {
  const Foreign http([](int fd) { say(fd, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"); });
  CHECK_FAILS(TcpStore(http.target(), soon()), DSC_ERR_PROTOCOL, "127.0.0.1", "not libdsc", "48 54 54 50");
  const Foreign silent([](int fd) {
    char byte;
    (void)!::recv(fd, &byte, 1, 0);
  });
  CHECK_FAILS(TcpStore(silent.target(), Deadline::after_ms(1500)), DSC_ERR_TIMEOUT, "sent no hello");
  CHECK_FAILS(TcpStore(silent.target(), Deadline::after_ms(20000)), DSC_ERR_PROTOCOL, "sends nothing");
  const Foreign newer([](int fd) {
    ServerHello hello;
    hello.version = 7;
    say(fd, encode(hello));
    ::usleep(100000);
  });
  CHECK_FAILS(TcpStore(newer.target(), soon()), DSC_ERR_VERSION, "version 7", "expected 1");
  const Foreign liar([](int fd) {
    say(fd, encode(ServerHello{}) + std::string(kResultBytes + kProofBytes, '\0'));
    ::usleep(100000);
  });
  CHECK_FAILS(TcpStore(liar.target(), soon()), DSC_ERR_AUTH, "same token");
  const Foreign rude([](int) {});
  CHECK_FAILS(TcpStore(rude.target(), Deadline::after_ms(1500)), DSC_ERR_TIMEOUT, "no store at 127.0.0.1",
              "tried 127.0.0.1", "sent no hello");
}

void waits_for_a_server_that_is_late(void**) {
  auto first = std::make_unique<StoreServer>(server_options());
  const StoreTarget target = target_of(*first);
  first.reset();
  const int64_t start = now_ns();
  CHECK_FAILS(TcpStore(target, Deadline::after_ms(1500)), DSC_ERR_TIMEOUT, "refused", "tried 127.0.0.1");
  assert_true(now_ns() - start < kAtOnceNs);
  std::unique_ptr<StoreServer> late;
  std::thread starter([&] {
    ::usleep(50000);
    StoreServer::Options options = server_options();
    options.addresses = loopback(target.port);
    late = std::make_unique<StoreServer>(options);
  });
  TcpStore store(target, soon());
  starter.join();
  store.set("k", "v", soon());
  // A new server at the same address does not have the values of the old one.
  late.reset();
  CHECK_FAILS(store.set("k", "v", soon()), DSC_ERR_PEER_DEAD, "gone", "refused");
  StoreServer::Options options = server_options();
  options.addresses = loopback(target.port);
  const StoreServer another(options);
  CHECK_FAILS(store.set("k", "v", soon()), DSC_ERR_PEER_DEAD, "another store has replaced it");
}

void a_broken_frame_ends_one_connection(void**) {
  const Token token = token_of('1');
  const StoreServer server(server_options(token));
  TcpStore store(target_of(server, token), soon());
  std::string recorded;
  const auto ends_with = [&](const std::function<std::string(FrameCounter&)>& make) {
    const Raw raw = introduce(server, token);
    recorded = raw.introduction;
    say(raw.fd.get(), make(*raw.outgoing));
    assert_true(ended(raw.fd.get()));
    store.set("k", "v", soon());
  };
  ends_with([](FrameCounter&) { return std::string(kFrameHeadBytes, '\xff'); });  // claims 4 GiB
  ends_with([](FrameCounter& counter) {
    std::string frame =
        counter.seal(FrameType::kRequest, encode(StoreRequest{StoreOp::kCount, {}, "", "", 0}));
    frame.back() = static_cast<char>(frame.back() ^ 1);
    return frame;
  });
  ends_with([](FrameCounter& counter) { return counter.seal(FrameType::kRequest, "no request"); });
  ends_with([](FrameCounter& counter) { return counter.seal(FrameType::kReply, ""); });
  ends_with([](FrameCounter& counter) {  // two frames in one
    const std::string wait = encode(StoreRequest{StoreOp::kGet, {"never"}, "", "", 0});
    return counter.seal(FrameType::kRequest, wait) + counter.seal(FrameType::kRequest, wait);
  });
  const std::string add = encode(StoreRequest{StoreOp::kAdd, {"n"}, "", "", 1});
  ends_with([&](FrameCounter& counter) {  // the same frame twice
    const std::string frame = counter.seal(FrameType::kRequest, add);
    return frame + frame;
  });
  assert_int_equal(store.add("n", 0, soon()), 1);
  ends_with([&](FrameCounter& counter) {  // the second frame first
    const std::string frame = counter.seal(FrameType::kRequest, add);
    return counter.seal(FrameType::kRequest, add) + frame;
  });
  ends_with([&](FrameCounter& counter) {  // a frame without its last 8 bytes, then the next frame
    const std::string frame = counter.seal(FrameType::kRequest, add);
    return frame.substr(0, frame.size() - 8) + counter.seal(FrameType::kRequest, add);
  });
  assert_int_equal(store.add("n", 0, soon()), 1);
  // Another client cannot reuse what one client has sent.
  const UniqueFd thief = connect_to(server.port());
  assert_int_equal(hear(thief.get(), kServerHelloBytes).size(), kServerHelloBytes);
  say(thief.get(), recorded);
  assert_true(ended(thief.get()));
  assert_int_equal(server.counts().waiting, 0);
}

void strangers_hold_up_nobody(void**) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const Token token = token_of('1');
  StoreServer::Options options = server_options(token);
  options.world_size = 8;
  options.authentication_ms = 3000;
  const StoreServer server(options);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 1000; ++i) silent.push_back(connect_to(server.port()));
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {"GET / HTTP/1.1\r\n\r\n"sv, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"sv, "SSH-2.0-x\r\n"sv,
        "abc"sv}) {
    const UniqueFd scanner = connect_to(server.port());
    assert_int_equal(hear(scanner.get(), kServerHelloBytes).size(), kServerHelloBytes);
    say(scanner.get(), text);
    assert_true(ended(scanner.get()));
  }
  const int64_t start = now_ns();
  for (int rank = 0; rank < 8; ++rank) {
    TcpStore store(target_of(server, token), soon());
    store.add("joined", 1, soon());
  }
  assert_true(now_ns() - start < kAtOnceNs);
  assert_true(server.counts().unauthenticated <= 64 + 2 * 8);
  const Deadline patience = soon();
  while (server.counts().unauthenticated > 0 && !patience.passed()) ::usleep(1000);
  assert_int_equal(server.counts().unauthenticated, 0);
  assert_int_equal(server.counts().refused, 1004);
  assert_int_equal(server.counts().authenticated, 8);
}

// A client that is disconnected in favor of others connects again. It must not get the error of a wrong
// token.
void a_flood_is_no_wrong_token(void**) {
  const Token token = token_of('1');
  const StoreServer server(server_options(token));
  std::atomic<bool> over{false};
  std::vector<std::thread> flood;
  for (int t = 0; t < 2; ++t)
    flood.emplace_back([&] {
      std::vector<UniqueFd> silent;
      while (!over) {
        silent.push_back(connect_to(server.port()));
        if (silent.size() > 200) silent.clear();
      }
    });
  const Deadline patience = soon();
  while (server.counts().refused == 0 && !patience.passed()) ::usleep(1000);
  const int clients = test_repetitions(100, 25);
  int joined = 0;
  for (int i = 0; i < clients; ++i) {
    const Outcome outcome =
        outcome_of([&] { TcpStore(target_of(server, token), Deadline::after_ms(100000)); });
    joined += outcome.code == DSC_OK;
    if (outcome.code != DSC_OK) print_error("client %d: %s\n", i, outcome.text.c_str());
  }
  over = true;
  for (std::thread& thread : flood) thread.join();
  assert_int_equal(joined, clients);
  assert_true(server.counts().refused > 0);
}

// A name may have several addresses, and nothing may answer at the first one.
void goes_on_to_the_next_address(void**) {
  const StoreServer server(server_options());
  StoreTarget target = target_of(server);
  // A listener whose queue is full accepts no further connection.
  const UniqueFd full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  assert_int_equal(::bind(full.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  assert_int_equal(::listen(full.get(), 0), 0);
  ::getsockname(full.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  const UniqueFd first = connect_to(ntohs(address.sin_port));
  target.addresses.insert(target.addresses.begin(), loopback(ntohs(address.sin_port)).front());
  TcpStore(target, Deadline::after_ms(20000)).set("k", "v", soon());
}

int sockets_of(pid_t pid) {
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;  // fails for the descriptor of this directory listing, which is closed by then
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    sockets += target.starts_with("socket:");
  }
  return sockets;
}

// A program that this process starts inherits neither the listener nor the connections.
void programs_inherit_nothing(void**) {
  const int before = sockets_of(::getpid());
  const StoreServer server(server_options());
  TcpStore store(target_of(server), soon());
  store.set("k", "v", soon());
  assert_int_equal(sockets_of(::getpid()), before + 3);
  char* const command[] = {const_cast<char*>("sleep"), const_cast<char*>("20"), nullptr};
  pid_t child = 0;
  assert_int_equal(::posix_spawnp(&child, "sleep", nullptr, nullptr, command, environ), 0);
  const int inherited = sockets_of(child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  assert_int_equal(inherited, before);
}

// If a deadline passes while the answer is on its way, the following requests still get their own answers.
void cancels_in_step(void**) {
  const StoreServer server(server_options());
  TcpStore store(target_of(server), soon());
  std::atomic<bool> over{false};
  std::thread setter([&] {
    TcpStore other(target_of(server), soon());
    while (!over) {
      other.set("k", "v", soon());
      other.remove("k", soon());
    }
  });
  int came = 0;
  for (int i = 0; i < 300 || (came == 0 && i < 2000); ++i) {  // more rounds on a slow machine
    const int64_t patience_ns = i < 300 ? i * 1000 : i * 50'000;
    const Outcome outcome = outcome_of([&] { store.get("k", Deadline{now_ns() + patience_ns}); });
    assert_true(outcome.code == DSC_OK || outcome.code == DSC_ERR_TIMEOUT);
    came += outcome.code == DSC_OK;
    assert_int_equal(store.add("n", 1, soon()), i + 1);
  }
  over = true;
  setter.join();
  assert_true(came > 0);
  assert_int_equal(server.counts().waiting, 0);
}

void many_wait_for_one_key(void**) {
  const StoreServer server(server_options());
  TcpStore store(target_of(server), soon());
  std::vector<std::thread> waiters;
  std::atomic<int> right{0};
  for (int i = 0; i < 50; ++i)
    waiters.emplace_back([&] {
      right += TcpStore(target_of(server), soon()).get("go", Deadline::after_ms(30000)).size() == 1 << 20;
    });
  const Deadline patience = soon();
  while (server.counts().waiting < 50 && !patience.passed()) ::usleep(1000);
  assert_int_equal(server.counts().waiting, 50);
  store.set("go", std::string(1 << 20, 'x'), soon());
  for (std::thread& waiter : waiters) waiter.join();
  assert_int_equal(right, 50);
}

// The process of the server is killed while a child that it forked still runs.
void a_dead_server_is_noticed_at_once(void**) {
  int channel[2];
  assert_int_equal(::pipe(channel), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::alarm(90);
    auto* server = new StoreServer(server_options());
    TcpStore own(target_of(*server), soon());
    const uint16_t port = server->port();
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(90);
      ::pause();
      ::_exit(0);
    }
    const std::array<int, 2> news{port, child};
    (void)!::write(channel[1], news.data(), sizeof news);
    ::pause();
    ::_exit(0);
  }
  ::close(channel[1]);
  std::array<int, 2> news{};
  assert_int_equal(::read(channel[0], news.data(), sizeof news), sizeof news);
  StoreTarget target;
  target.host = "127.0.0.1";
  target.port = static_cast<uint16_t>(news[0]);
  target.addresses = loopback(target.port);
  target.job_id = "job";
  TcpStore store(target, soon());
  std::thread killer([&] {
    ::usleep(50000);
    ::kill(parent, SIGKILL);
  });
  const int64_t start = now_ns();
  CHECK_FAILS(store.get("never", Deadline::after_ms(20000)), DSC_ERR_PEER_DEAD, "store at 127.0.0.1", "gone");
  assert_true(now_ns() - start < kAtOnceNs);
  killer.join();
  // until then its listening socket may still accept a connection and then reset it
  ::waitpid(parent, nullptr, 0);
  CHECK_FAILS(store.set("k", "v", Deadline::after_ms(20000)), DSC_ERR_PEER_DEAD, "refused");
  ::kill(static_cast<pid_t>(news[1]), SIGKILL);
  ::close(channel[0]);
}

StoreRequest append_to(const char* key, const char* value) {
  StoreRequest request;
  request.op = StoreOp::kAppend;
  request.keys = {key};
  request.value = value;
  return request;
}

void leave_will(Channel& channel, const std::string& will) {
  StoreRequest request;
  request.op = StoreOp::kWill;
  request.value = will;
  channel.ask(request, soon());
}

void a_will_is_carried_out(void**) {
  StoreServer server(server_options(token_of('1')));
  TcpStore store(target_of(server, token_of('1')), soon());
  Channel::Failure failure;
  auto first = Channel::connect(target_of(server, token_of('1')), soon(), failure);
  auto second = Channel::connect(target_of(server, token_of('1')), soon(), failure);
  leave_will(*first, encode(append_to("gone", "first")));
  leave_will(*second, encode(append_to("gone", "second")));
  CHECK_FAILS(store.follow("gone", 0, Deadline::after_ms(50)), DSC_ERR_TIMEOUT, "gone");
  leave_will(*second, {});  // withdraws the announcement of its death
  second.reset();
  first.reset();
  assert_true(store.follow("gone", 0, soon()) == "first");
  CHECK_FAILS(store.follow("gone", 5, Deadline::after_ms(50)), DSC_ERR_TIMEOUT, "gone");
  auto third = Channel::connect(target_of(server, token_of('1')), soon(), failure);
  CHECK_FAILS(leave_will(*third, "no request"), DSC_ERR_INVALID_ARG, "changes a key");
  StoreRequest reads;
  reads.op = StoreOp::kGet;
  reads.keys = {"gone"};
  CHECK_FAILS(leave_will(*third, encode(reads)), DSC_ERR_INVALID_ARG, "changes a key");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_will_is_carried_out),
      cmocka_unit_test(codes_are_those_of_the_standards),
      cmocka_unit_test(frames_show_every_change),
      cmocka_unit_test(tokens_have_64_digits),
      cmocka_unit_test(tokens_come_from_files),
      cmocka_unit_test(only_the_same_token_joins),
      cmocka_unit_test(listens_where_it_may),
      cmocka_unit_test(speaks_the_sixth_version_of_ip_too),
      cmocka_unit_test(names_what_is_no_store),
      cmocka_unit_test(waits_for_a_server_that_is_late),
      cmocka_unit_test(a_broken_frame_ends_one_connection),
      cmocka_unit_test(strangers_hold_up_nobody),
      cmocka_unit_test(a_flood_is_no_wrong_token),
      cmocka_unit_test(goes_on_to_the_next_address),
      cmocka_unit_test(programs_inherit_nothing),
      cmocka_unit_test(cancels_in_step),
      cmocka_unit_test(many_wait_for_one_key),
      cmocka_unit_test(a_dead_server_is_noticed_at_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
