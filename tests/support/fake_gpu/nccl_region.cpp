#include "nccl_region.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace fake_gpu {
namespace {

constexpr int kLookAgainMs = 1;
// sleeps are short, because a context that is gone does not wake other ranks
constexpr long kLongestSleepNs = 10'000'000;

void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

sockaddr_un address_of(const std::string& name, socklen_t& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = "fake_nccl_" + name;
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

void nap() {
  const timespec time{0, kLookAgainMs * 1'000'000L};
  ::nanosleep(&time, nullptr);
}

bool readable(int descriptor) {
  pollfd poll{descriptor, POLLIN, 0};
  return ::poll(&poll, 1, kLookAgainMs) > 0;
}

struct Message {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  char byte = 'm';
  iovec part{&byte, 1};
  msghdr header{};
  Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

void send_descriptor(int socket, int descriptor) {
  Message message;
  cmsghdr* const part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  ::sendmsg(socket, &message.header, MSG_NOSIGNAL);
}

int receive_descriptor(int socket) {
  Message message;
  if (::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) <= 0) return -1;
  const cmsghdr* const part = CMSG_FIRSTHDR(&message.header);
  int descriptor = -1;
  if (part && part->cmsg_type == SCM_RIGHTS) std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
  return descriptor;
}

// The first process becomes the host, which gives the memory to the others.
struct Table {
  int listener = -1;
  int memory = -1;
};

bool try_to_host(const std::string& name, size_t bytes, Table& table) {
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  table.listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (table.listener < 0) give_up("fake NCCL: socket");
  if (::bind(table.listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(table.listener, SOMAXCONN) != 0) {
    ::close(table.listener);
    table.listener = -1;
    return false;
  }
  table.memory = static_cast<int>(::memfd_create("fake_nccl", MFD_CLOEXEC));
  if (table.memory < 0 || ::ftruncate(table.memory, static_cast<off_t>(bytes)) != 0)
    give_up("fake NCCL: memfd");
  return true;
}

bool try_to_join(const std::string& name, const std::function<bool()>& stopped, Table& table) {
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket < 0) give_up("fake NCCL: socket");
  const bool connected = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0;
  while (connected && !stopped() && !readable(socket)) {
  }
  table.memory = connected && !stopped() ? receive_descriptor(socket) : -1;
  ::close(socket);
  return table.memory >= 0;
}

bool all_present(const Region& region) {
  for (int rank = 0; rank < region.ranks(); ++rank)
    if (!region.seat(rank).present.load()) return false;
  return true;
}

void wait_for_all(const Region& region, const Table& table, int memory,
                  const std::function<bool()>& stopped) {
  while (!stopped()) {
    const uint32_t heard = region.heard();
    if (all_present(region)) return;
    if (table.listener < 0) {
      region.sleep_unless_rung(heard);
    } else if (readable(table.listener)) {
      const int guest = ::accept4(table.listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (guest >= 0) send_descriptor(guest, memory);
      if (guest >= 0) ::close(guest);
    }
  }
}

}  // namespace

Region::Region(int descriptor, int ranks, int rank, bool with_rings)
    : memory_(::mmap(nullptr, bytes(ranks, with_rings), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)),
      ranks_(ranks),
      rank_(rank),
      with_rings_(with_rings) {
  if (memory_ == MAP_FAILED) give_up("fake NCCL: mmap");
  ::close(descriptor);
}

Region::~Region() { ::munmap(memory_, bytes(ranks_, with_rings_)); }

size_t Region::bytes(int ranks, bool with_rings) {
  const auto count = static_cast<size_t>(ranks);
  return count * sizeof(Seat) + (with_rings ? count * count * sizeof(Ring) : 0);
}

Seat& Region::seat(int rank) const { return static_cast<Seat*>(memory_)[rank]; }

Ring& Region::ring(int from, int to) const {
  return reinterpret_cast<Ring*>(&seat(ranks_))[from * ranks_ + to];
}

void Region::ring_bell(int rank) const {
  Seat& there = seat(rank);
  there.bell.fetch_add(1);
  if (there.sleeping.load() > 0) ::syscall(SYS_futex, &there.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Region::lose_what_is_under_way() const {
  for (int peer = 0; with_rings_ && peer < ranks_; ++peer) ring(rank_, peer).lost.store(1);
}

void Region::sleep_unless_rung(uint32_t heard) const {
  Seat& own = seat(rank_);
  const timespec longest{0, kLongestSleepNs};
  own.sleeping.fetch_add(1);
  if (own.bell.load() == heard) ::syscall(SYS_futex, &own.bell, FUTEX_WAIT, heard, &longest, nullptr, 0);
  own.sleeping.fetch_sub(1);
}

bool Region::barrier(const std::function<bool()>& stopped) const {
  if (stopped()) return false;
  const uint32_t step = seat(rank_).steps.fetch_add(1) + 1;
  for (int rank = 0; rank < ranks_; ++rank) ring_bell(rank);
  for (int rank = 0; rank < ranks_;) {
    const uint32_t heard_before = heard();
    if (seat(rank).steps.load() >= step)
      ++rank;
    else if (stopped())
      return false;
    else
      sleep_unless_rung(heard_before);
  }
  return true;
}

std::shared_ptr<Region> meet(const std::string& name, int ranks, int rank, bool with_rings,
                             const Arrival& arrival, const std::function<bool()>& stopped) {
  Table table;
  if (stopped()) return nullptr;
  while (!try_to_host(name, Region::bytes(ranks, with_rings), table) && !try_to_join(name, stopped, table)) {
    if (stopped()) return nullptr;
    nap();
  }
  const int keep = table.listener < 0 ? -1 : ::fcntl(table.memory, F_DUPFD_CLOEXEC, 0);
  const auto region = std::make_shared<Region>(table.memory, ranks, rank, with_rings);
  region->seat(rank).arrival = arrival;
  region->seat(rank).present.store(1);
  for (int other = 0; other < ranks; ++other) region->ring_bell(other);
  wait_for_all(*region, table, keep, stopped);
  if (keep >= 0) ::close(keep);
  if (table.listener >= 0) ::close(table.listener);
  return stopped() ? nullptr : region;
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

std::string derived_name(const std::string& name) {
  char text[40];
  std::snprintf(text, sizeof text, "%016lx%016lx", hash_of(name), hash_of("again " + name));
  return text;
}

}  // namespace fake_gpu
