// One rank of a pipeline whose numbers are known: part p of the model computes x * (p + 2) + p. Every
// callback checks the buffers that it gets, and that they have not changed since the forward pass.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "cmocka_c.h"
#include "ranks.h"
}

namespace pipe {

constexpr int kWidth = 5;       // elements of the f64 tensor that flows through the stages
constexpr int kLabelWidth = 3;  // elements of the second tensor, of type i32, which has no gradient

struct Layout {
  const char* name;
  int32_t micro_batches;
  int32_t chunks = 0;
  bool forward_only = false;
  int32_t messages = DSC_PIPE_MESSAGES_WHEN_NEEDED;
  int32_t read_as = 0;    // a dsc_pipe_format: the schedule is written in it and read again
  bool variable = false;  // shapes differ by part and micro-batch, and may have 0 rows
};

constexpr int kMostRows = 3;  // of the f64 tensor with variable shapes, which are [rows, kWidth]

// What goes wrong, and on which stage.
enum class Trouble {
  kNone,
  kReturns,
  kThrows,
  kReenters,
  kSleeps,
  kCancels,
  kDestroysSchedule,
  kDestroysComm
};

class Stage {
 public:
  Stage(rank_t* self, dsc_comm_t* comm, const Layout& layout) : self_(self), comm_(comm), layout_(layout) {}
  ~Stage() { dsc_pipe_schedule_destroy(schedule); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  int prepare();
  int read_again();
  dsc_result_t run(double* mean = nullptr);

  bool trains() const { return info.forward_only == 0; }
  bool alone() const { return info.placement == DSC_PIPE_PLACEMENT_APART; }
  double expected_mean() const;
  int check_counts(int runs) const;
  // Runs on another communicator from now on, as if nothing had run before.
  void move_to(dsc_comm_t* comm) {
    comm_ = comm;
    trouble = Trouble::kNone;
    problem.clear();
    calls_.clear();
    alive_.clear();
  }

  dsc_pipe_schedule_t* schedule = nullptr;
  dsc_pipe_schedule_options_t schedule_options{};
  dsc_pipe_schedule_info_t info{};
  dsc_pipe_callbacks_t callbacks{};
  dsc_pipe_run_options_t options{};
  dsc_tensor_t tensors[2]{};
  int64_t shape[2] = {1, kWidth};
  int64_t label_shape[1] = {kLabelWidth};
  Trouble trouble = Trouble::kNone;
  int trouble_rank = -1;
  int troubles = 0;  // how often trouble was made
  std::string problem;

 private:
  template <int (Stage::*method)(const dsc_pipe_call_t&)>
  static int32_t enter(void* context, const dsc_pipe_call_t* call) {
    return (static_cast<Stage*>(context)->*method)(*call);
  }
  int load(const dsc_pipe_call_t& call);
  int forward(const dsc_pipe_call_t& call);
  int backward(const dsc_pipe_call_t& call);
  int backward_weight(const dsc_pipe_call_t& call);
  int check_kept(const dsc_pipe_call_t& call);
  int close_step(const dsc_pipe_call_t& call);
  int reduce(const dsc_pipe_call_t& call);
  int wrong(const char* what, double came, double expected);
  int make_trouble();
  int check_shapes(const dsc_pipe_call_t& call);
  int expect_tensor(const dsc_tensor_t& tensor, const void* data, int index, int rows);
  int rows(int part, int micro_batch) const;  // the number of rows of the part's output
  int width(int part, int micro_batch) const { return rows(part, micro_batch) * kWidth; }
  int label_width(int micro_batch) const {
    return layout_.variable ? micro_batch % (kLabelWidth + 1) : kLabelWidth;
  }

  int parts() const { return self_->size * info.chunks; }
  int part(int chunk) const;  // the position of a chunk in the model
  bool first(int part) const { return alone() || part == 0; }
  bool last(int part) const { return alone() || part == parts() - 1; }
  bool has_inputs() const;
  bool has_outputs() const;

  double scale(int part) const { return part + 2; }
  double input(int part, int micro_batch, int i) const;
  double output(int part, int micro_batch, int i) const {
    return input(part, micro_batch, i) * scale(part) + part;
  }
  std::vector<double> outputs(int part, int micro_batch) const;
  double gradient(int part, int i) const;  // gradient of element i of the part's output

  rank_t* self_;
  dsc_comm_t* comm_;
  Layout layout_;
  std::map<int, int> calls_;  // the number of calls by op
  std::map<std::pair<int, int>, int>
      alive_;  // by chunk and micro-batch: the remaining halves of the backward pass, 2 to 0
};

// Creates a second communicator of all ranks, which callbacks use.
int split_off(rank_t* self, dsc_comm_t** comm);

}  // namespace pipe
