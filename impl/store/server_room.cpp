// Admission of large requests, in order of arrival. Each request is admitted with its full size. Otherwise
// several requests could each be admitted in part and wait for each other. Small requests need no admission.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/guard.hpp"
#include "store/bytes.hpp"
#include "store/server_core.hpp"

namespace dsc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRoomWatchPeriod = std::chrono::milliseconds(250);
// Limit on the total size of admitted requests. Processing a request takes up to four times its size in
// memory.
constexpr size_t kMostRoom = size_t{16} << 20;
static_assert(kMaxPayloadBytes <= kMostRoom);

}  // namespace

void ServerCore::let_in() noexcept {
  while (!in_line_.empty() && room_taken_ + in_line_.front()->room_wanted() <= kMostRoom) {
    const auto connection = std::move(in_line_.front());
    in_line_.pop_front();
    connection->give_room();
  }
}

void ServerCore::leave_room(size_t bytes) noexcept {
  room_taken_ -= bytes;
  incoming_bytes_ = room_taken_;
  let_in();
}

// Closes members that stop in the middle of a request, because other requests wait for admission.
void ServerCore::watch_room() {
  if (watching_room_ || in_line_.empty()) return;
  watching_room_ = true;
  room_watch_.expires_after(kRoomWatchPeriod);
  room_watch_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    watching_room_ = false;
    const auto oldest = Clock::now() - std::chrono::milliseconds(options_.frame_ms);
    std::vector<std::shared_ptr<ServerConnection>> slow;
    std::ranges::copy_if(members_, std::back_inserter(slow),
                         [&](const auto& member) { return member->keeps_room_since(oldest); });
    for (const auto& member : slow) {
      if (in_line_.empty()) break;
      refuse("a client stopped in the middle of a request");
      member->reset_connection();
    }
    watch_room();
  });
}

void ServerConnection::ask_for_room() {
  ByteReader reader(payload_of(in_));
  const size_t bytes = reader.number<uint32_t>();
  if (!reader.at_end() || bytes <= kMostUnaskedBytes || bytes > kMaxPayloadBytes || room_ > 0) return close();
  room_wanted_ = bytes;
  core_.in_line_.push_back(shared_from_this());
  core_.let_in();
  core_.watch_room();
}

void ServerConnection::give_room() noexcept {
  if (!socket_.is_open() || room_wanted_ == 0) return;
  room_ = std::exchange(room_wanted_, 0);
  let_in_at_ = Clock::now();
  core_.room_taken_ += room_;
  core_.incoming_bytes_ = core_.room_taken_;
  tell_of_room();
}

// Tells the client whether its request is admitted, as soon as the current write has finished.
void ServerConnection::tell_of_room() noexcept {
  owes_room_ = true;
  capture([this] { core_.ready_.push_back(shared_from_this()); },
          [this](dsc_result_t, const char*) { close(); });
  core_.pump();
}

bool ServerConnection::keeps_room_since(Clock::time_point time) const noexcept {
  asio::error_code ignored;
  return room_ > 0 && !request_ && !owes_room_ && let_in_at_ < time && socket_.available(ignored) == 0;
}

void ServerConnection::leave_room() noexcept {
  if (room_ > 0) core_.leave_room(std::exchange(room_, 0));
}

}  // namespace dsc
