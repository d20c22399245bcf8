#include "pipeline_run/device_order.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/wait_ignoring_failure.hpp"

namespace dsc {

void DeviceOrder::check(void* stream) const {
  if (space_->is_captured(stream))
    fail(DSC_ERR_UNSUPPORTED,
         "stream is being captured in a graph, expected another stream: each run also communicates on the "
         "host, which a graph does not repeat");
}

void DeviceOrder::begin(void* stream, int32_t buffers) {
  stream_ = stream;
  sending_.clear();
  sending_.resize(static_cast<size_t>(buffers));
  space_->follow(stream_, ended_);
}

void DeviceOrder::send(Comm& channel, Call call, int32_t buffer) {
  call.stream = stream_;
  sending_[static_cast<size_t>(buffer)].push_back(channel.start(call));
}

void DeviceOrder::receive(Comm& channel, Call call, int32_t buffer) {
  reuse(buffer);
  call.stream = stream_;
  channel.start(call)->wait_on(stream_, Deadline::never());
}

void DeviceOrder::reuse(int32_t buffer) {
  if (buffer < 0) return;
  for (const auto& work : std::exchange(sending_[static_cast<size_t>(buffer)], {}))
    work->wait_on(stream_, Deadline::never());
}

void DeviceOrder::end() {
  for (size_t buffer = 0; buffer < sending_.size(); ++buffer) reuse(static_cast<int32_t>(buffer));
  ended_ = space_->mark(stream_);
}

void DeviceOrder::give_up() noexcept {
  call_out([&] { ended_ = space_->mark(stream_); });
}

bool DeviceOrder::wait_idle(Deadline deadline) noexcept {
  bool idle = true;
  for (const auto& works : sending_)
    for (const auto& work : works) idle = dsc::wait_ignoring_failure(*work, deadline) && idle;
  return call_out([&] { idle = space_->wait_for(ended_, deadline) && idle; }) && idle;
}

}  // namespace dsc
