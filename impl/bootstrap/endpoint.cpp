#include "bootstrap/endpoint.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "bootstrap/endpoint_wire.hpp"
#include "bootstrap/unix_socket.hpp"

namespace dsc {
namespace {

constexpr int kBacklog = 1024;
constexpr size_t kMostClients = 512;
constexpr int kEventsAtOnce = 64;

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

UniqueFd duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) fail_errno(errno, "duplicating descriptor %d", fd);
  return copy;
}

bool watch(int epoll_fd, int fd, void* tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = tag;
  return ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void reply(int client_fd, int32_t code, int item_fd) {
  const ReplyWire wire{kEndpointMagic, kEndpointVersion, code};
  // Errors are ignored, because a client that is gone needs no answer.
  send_with_descriptor(client_fd, &wire, sizeof wire, item_fd);
}

std::optional<ItemKey> decode(const RequestWire& wire, ssize_t bytes) {
  if (bytes != sizeof wire || wire.magic != kEndpointMagic || wire.wire_version != kEndpointVersion)
    return std::nullopt;
  ItemKey key;
  std::copy(std::begin(wire.nonce), std::end(wire.nonce), key.nonce.begin());
  key.rank = wire.rank;
  key.kind = wire.kind;
  key.id = wire.id;
  return key;
}

}  // namespace

Endpoint::Endpoint()
    : name_("dsc-item-" + hex(random_nonce())),
      listener_(listen_abstract(name_, kBacklog)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      spare_(open_spare()) {
  if (!listener_) fail(DSC_ERR_ADDR_IN_USE, "the random socket name %s is already in use", name_.c_str());
  if (!epoll_) fail_errno(errno, "epoll_create1");
  if (!watch(epoll_.get(), listener_.get(), nullptr)) fail_errno(errno, "epoll_ctl");
}

void Endpoint::serve() {
  const MutexLock lock(mutex_);
  epoll_event events[kEventsAtOnce];
  const int ready = ::epoll_wait(epoll_.get(), events, kEventsAtOnce, 0);
  bool somebody_waits = false;
  // Each client occurs at most once among the events, and is dropped only while its own event is handled. New
  // clients are accepted last. Therefore no event refers to a client that was dropped before.
  for (int i = 0; i < ready; ++i) {
    somebody_waits = somebody_waits || events[i].data.ptr == nullptr;
    for (auto client = clients_.begin(); client != clients_.end(); ++client) {
      if (&*client != events[i].data.ptr) continue;
      read_request(client);
      break;
    }
  }
  if (somebody_waits) accept_waiting();
}

// Accepts pending connections. Closes connections of other users without an answer.
void Endpoint::accept_waiting() {
  for (int i = 0; i < kEventsAtOnce; ++i) {
    int error = 0;
    UniqueFd fd = accept_connection(listener_.get(), error);
    if (fd) {
      if (peer_credentials(fd.get()).uid != ::geteuid()) continue;
      make_room();
      clients_.push_back({std::move(fd), std::nullopt});
      if (!watch(epoll_.get(), clients_.back().fd.get(), &clients_.back())) clients_.pop_back();
    } else if (error == EMFILE || error == ENFILE) {
      shed_one();
      return;
    } else if (error != EINTR && error != ECONNABORTED) {
      return;
    }
  }
}

// If there are too many clients, drops the oldest one that has sent no request, or otherwise the oldest one.
// A rank whose connection is dropped connects again.
void Endpoint::make_room() {
  if (clients_.size() < kMostClients) return;
  const auto unidentified = [](const Client& client) { return !client.wanted; };
  const auto victim = std::find_if(clients_.begin(), clients_.end(), unidentified);
  drop(victim != clients_.end() ? victim : clients_.begin());
}

// Accepts and closes one pending connection when the process has no free descriptor. Otherwise that
// connection would keep poll_fd() readable all the time. The client gets the reason as its answer, and
// connects again.
void Endpoint::shed_one() {
  spare_.reset();
  int error = 0;
  if (const UniqueFd fd = accept_connection(listener_.get(), error)) reply(fd.get(), DSC_ERR_SYSTEM, -1);
  spare_ = open_spare();
}

void Endpoint::read_request(Clients::iterator client) {
  RequestWire wire;
  const ssize_t got = receive_message(client->fd.get(), &wire, sizeof wire);
  if (got < 0 && errno == EAGAIN) return;
  const auto key = client->wanted ? std::nullopt : decode(wire, got);
  if (!key) return drop(client);  // the client is gone or sent an invalid request
  const auto item = items_.find(*key);
  if (item == items_.end() && has_left(*key)) {
    reply(client->fd.get(), DSC_ERR_PEER_LEFT, -1);
    return drop(client);
  }
  if (item == items_.end()) {
    client->wanted = key;
    return;
  }
  reply(client->fd.get(), DSC_OK, item->second.get());
  drop(client);
}

void Endpoint::drop(Clients::iterator client) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->fd.get(), nullptr);
  clients_.erase(client);
}

void Endpoint::publish(const ItemKey& key, int fd) {
  UniqueFd copy = duplicate(fd);
  const MutexLock lock(mutex_);
  // The item is inserted before any client gets an answer, because inserting throws if memory runs out.
  UniqueFd& item = items_[key];
  item = std::move(copy);
  for (auto client = clients_.begin(); client != clients_.end();) {
    const auto current = client++;
    if (current->wanted != key) continue;
    reply(current->fd.get(), DSC_OK, item.get());
    drop(current);
  }
}

void Endpoint::withdraw(const ItemKey& key) {
  const MutexLock lock(mutex_);
  items_.erase(key);
}

void Endpoint::leave_world(const Nonce& nonce, uint32_t rank) noexcept {
  const MutexLock lock(mutex_);
  const LeftRank left{nonce, rank};
  left_[left_count_++ % left_.size()] = left;
  std::erase_if(items_, [&](const auto& item) { return left.owned(item.first); });
  for (auto client = clients_.begin(); client != clients_.end();) {
    const auto current = client++;
    if (!current->wanted || !left.owned(*current->wanted)) continue;
    reply(current->fd.get(), DSC_ERR_PEER_LEFT, -1);
    drop(current);
  }
}

bool Endpoint::has_left(const ItemKey& key) const noexcept {
  const auto end = left_.begin() + static_cast<ptrdiff_t>(std::min(left_count_, left_.size()));
  return std::any_of(left_.begin(), end, [&](const LeftRank& left) { return left.owned(key); });
}

}  // namespace dsc
