#include "gloo/watched_pair.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <gloo/common/error.h>

#include "gloo/guard.hpp"

namespace dsc::gloo_module {

// Messages of this size or more are sent by Gloo's thread, so that the caller can do other work at the same
// time. With smaller messages the two threads would mostly wait for each other's lock.
constexpr size_t kLargeBytes = size_t{64} * 1024;

Region::Region(WatchedPair& pair, int32_t slot, void* memory, size_t bytes)
    : Buffer(&pair, slot, memory, bytes), owner_(pair) {}

uint32_t Region::take_arrived() {
  const std::lock_guard<std::mutex> lock(m_);
  return static_cast<uint32_t>(std::exchange(recvCompletions_, 0));
}

WatchedPair::WatchedPair(tcp::Context* context, tcp::Device* device, const dsc_transport_listener& listener)
    : Pair(context, device, 0, std::chrono::milliseconds(0)), listener_(listener) {
  const std::lock_guard<std::mutex> lock(m_);
  if (fd_ >= 0) ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

// Waits for Gloo's thread, which may still be inside handleEvents() if it ended the connection.
WatchedPair::~WatchedPair() {
  end();
  while (handling_) ::sched_yield();
}

// Copies only the bytes of the address. Gloo's version also copies uninitialized stack memory, which other
// hosts must not see.
std::vector<char> WatchedPair::address_bytes() const {
  const sockaddr_storage& own = self_.getSockaddr();
  sockaddr_storage clean{};
  std::memcpy(&clean, &own, own.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return tcp::Address(clean, self_.getSeq()).bytes();
}

void WatchedPair::connect_to(const std::vector<char>& bytes) {
  const tcp::Address peer(bytes);
  const int own_family = self_.getSockaddr().ss_family, family = peer.getSockaddr().ss_family;
  const auto name = [](int of) {
    return of == AF_INET ? "IPv4" : of == AF_INET6 ? "IPv6" : "another family";
  };
  if (family != own_family)
    throw std::invalid_argument(std::string("the address of this host is ") + name(own_family) + " (" +
                                self_.str() + "), and the address of the other host is " + name(family) +
                                " (" + peer.str() +
                                "); expected the same address family on all hosts, which a numeric "
                                "MASTER_ADDR selects");
  connect(bytes);
}

// Does not use Gloo's close(), because that discards data that the socket has not sent yet.
void WatchedPair::end() {
  const std::lock_guard<std::mutex> lock(m_);
  if (state_ != CLOSED) changeState(CLOSED);
}

std::string WatchedPair::reason() {
  const std::lock_guard<std::mutex> lock(m_);
  char text[256] = "";
  if (ex_) guard(text, sizeof text, [this] { std::rethrow_exception(ex_); });
  return text;
}

Region* WatchedPair::add_region(int32_t slot, void* memory, size_t bytes) {
  auto region = std::make_unique<Region>(*this, slot, memory, bytes);
  Region* const added = region.get();
  registerBuffer(added);
  {
    const std::lock_guard<std::mutex> lock(m_);
    regions_.push_back(std::move(region));
  }
  empty_outbox();
  return added;
}

void WatchedPair::remove_region(Region* region) {
  {
    // A region's destructor takes the lock, so `removed` is destroyed after the lock is released.
    std::unique_ptr<Region> removed;
    const std::lock_guard<std::mutex> lock(m_);
    removed = take_region(region);
  }
  empty_outbox();
}

std::unique_ptr<Region> WatchedPair::take_region(Region* region) {
  if (rx_.buf == region && state_ != CLOSED) changeState(CLOSED);
  const auto found = std::find_if(regions_.begin(), regions_.end(),
                                  [region](const auto& kept) { return kept.get() == region; });
  if (found == regions_.end()) return nullptr;
  buffers_.erase(region->slot());
  std::unique_ptr<Region> taken = std::move(*found);
  regions_.erase(found);
  return taken;
}

void WatchedPair::post(int32_t slot, const void* memory, size_t bytes, size_t offset) {
  if (ended_) throw ::gloo::IoException("the connection has ended");
  {
    const std::lock_guard<std::mutex> lock(outbox_mutex_);
    outbox_.push_back({slot, memory, bytes, offset});
  }
  empty_outbox();
}

// A thread that finds the pair locked returns, and leaves its message to the thread that holds the lock.
// Therefore the holder checks the outbox again after unlocking.
void WatchedPair::empty_outbox() {
  do {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock || state_ != CONNECTED) return;
    while (const auto message = take_message()) send_now(*message);
  } while (has_messages());
}

std::optional<WatchedPair::Message> WatchedPair::take_message() {
  const std::lock_guard<std::mutex> lock(outbox_mutex_);
  if (outbox_.empty()) return std::nullopt;
  const Message message = outbox_.front();
  outbox_.pop_front();
  return message;
}

bool WatchedPair::has_messages() {
  const std::lock_guard<std::mutex> lock(outbox_mutex_);
  return !outbox_.empty();
}

// Queues the message with Gloo's own framing. Sends it immediately, except if Gloo's thread is to send it.
void WatchedPair::send_now(const Message& message) {
  if (idle_.empty()) idle_.push_back(std::make_unique<Source>(this));
  Source* const source = idle_.back().get();
  source->point_at(message.memory, message.bytes);
  busy_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  tcp::Op op;
  op.preamble.nbytes = sizeof op.preamble + message.bytes;
  op.preamble.opcode = tcp::Op::SEND_BUFFER;
  op.preamble.slot = static_cast<size_t>(message.slot);
  op.preamble.length = message.bytes;
  op.preamble.roffset = message.offset;
  op.buf = source;
  const bool is_first = tx_.empty();
  tx_.push_back(std::move(op));
  if (is_first && (!by_device_ || message.bytes < kLargeBytes)) send_waiting();
  watch();
}

void WatchedPair::send_waiting() {
  while (!tx_.empty() && write(tx_.front())) tx_.pop_front();
}

void WatchedPair::watch() {
  if (state_ != CONNECTED) return;
  int wanted = 0;
  if (by_device_) wanted = tx_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  if (wanted != watched_) device_->registerDescriptor(fd_, wanted, this);
  watched_ = wanted;
}

void WatchedPair::poll(bool by_device) {
  {
    const std::lock_guard<std::mutex> lock(m_);
    by_device_ = by_device;
    watch();
  }
  empty_outbox();
}

// Returns true if the pair is locked, because the caller must try again: edge-triggered events are reported
// only once.
bool WatchedPair::move() {
  bool again = false;
  {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock) {
      ::sched_yield();
      return true;
    }
    if (state_ != CONNECTED) return false;
    moving_ = true;
    char why[256];
    const auto read_and_write = [&] {
      send_waiting();
      again = read();
    };
    if (guard(why, sizeof why, read_and_write) != DSC_OK && state_ != CLOSED) signalException(why);
    moving_ = false;
  }
  empty_outbox();
  return again;
}

// Gloo's thread is notified of the end of the connection even if it watches no other event.
void WatchedPair::handleReadWrite(int events) {
  if (events & EPOLLOUT) send_waiting();
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
    while (read()) continue;
  watch();
}

// If the pair is locked, Gloo's version of this function returns and is called again immediately. The yield
// here lets the thread that holds the lock run. At the end, clearing handling_ is the last access of Gloo's
// thread to the pair. After that the destructor may continue.
void WatchedPair::handleEvents(int events) {
  if (!begin_handling()) {
    ::sched_yield();
    return;
  }
  const auto handle = [&] {
    Pair::handleEvents(events);
    empty_outbox();
  };
  char why[256];
  if (guard(why, sizeof why, handle) != DSC_OK) give_up(why);
  handling_ = false;
}

bool WatchedPair::begin_handling() {
  const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
  if (lock) handling_ = true;
  return lock.owns_lock();
}

// Ends the connection after an error. Runs on Gloo's thread, which must not wait for the lock, because the
// thread that holds it may be waiting for Gloo's thread. If the lock is not free, the same event occurs
// again.
void WatchedPair::give_up(const char* why) {
  const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
  if (lock && state_ != CLOSED && !ex_) signalException(why);
}

// Checks the header of a message. Gloo itself would add offset and length without a check for overflow, and
// would loop endlessly if the slot does not exist.
void WatchedPair::check_preamble() const {
  const auto& preamble = rx_.preamble;
  const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const auto& region) {
    return static_cast<size_t>(region->slot()) == preamble.slot;
  });
  const bool fits = found != regions_.end() && preamble.length <= (*found)->bytes() &&
                    preamble.roffset <= (*found)->bytes() - preamble.length;
  if (!fits || preamble.opcode != tcp::Op::SEND_BUFFER ||
      preamble.nbytes != sizeof preamble + preamble.length)
    throw ::gloo::IoException("received bytes that are not a message of libdsc");
}

// Reads the header of a message. Returns false until it is complete. If the connection has ended, only shuts
// it down, so that Gloo's thread closes it. Another thread that closed it would block until Gloo's thread
// returns from its poll.
bool WatchedPair::read_preamble() {
  char* const bytes = reinterpret_cast<char*>(&rx_.preamble);
  while (rx_.nread < sizeof rx_.preamble) {
    const ssize_t got = ::read(fd_, bytes + rx_.nread, sizeof rx_.preamble - rx_.nread);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0 && moving_) ::shutdown(fd_, SHUT_RDWR);
    if (got <= 0) return !moving_;
    rx_.nread += static_cast<size_t>(got);
  }
  // Also checks a header that was already complete before this call. Its first check may have failed, and the
  // thread that had to end the connection may not have got the lock.
  if (rx_.buf == nullptr) check_preamble();
  return true;
}

bool WatchedPair::read() {
  if (!read_preamble()) return false;
  const auto slot = static_cast<int32_t>(rx_.preamble.slot);
  const bool whole = Pair::read();
  if (whole) tell(DSC_TRANSPORT_ARRIVED, slot);
  return whole;
}

bool WatchedPair::write(tcp::Op& op) {
  if (!Pair::write(op)) return false;
  idle_.push_back(std::move(busy_.front()));
  busy_.pop_front();
  tell(DSC_TRANSPORT_SENT);
  return true;
}

void WatchedPair::changeState(state next) noexcept {
  if (next == CONNECTED) watched_ = EPOLLIN;
  if (next == CONNECTED) tell(DSC_TRANSPORT_OPENED, fd_);
  if (next == CLOSED) ended_ = true;
  if (next == CLOSED) tell(DSC_TRANSPORT_CLOSING, state_ == CONNECTED ? fd_ : -1);
  Pair::changeState(next);
}

}  // namespace dsc::gloo_module
