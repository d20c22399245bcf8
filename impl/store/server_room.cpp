// Room for large requests. Each gets room for all of its frame at once, so that none holds a part and waits
// for the rest; the others wait unread in their sockets. Small frames need none.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/guard.hpp"
#include "store/server_core.hpp"

namespace dsc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWatchPeriod = std::chrono::milliseconds(250);
constexpr size_t kMostRoom = size_t{32}
                             << 20;  // of frames; what becomes of one takes up to four times as much
static_assert(kFrameHeadBytes + kMaxPayloadBytes + kFrameCodeBytes <= kMostRoom);

}  // namespace

void ServerCore::ask_for_room(std::shared_ptr<ServerConnection> connection) {
  in_line_.push_back(std::move(connection));
  let_in();
  watch_room();
}

void ServerCore::let_in() noexcept {
  while (!in_line_.empty() && room_taken_ + in_line_.front()->frame_bytes() <= kMostRoom) {
    const auto connection = std::move(in_line_.front());
    in_line_.pop_front();
    connection->let_in();
  }
}

void ServerCore::leave_room(size_t bytes) noexcept {
  room_taken_ -= bytes;
  incoming_bytes_ = room_taken_;
  let_in();
}

// A member that stops in the middle of a frame must not keep others out.
void ServerCore::watch_room() {
  if (watching_room_ || in_line_.empty()) return;
  watching_room_ = true;
  room_watch_.expires_after(kWatchPeriod);
  room_watch_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    watching_room_ = false;
    const auto oldest = Clock::now() - std::chrono::milliseconds(options_.frame_ms);
    std::vector<std::shared_ptr<ServerConnection>> slow;
    std::ranges::copy_if(members_, std::back_inserter(slow),
                         [&](const auto& member) { return member->reads_since_before(oldest); });
    for (const auto& member : slow) {
      if (in_line_.empty()) break;
      refuse("a member that stopped in the middle of a request");
      member->reset_connection();
    }
    watch_room();
  });
}

void ServerConnection::let_in() noexcept {
  if (!socket_.is_open()) return;
  room_ = frame_bytes_;
  let_in_at_ = Clock::now();
  core_.room_taken_ += room_;
  core_.incoming_bytes_ = core_.room_taken_;
  capture([this] { read_rest(); }, [this](dsc_result_t, const char*) { close(); });
}

void ServerConnection::leave_room() noexcept {
  if (room_ > 0) core_.leave_room(std::exchange(room_, 0));
}

}  // namespace dsc
