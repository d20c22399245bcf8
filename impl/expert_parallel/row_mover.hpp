// The four exchanges of rows on a plan. There is an implementation for host memory and one for device memory.
#pragma once

#include <memory>

#include "expert_parallel/row_exchange.hpp"

namespace dsc {

// The circumstances of a call: the memory of its rows, and whether it returns before it has ended.
struct RowCall {
  Comm& comm;
  RowFormat format;
  const void* on_device;  // a buffer of the call if it is on the device; otherwise null
  void* stream;           // a stream of the device
  bool starts;            // if set, the call returns a work without waiting
};

class RowMover {
 public:
  virtual ~RowMover() = default;

  // All four functions are collective, and the caller has checked the arguments. If `starts` is set, they
  // return a work. Otherwise they return null when the exchange has ended, or on a device when it is on the
  // stream.
  virtual std::shared_ptr<Work> dispatch(const RowCall& call, const void* tokens, void* rows) = 0;
  virtual std::shared_ptr<Work> dispatch_backward(const RowCall& call, const void* row_gradients,
                                                  void* token_gradients) = 0;
  // `weights` and `returned` may be null.
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
