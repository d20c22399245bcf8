// The four exchanges of rows on a plan, for rows in memory of one kind.
#pragma once

#include <memory>

#include "expert_parallel/row_exchange.hpp"

namespace dsc {

// The form of a call: in which memory, and whether it is started.
struct RowCall {
  Comm& comm;
  RowFormat format;
  const void* on_device;  // any memory of the call if it is on the device; otherwise null
  void* stream;           // of the device
  bool starts;            // returns at once, with a work
};

class RowMover {
 public:
  virtual ~RowMover() = default;

  // Collective; the arguments were checked. With `starts` they return a work. Otherwise they return null at
  // the end; on a device this is when they are on the stream.
  virtual std::shared_ptr<Work> dispatch(const RowCall& call, const void* tokens, void* rows) = 0;
  virtual std::shared_ptr<Work> dispatch_backward(const RowCall& call, const void* row_gradients,
                                                  void* token_gradients) = 0;
  // Weights may be null, and so may `returned`.
  struct Combined {
    const void* weights;
    void* out;
    void* returned;
  };
  virtual std::shared_ptr<Work> combine(const RowCall& call, const void* rows, const Combined& combined) = 0;
  // `returned` and `weight_gradients` are null if the gradients of weights are not needed.
  struct CombineGradients {
    const void* out_gradients;
    const void* weights;
    const void* returned;
    void* row_gradients;
    void* weight_gradients;
  };
  virtual std::shared_ptr<Work> combine_backward(const RowCall& call, const CombineGradients& gradients) = 0;
};

}  // namespace dsc
