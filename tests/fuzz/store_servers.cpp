#include "store_servers.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include "base/clock.hpp"
#include "fuzz.hpp"
#include "store/server_core.hpp"
#include "store_model.hpp"

namespace dsc::fuzz {
namespace {

StoreServer::Options small_options() {
  StoreServer::Options options;
  options.token = the_token();
  options.limits = kSmallLimits;
  return options;
}

void be_patient(int fd) {
  const timeval patience{kPatienceMs / 1000, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

class BareServer : public ServerUnderTest {
 public:
  UniqueFd connect() override {
    int ends[2];
    FUZZ_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    core_.admit({core_.io(), asio::ip::tcp::v4(), ends[0]});
    run();
    be_patient(ends[1]);
    return UniqueFd(ends[1]);
  }

  void run() override {
    core_.io().restart();
    core_.io().poll();
  }

  StoreServer::Counts counts() override { return core_.counts(); }

 private:
  ServerCore core_{small_options()};
};

class WholeServer : public ServerUnderTest {
 public:
  UniqueFd connect() override {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_.port());
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    be_patient(fd.get());
    bind_to_another_address(fd.get());
    FUZZ_REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return fd;
  }

  void run() override { ::sched_yield(); }

  StoreServer::Counts counts() override { return server_.counts(); }

 private:
  static StoreServer::Options options() {
    StoreServer::Options options = small_options();
    options.addresses = resolve("127.0.0.1", 0, "the address", Deadline::after_ms(kPatienceMs));
    return options;
  }

  // Each address of the loopback network has its own ports. The ports of one address would be used up within
  // a minute.
  void bind_to_another_address(int fd) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + ++connections_ % (1 << 20));
    FUZZ_REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
  }

  StoreServer server_{options()};
  uint32_t connections_ = 0;
};

}  // namespace

Token the_token() { return parse_token(std::string(64, '5'), "the token"); }

std::unique_ptr<ServerUnderTest> bare_server() { return std::make_unique<BareServer>(); }

std::unique_ptr<ServerUnderTest> whole_server() { return std::make_unique<WholeServer>(); }

}  // namespace dsc::fuzz
