#include "transport/channel.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fork_close.hpp"
#include "store/tcp_options.hpp"

namespace dsc {
namespace {

// Credits are returned in batches, so that few messages are needed for them.
constexpr uint64_t kBatch = TransportChannel::kSlots / 2;

constexpr int64_t kLookMs = 250;
constexpr uint32_t kSilentMs = 3000;
constexpr int kUnanswered = 2;  // after this many unanswered probes a host counts as cut off

}  // namespace

TransportChannel::TransportChannel(std::shared_ptr<Transport> transport, Poller& poller)
    : transport_(std::move(transport)),
      poller_(poller),
      ring_(std::make_unique_for_overwrite<std::byte[]>(kSlots * kSlotBytes)) {
  const dsc_transport_listener listener{[](void* self, int32_t event, int32_t detail) {
                                          static_cast<TransportChannel*>(self)->on_event(event, detail);
                                        },
                                        this};
  char address[DSC_TRANSPORT_ADDRESS_BYTES], why[256] = "";
  size_t bytes = 0;
  const int result = transport_->table().open_pair(transport_->device(), &listener, &pair_, address, &bytes,
                                                   why, sizeof why);
  if (result != DSC_OK) fail(result, "%s cannot listen: %s", transport_->table().library, why);
  address_.assign(address, bytes);
  in_ring_ = open_region(kRing, ring_.get(), kSlots * kSlotBytes);
  in_credits_ = open_region(kCredit, ring_.get(), 0);
  in_offers_ = open_region(kOffer, ring_.get(), 0);
  in_abort_ = open_region(kAbort, &peers_, sizeof peers_);
}

TransportChannel::~TransportChannel() { transport_->table().free_pair(pair_); }

void TransportChannel::connect(const std::string& peer_address) {
  char why[256] = "";
  const int result =
      transport_->table().connect_pair(pair_, peer_address.data(), peer_address.size(), why, sizeof why);
  if (result != DSC_OK) fail(result, "%s cannot connect: %s", transport_->table().library, why);
}

// Returns whether the waiting thread needs this event. Other events are not reported, because the transport
// module's thread and the waiting thread often share a processor, and each notification may then cost two
// context switches.
bool TransportChannel::needs_notification(int32_t event, int32_t detail) noexcept {
  if (event == DSC_TRANSPORT_SENT) return ++sent_ >= needed_;
  if (event != DSC_TRANSPORT_ARRIVED || detail != kOffered || puts_before_notify_ == 0) return true;
  --puts_before_notify_;
  return false;
}

// Runs inside the transport module while the connection is locked. Therefore it only records the event and
// wakes the poller.
void TransportChannel::on_event(int32_t event, int32_t fd) noexcept {
  if (event == DSC_TRANSPORT_OPENED) {
    set_data_options(fd);
    close_in_child(fd);
    MutexLock lock(mutex_);
    fd_ = fd;
    state_ = State::kOpen;
  }
  if (event == DSC_TRANSPORT_CLOSING) {
    keep_in_child(fd);
    MutexLock lock(mutex_);
    fd_ = -1;
    state_ = State::kEnded;
  }
  if (needs_notification(event, fd)) poller_.notify();
}

std::string TransportChannel::why_ended() const {
  char why[256] = "";
  transport_->table().pair_error(pair_, why, sizeof why);
  return why;
}

void TransportChannel::send_abort(const Failure& cause) {
  if (!open() || abort_was_sent_.exchange(true)) return;
  mine_ = cause;
  send(kAbort, &mine_, sizeof mine_, 0);
}

const Failure* TransportChannel::abort_cause() {
  return transport_->table().take_arrived(in_abort_) > 0 ? &peers_ : nullptr;
}

void TransportChannel::take_over_polling(int32_t index) {
  {
    MutexLock lock(mutex_);
    if (fd_ >= 0 && !polled_) poller_.add(fd_, index);
    polled_ = true;
  }
  transport_->table().poll_pair(pair_, 0);
}

void TransportChannel::hand_back_polling() noexcept { transport_->table().poll_pair(pair_, 1); }

bool TransportChannel::move() { return transport_->table().move_pair(pair_) != 0; }

// Counts retransmissions of data that was not acknowledged, and probes of a peer whose receive window is
// closed. TCP_USER_TIMEOUT is not suitable, because it also counts the time in which the peer answers that
// its window is closed.
bool TransportChannel::is_cut_off() noexcept {
  MutexLock lock(mutex_);
  const int64_t now = now_ns();
  if (fd_ < 0 || now < next_look_ns_) return false;
  next_look_ns_ = now + kLookMs * kNsPerMs;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  return info.tcpi_last_ack_recv > kSilentMs && info.tcpi_retransmits + info.tcpi_probes >= kUnanswered;
}

bool TransportChannel::all_delivered() noexcept {
  MutexLock lock(mutex_);
  int left = 0;
  return fd_ < 0 || (all_sent() && (::ioctl(fd_, SIOCOUTQ, &left) != 0 || left == 0));
}

// Holds the lock, so that the connection is not closed at the same time. After a close, the descriptor could
// already belong to another file.
void TransportChannel::shut_down() noexcept {
  MutexLock lock(mutex_);
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void TransportChannel::close() { transport_->table().close_pair(pair_); }

dsc_transport_region* TransportChannel::open_region(Slot slot, void* memory, size_t bytes) {
  char why[256] = "";
  dsc_transport_region* region = nullptr;
  const int result = transport_->table().open_region(pair_, slot, memory, bytes, &region, why, sizeof why);
  if (result != DSC_OK)
    fail(result, "%s cannot receive into %zu bytes: %s", transport_->table().library, bytes, why);
  return region;
}

// Ignores errors, because a thread that waits for data of the connection notices that the connection has
// ended.
void TransportChannel::send(Slot slot, const void* memory, size_t bytes, size_t offset) {
  char why[256];
  MutexLock lock(send_mutex_);
  ++sending_;
  if (bytes > 0) needed_ = sending_;
  transport_->table().send(pair_, slot, memory, bytes, offset, why, sizeof why);
}

bool TransportChannel::may_post() {
  credits_ += kBatch * transport_->table().take_arrived(in_credits_);
  return credits_ > 0;
}

void TransportChannel::post(const void* memory, size_t bytes) {
  --credits_;
  send(kRing, memory, bytes, posted_++ % kSlots * kSlotBytes);
}

uint64_t TransportChannel::waiting() {
  arrived_ += transport_->table().take_arrived(in_ring_);
  return arrived_ - released_;
}

const std::byte* TransportChannel::arrived() {
  const bool here = arrived_ != released_ || waiting() > 0;
  return here ? &ring_[released_ % kSlots * kSlotBytes] : nullptr;
}

void TransportChannel::release() {
  if (++released_ % kBatch == 0) send(kCredit, ring_.get(), 0, 0);
}

void TransportChannel::offer(void* memory, size_t bytes, uint64_t puts, Tell tell) {
  puts_arrived_ = 0;
  puts_before_notify_ = tell == Tell::kLast ? puts - 1 : 0;
  in_offered_ = open_region(kOffered, memory, bytes);
  send(kOffer, ring_.get(), 0, 0);
}

uint64_t TransportChannel::puts_arrived() {
  if (in_offered_) puts_arrived_ += transport_->table().take_arrived(in_offered_);
  return puts_arrived_;
}

void TransportChannel::withdraw() {
  if (in_offered_) transport_->table().close_region(std::exchange(in_offered_, nullptr));
}

bool TransportChannel::offered() {
  offers_ += transport_->table().take_arrived(in_offers_);
  return offers_ > 0;
}

void TransportChannel::put(const void* memory, size_t bytes, size_t offset, bool last) {
  if (last) --offers_;
  send(kOffered, memory, bytes, offset);
}

}  // namespace dsc
