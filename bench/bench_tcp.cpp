// A lower bound for communication between hosts: each connection carries only the bytes that the operation
// needs at least. It uses plain sockets and one thread per host. The content of the bytes is meaningless.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "harness.hpp"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw std::invalid_argument(std::string("expected ") + name + " in the environment");
  return value;
}

ssize_t checked(ssize_t result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    throw std::invalid_argument("expected an IPv4 address, got " + host);
  return address;
}

// The data in transit between this host and another one.
struct Stream {
  int fd;
  const char* out;
  size_t to_send;
  char* in;
  size_t to_receive;

  bool done() const { return to_send == 0 && to_receive == 0; }
  short events() const { return static_cast<short>((to_send ? POLLOUT : 0) | (to_receive ? POLLIN : 0)); }

  void move() {
    const ssize_t sent = to_send ? ::send(fd, out, to_send, MSG_NOSIGNAL) : 0;
    if (sent < 0 && errno != EAGAIN) checked(sent, "send");
    if (sent > 0) out += sent, to_send -= static_cast<size_t>(sent);
    const ssize_t got = to_receive ? ::recv(fd, in, to_receive, 0) : 1;
    if (got < 0 && errno != EAGAIN) checked(got, "recv");
    if (got == 0) throw std::runtime_error("a connection ended");
    if (got > 0 && to_receive) in += got, to_receive -= static_cast<size_t>(got);
  }
};

class TcpEngine : public bench::Engine {
 public:
  explicit TcpEngine(const bench::Job& job)
      : rank_(bench::rank_from_environment()), members_(std::stoi(variable("LOCAL_WORLD_SIZE"))) {
    if (rank_ % members_ == 0) connect_all(job.ranks);
  }

  int rank() const override { return rank_; }
  bool ends_together() const override { return true; }
  float expected(const bench::Call& c, size_t i) const override { return c.out[i]; }

  void call(const bench::Call& c) override {
    const size_t bytes = c.count * sizeof(float);
    std::vector<Stream> streams;
    for (const Peer& peer : peers_)
      streams.push_back({peer.fd, reinterpret_cast<const char*>(c.out), volume(c.op, bytes, rank_, peer.rank),
                         reinterpret_cast<char*>(c.out), volume(c.op, bytes, peer.rank, rank_)});
    run(streams);
  }

 private:
  struct Peer {
    int rank;
    int fd;
  };

  // For a sum: one share to each host, and the result of this host's share. For a copy: the root's parts,
  // each of which is passed on.
  size_t volume(bench::Op op, size_t bytes, int from, int to) const {
    const size_t hosts = peers_.size() + 1;
    if (op == bench::Op::all_reduce) return 2 * bytes / hosts;
    if (to == bench::root) return 0;
    return from == bench::root || hosts > 2 ? bytes / (hosts - 1) : 0;
  }

  static void run(std::vector<Stream>& streams) {
    std::vector<pollfd> waits;
    for (;;) {
      waits.clear();
      for (Stream& stream : streams) {
        stream.move();
        if (!stream.done()) waits.push_back({stream.fd, stream.events(), 0});
      }
      if (waits.empty()) return;
      checked(::poll(waits.data(), waits.size(), 60'000), "poll");
    }
  }

  std::string place_of(int rank) const { return variable("BENCH_STORE") + "/" + std::to_string(rank); }

  // Each host listens, connects to the hosts before it, and sends its number.
  void connect_all(int ranks) {
    const std::string own = variable("BENCH_ADDRESS");
    sockaddr_in here = address_of(own, 0);
    socklen_t length = sizeof here;
    const int listener = static_cast<int>(checked(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
    checked(::bind(listener, reinterpret_cast<const sockaddr*>(&here), sizeof here), "bind");
    checked(::listen(listener, ranks), "listen");
    checked(::getsockname(listener, reinterpret_cast<sockaddr*>(&here), &length), "getsockname");
    std::ofstream(place_of(rank_) + ".new") << own << " " << ntohs(here.sin_port) << std::endl;
    std::filesystem::rename(place_of(rank_) + ".new", place_of(rank_));
    for (int peer = 0; peer < rank_; peer += members_) add(peer, connect_to(peer));
    for (int peer = rank_ + members_; peer < ranks; peer += members_) {
      const int fd = static_cast<int>(checked(::accept(listener, nullptr, nullptr), "accept"));
      int rank = 0;
      checked(::recv(fd, &rank, sizeof rank, MSG_WAITALL), "recv");
      add(rank, fd);
    }
    ::close(listener);
  }

  int connect_to(int peer) const {
    while (!std::filesystem::exists(place_of(peer)))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::string host;
    int port = 0;
    std::ifstream(place_of(peer)) >> host >> port;
    const sockaddr_in there = address_of(host, port);
    const int fd = static_cast<int>(checked(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
    checked(::connect(fd, reinterpret_cast<const sockaddr*>(&there), sizeof there), "connect");
    checked(::send(fd, &rank_, sizeof rank_, MSG_NOSIGNAL), "send");
    return fd;
  }

  void add(int peer, int fd) {
    const int on = 1;
    checked(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
    checked(::fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl");
    peers_.push_back({peer, fd});
  }

  const int rank_;
  const int members_;  // ranks per host
  std::vector<Peer> peers_;
};

void body(const bench::Job& job) {
  TcpEngine engine(job);
  bench::measure(engine, job);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
