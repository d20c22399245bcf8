// What a schedule's handle stands for.
#pragma once

#include <atomic>
#include <memory>

#include "pipeline_run/runner.hpp"

namespace dsc {

class PipeSchedule {
 public:
  explicit PipeSchedule(std::unique_ptr<Schedule> instructions) : instructions_(std::move(instructions)) {}

  Schedule& instructions() noexcept { return *instructions_; }

  PipeRunner& runner() noexcept { return runner_; }

  std::atomic<bool> in_call{false};  // one thread at a time moves it

 private:
  const std::unique_ptr<Schedule> instructions_;
  PipeRunner runner_{*instructions_};
};

}  // namespace dsc
