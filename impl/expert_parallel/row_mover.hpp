// The four exchanges of rows on a plan, for rows in memory of one kind.
#pragma once

#include <memory>

#include "expert_parallel/row_exchange.hpp"

namespace dsc {

// How an exchange is called.
struct RowCall {
  Comm& comm;
  RowFormat format;
  const void* on_device;  // any memory of the call if it is of the device; otherwise null
  void* stream;           // of the device
  bool starts;            // it returns at once, with a work
};

class RowMover {
 public:
  virtual ~RowMover() = default;

  // Collective; the arguments were checked. Unless the call starts them they return at the end, on a device
  // when they are on the stream, with null.
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
  // `returned` and `weight_gradients` are null if the latter are not wanted.
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
