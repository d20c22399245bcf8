// Runs a schedule: calls the user's passes and transfers the messages between stages, in the order of the
// schedule.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "pipeline/plan.hpp"
#include "pipeline_run/actions.hpp"
#include "pipeline_run/device_order.hpp"
#include "pipeline_run/needs.hpp"
#include "pipeline_run/plan_handshake.hpp"
#include "pipeline_run/stage_layout.hpp"

namespace dsc {

// The arguments of a run.
struct PipeRequest {
  std::unique_ptr<PipeActions> actions;
  PipeShapes shapes;
  bool wants_loss = false;
};

// Runs one schedule any number of times. Channels and memory are kept for the next run.
class PipeRunner {
 public:
  PipeRunner(Schedule& schedule, const PipelinePlan& plan) : schedule_(schedule), plan_(plan) {}
  ~PipeRunner();
  PipeRunner(const PipeRunner&) = delete;
  PipeRunner& operator=(const PipeRunner&) = delete;

  // Collective. Returns the mean loss over all forward passes that computed one; this takes an all-reduce at
  // the end. Returns 0 if none computed a loss, or if no rank wants the mean. If `read` throws on one rank,
  // all ranks throw that error.
  double run(Comm& comm, const std::function<PipeRequest()>& read);
  // Returns how much memory a caller has to pass for tensors of these shapes.
  size_t bytes_for(const PipeShapes& shapes);

 private:
  // Sum and number of the losses of one run.
  struct Losses {
    double sum = 0;
    double count = 0;
  };

  const PipeNeeds& needs();
  StageLayout lay_out(Comm& comm, const PipeRequest& request);
  PipeSignature signature_of(Comm& comm, const std::function<PipeRequest()>& read, PipeRequest& request,
                             StageLayout& layout);
  void provide(Comm& comm, size_t bytes, const PipeShapes& shapes);
  double carry_out(Comm& comm, PipeActions& actions, bool wants_loss);
  void exchange(const Instruction& instruction);
  void exchange(const Instruction& instruction, const PipeArea& area);
  void exchange_shapes(const Instruction& instruction);
  std::string call_action(PipeActions& actions, const Instruction& instruction, const PipeBuffers& buffers);
  void call_back(Comm& comm, PipeActions& actions, const Instruction& instruction, Losses& losses);
  void expect_alive() const;
  void end_everywhere(Comm& comm, dsc_result_t code, const char* text) noexcept;
  void release() noexcept;
  void keep_memory();

  Schedule& schedule_;
  const PipelinePlan& plan_;
  std::optional<PipeNeeds> needs_;
  // Identifies a custom order, whose name says nothing about its content.
  std::optional<uint64_t> fingerprint_;
  StageLayout layout_;
  // Serial number of the communicator for which channels and memory were made.
  uint64_t comm_serial_ = 0;
  std::shared_ptr<Comm> activations_;
  std::shared_ptr<Comm> gradients_;
  std::unique_ptr<DeviceOrder> device_;  // null for host memory
  bool memory_is_given_ = false;         // the caller passes memory to each run
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  // Memory that a later run has replaced; kept because the caller may still use it.
  std::vector<std::byte*> replaced_;
  bool is_variable_ = false;  // whether shapes are variable in this run
  bool checks_unwritten_ = false;
  std::vector<uint64_t> shapes_sent_;  // number of shape headers in this run, by stage
  std::vector<uint64_t> shapes_received_;
  std::vector<PipeArea> areas_;
};

}  // namespace dsc
