// A kind of memory and the operations that the folders above need on it: host memory, or memory of the device
// to which a group is bound. Code above is written once, for a Space.
//
// In host memory a function has done its work when it returns, and streams and marks are null. On a device a
// function puts its work on the given stream, ordered after the work that is already there, and returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Elements of one type, one after another.
struct Elements {
  void* data;
  size_t count;
  int32_t dtype;
};

// Elements are first converted, and then scaled in their new type.
struct ElementCopy {
  void* to;
  int32_t to_dtype;
  const void* from;
  int32_t from_dtype;
  size_t count;
  double scale = 1;
};

// One of several tensors whose elements also lie in one block.
struct TensorPart {
  void* tensor;
  size_t count;
  size_t offset;  // in elements, from the start of the block
};

// All tensors have one type. Like ElementCopy, this converts first and then scales.
struct PartsCopy {
  std::span<const TensorPart> parts;
  int32_t tensor_dtype;
  void* block;
  int32_t block_dtype;
  double scale = 1;
  void* norm = nullptr;  // memory of norm_bytes(), to which the norm of the converted elements is added,
                         // before scaling
};

// Rows of equal length, at equal distances.
struct RowsCopy {
  void* to;
  const void* from;
  size_t rows, row_bytes;
  size_t to_stride, from_stride;  // bytes between the starts of two rows
};

struct Norm {
  double squares = 0;      // the sum of squares; NaN or infinite if an element is
  double most = 0;         // the largest magnitude of those that are not NaN
  uint64_t nonfinite = 0;  // elements that are NaN or infinite
};

// The alignment of tensors in a block, in bytes: kernels are fast at such addresses.
inline size_t part_alignment(bool on_device) noexcept { return on_device ? 16 : 1; }

// The last holder frees it.
using Memory = std::shared_ptr<std::byte>;
// A point in the order of a stream; null in host memory.
using Mark = std::shared_ptr<const void>;

// Never frees the memory, because a device or an operation may still use it.
void keep(Memory memory) noexcept;

// Any thread may use it, several at once for different elements. The group must outlive it and what it
// returns. Memory, streams and marks may outlive the Space.
class Space {
 public:
  static std::unique_ptr<Space> of_host(Comm& group);
  // The group is bound to a device.
  static std::unique_ptr<Space> of_device(Comm& group);
  static std::unique_ptr<Space> of(Comm& group, bool on_device) {
    return on_device ? of_device(group) : of_host(group);
  }
  virtual ~Space() = default;
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  Comm& group() const noexcept { return group_; }
  // Whether work runs in the order of streams, after the function has returned.
  bool in_stream_order() const noexcept { return device_ >= 0; }
  // Throws UNSUPPORTED for a stream, which host memory does not have.
  void check_stream(const void* stream) const;
  // Throws INVALID_ARG for a gradient in other memory; the gradient may be null.
  void check_gradient(const void* gradient, const std::string& who) const {
    if (knows_devices_) expect_gradient_on(group_, device_, gradient, who);
  }
  // Throws UNSUPPORTED if the library has no arithmetic for this memory. Must not be called while a stream is
  // captured, unless it was called before.
  virtual void prepare() const = 0;
  virtual bool is_prepared() const = 0;

  // Throws UNSUPPORTED if the group cannot run the operation on gradients of these types, or if this memory
  // has no arithmetic. Without this check the operation would be refused in the middle of an iteration.
  void check_reductions(Call call, std::span<const int32_t> dtypes) const;
  // Whether a stream handle means a different stream in every thread.
  virtual bool is_of_thread(void* stream) const noexcept = 0;

  // --- Memory.
  // Collective: returns zeroed memory that operations of the group access directly.
  virtual Memory allocate(size_t bytes) = 0;
  // Collective: the same for memory that operations need not access. On the host it belongs to this rank
  // alone.
  virtual Memory allocate_own(size_t bytes) = 0;
  // Returns uninitialised memory for work on this stream only: the last holder may release it at any time.
  virtual Memory take(size_t bytes, void* stream) = 0;
  // Returns host memory for copies to and from this memory that never make the host wait.
  virtual Memory stage(size_t bytes) = 0;

  // --- Order.
  // Returns a stream that waits for no other; null in host memory.
  virtual std::shared_ptr<void> make_stream() = 0;
  virtual bool is_captured(void* stream) const = 0;
  // Returns the point after all work that is on the stream now.
  virtual Mark mark(void* stream) = 0;
  // Work that is put on the stream from now on waits for the mark.
  virtual void follow(void* stream, const Mark& mark) = 0;
  // Waits for the mark; false if the deadline passes first.
  virtual bool wait_for(const Mark& mark, Deadline deadline) const = 0;
  // Orders all later work on `later` after the work that is on `stream` now.
  void order(void* stream, void* later);
  bool wait_idle(void* stream, Deadline deadline) noexcept;
  // Also waits for the mark, but throws the failure of the group as soon as there is one, and TIMEOUT after
  // the group's time-out. The text of TIMEOUT says that `what` of this rank did not become ready.
  bool await(const Mark& mark, const char* what, Deadline deadline = Deadline::never()) const;
  void await_stream(void* stream, const char* what);
  // Orders all later work on the stream after the operation; in host memory this waits for the operation.
  // Returns how it has ended. On a device an operation that still runs counts as a success, because a later
  // failure fails the group.
  Failure await_work(Work& work, void* stream) const;

  // --- Elements. The types are floating-point types, except in plain copies.
  virtual void copy(const ElementCopy& copy, void* stream) = 0;
  // Adds converted elements to those in memory; the scale is not used.
  virtual void add(const ElementCopy& copy, void* stream) = 0;
  virtual void divide(const Elements& elements, int divisor, void* stream) = 0;
  virtual void zero(void* at, size_t bytes, void* stream) = 0;
  virtual void copy_rows(const RowsCopy& copy, void* stream) = 0;
  // Copies tensors to the block, or the block to the tensors. The memory of a tensor may be its part of the
  // block itself.
  virtual void gather(const PartsCopy& copy, void* stream) = 0;
  virtual void scatter(const PartsCopy& copy, void* stream) = 0;
  void scale(const Elements& elements, double factor, void* stream);

  // --- Numbers. These wait for the stream, as await() does; the stream must not be captured.
  // Copies memory to plain host memory.
  void read(void* to, const void* from, size_t bytes, void* stream, const char* what);
  // The size of a norm that accumulates over launches. All of it must be zeroed at first.
  virtual size_t norm_bytes() const noexcept = 0;
  // Reads norms that lie one after another.
  void read_norms(std::span<Norm> norms, const void* states, void* stream, const char* what);
  // The bits of the result depend on the order of the parts, and on a device also on the device.
  Norm norm(std::span<const Elements> parts, void* stream, const char* what);

 protected:
  Space(Comm& group, int device) noexcept
      : group_(group), device_(device), knows_devices_(group.device() >= 0) {}

 private:
  Comm& group_;
  const int device_;          // -1: the host
  const bool knows_devices_;  // the group is bound to one
};

}  // namespace dsc
