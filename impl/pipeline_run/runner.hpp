// Carries out a schedule: the caller's actions, and the messages between stages, in the order of the
// schedule.
#pragma once

#include <memory>
#include <optional>

#include "comm/comm.hpp"
#include "pipeline_run/actions.hpp"
#include "pipeline_run/needs.hpp"
#include "pipeline_run/stage_layout.hpp"

namespace dsc {

// Keeps what one run leaves for the next one of the same schedule: channels and memory.
class PipeRunner {
 public:
  explicit PipeRunner(Schedule& schedule) : schedule_(schedule) {}
  ~PipeRunner();
  PipeRunner(const PipeRunner&) = delete;
  PipeRunner& operator=(const PipeRunner&) = delete;

  // Collective. The mean loss of all forward passes that made one; 0 if none did.
  double run(Comm& comm, PipeActions& actions, const PipeShapes& shapes);

 private:
  struct Losses {
    double sum = 0;
    double count = 0;
  };

  void prepare(Comm& comm, const PipeActions& actions, const PipeShapes& shapes);
  StageLayout lay_out(const Comm& comm, const PipeActions& actions, const PipeShapes& shapes);
  void provide(Comm& comm, size_t bytes);
  void exchange(const Instruction& instruction);
  void call_back(Comm& comm, PipeActions& actions, const Instruction& instruction, Losses& losses);
  void end_everywhere(Comm& comm) noexcept;
  void release() noexcept;

  Schedule& schedule_;
  std::optional<PipeNeeds> needs_;
  StageLayout layout_;
  uint64_t comm_serial_ = 0;  // of the communicator that the rest was made from
  std::shared_ptr<Comm> activations_;
  std::shared_ptr<Comm> gradients_;
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;
};

}  // namespace dsc
