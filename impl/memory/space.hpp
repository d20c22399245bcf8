// A kind of memory and the operations on it: host memory, or memory of the device to which a group is bound.
// Callers use a Space, and need no separate code for host and device.
//
// In host memory a function has finished its work when it returns, and streams and marks are null. On a
// device a function enqueues its work on the given stream, after the work that is already there, and returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Consecutive elements of one type.
struct Elements {
  void* data;
  size_t count;
  int32_t dtype;
};

// A copy that first converts elements to another type, and then scales them in the new type.
struct ElementCopy {
  void* to;
  int32_t to_dtype;
  const void* from;
  int32_t from_dtype;
  size_t count;
  double scale = 1;
};

// One of several tensors that share a block. The block has space for the elements of all of them.
struct TensorPart {
  void* tensor;
  size_t count;
  size_t offset;  // in elements, from the start of the block
};

// A copy between tensors and their block. All tensors have one type. As in ElementCopy, elements are
// converted first and then scaled.
struct PartsCopy {
  std::span<const TensorPart> parts;
  int32_t tensor_dtype;
  void* block;
  int32_t block_dtype;
  double scale = 1;
  // Memory of norm_bytes(), or null. The norm of the converted elements before scaling is added to it.
  void* norm = nullptr;
};

// A copy of rows. All rows have the same length, and the distances between them are equal.
struct RowsCopy {
  void* to;
  const void* from;
  size_t rows, row_bytes;
  size_t to_stride, from_stride;  // bytes between the starts of two rows
};

struct Norm {
  double squares = 0;      // the sum of squares; NaN or infinite if an element is NaN or infinite
  double most = 0;         // the largest magnitude of the elements that are not NaN
  uint64_t nonfinite = 0;  // number of elements that are NaN or infinite
};

// The alignment of tensors in a block, in bytes. On a device, kernels are fast at aligned addresses.
inline size_t part_alignment(bool on_device) noexcept { return on_device ? 16 : 1; }

// A reference to memory. The memory is freed when its last reference is gone.
using Memory = std::shared_ptr<std::byte>;
// A point in the order of a stream, like an event; null in host memory.
using Mark = std::shared_ptr<const void>;

// Makes sure that the memory is never freed, because a device or an operation may still use it.
void keep(Memory memory) noexcept;

// Any thread may use a Space. Several threads may use it at the same time for different elements. The group
// must outlive the Space and everything that the Space returns. Memory, streams and marks may outlive the
// Space.
class Space {
 public:
  static std::unique_ptr<Space> of_host(Comm& group);
  // The group must be bound to a device.
  static std::unique_ptr<Space> of_device(Comm& group);
  static std::unique_ptr<Space> of(Comm& group, bool on_device) {
    return on_device ? of_device(group) : of_host(group);
  }
  virtual ~Space() = default;
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  Comm& group() const noexcept { return group_; }
  // Returns whether work is done in the order of streams, after the function has returned.
  bool in_stream_order() const noexcept { return device_ >= 0; }
  // Throws UNSUPPORTED if a stream is given for host memory, which has no streams.
  void check_stream(const void* stream) const;
  // Throws INVALID_ARG if the gradient is in another kind of memory. The gradient may be null.
  void check_gradient(const void* gradient, const std::string& who) const {
    if (knows_devices_) expect_gradient_on(group_, device_, gradient, who);
  }
  // Loads the arithmetic for this memory. Throws UNSUPPORTED if the library has none. Must not be called for
  // the first time while a stream is captured.
  virtual void prepare() const = 0;
  virtual bool is_prepared() const = 0;

  // Throws UNSUPPORTED if the group cannot run the operation on gradients of these types, or if the library
  // has no arithmetic for this memory. Without this check the operation would fail in the middle of an
  // iteration.
  void check_reductions(Call call, std::span<const int32_t> dtypes) const;
  // Returns whether a stream handle means a different stream in every thread, as that of a per-thread default
  // stream does.
  virtual bool is_of_thread(void* stream) const noexcept = 0;

  // ---- Memory ----
  //
  // Collective. Returns zeroed memory that operations of the group access directly.
  virtual Memory allocate(size_t bytes) = 0;
  // Collective. Returns zeroed memory that operations need not access. On the host only this rank can access
  // it.
  virtual Memory allocate_own(size_t bytes) = 0;
  // Returns uninitialized memory for work on this stream only. The last reference may be dropped before that
  // work has finished.
  virtual Memory take(size_t bytes, void* stream) = 0;
  // Returns host memory for copies to and from this memory. Such copies never block the host.
  virtual Memory stage(size_t bytes) = 0;

  // ---- Order ----
  //
  // Returns a stream that waits for no other stream; null in host memory.
  virtual std::shared_ptr<void> make_stream() = 0;
  virtual bool is_captured(void* stream) const = 0;
  // Returns the point after all work that the stream contains now.
  virtual Mark mark(void* stream) = 0;
  // Lets all later work on the stream wait for the mark.
  virtual void follow(void* stream, const Mark& mark) = 0;
  // Waits for the mark. Returns false if the deadline passes first.
  virtual bool wait_for(const Mark& mark, Deadline deadline) const = 0;
  // Orders all later work on `later` after the work that `stream` contains now.
  void order(void* stream, void* later);
  bool wait_idle(void* stream, Deadline deadline) noexcept;
  // Waits for the mark like wait_for(). Throws the failure of the group as soon as there is one, and TIMEOUT
  // after the group's time-out. The text of TIMEOUT says that `what` of this rank did not become ready.
  bool await(const Mark& mark, const char* what, Deadline deadline = Deadline::never()) const;
  void await_stream(void* stream, const char* what);
  // Orders all later work on the stream after the operation. In host memory this waits for the operation.
  // Returns the failure of the operation, or none. On a device an operation that is still running counts as a
  // success, because a later failure fails the group.
  Failure await_work(Work& work, void* stream) const;

  // ---- Elements: floating-point types only, except in plain copies ----
  virtual void copy(const ElementCopy& copy, void* stream) = 0;
  // Converts elements and adds them to those in memory. Ignores the scale.
  virtual void add(const ElementCopy& copy, void* stream) = 0;
  virtual void divide(const Elements& elements, int divisor, void* stream) = 0;
  virtual void zero(void* at, size_t bytes, void* stream) = 0;
  virtual void copy_rows(const RowsCopy& copy, void* stream) = 0;
  // Copies tensors to the block, or the block to the tensors. The memory of a tensor may be its own part of
  // the block.
  virtual void gather(const PartsCopy& copy, void* stream) = 0;
  virtual void scatter(const PartsCopy& copy, void* stream) = 0;
  void scale(const Elements& elements, double factor, void* stream);

  // ---- Results on the host ----
  //
  // These functions wait for the stream, as await() does, so the stream must not be captured.
  //
  // Copies to ordinary host memory.
  void read(void* to, const void* from, size_t bytes, void* stream, const char* what);
  // The size of a norm that accumulates over several launches. The caller must first zero all of it.
  virtual size_t norm_bytes() const noexcept = 0;
  // Reads norms that are stored one after another.
  void read_norms(std::span<Norm> norms, const void* states, void* stream, const char* what);
  // Returns the norm of all parts together. The exact bits depend on the order of the parts, and on a device
  // also on the kind of device.
  Norm norm(std::span<const Elements> parts, void* stream, const char* what);

 protected:
  Space(Comm& group, int device) noexcept
      : group_(group), device_(device), knows_devices_(group.device() >= 0) {}

 private:
  Comm& group_;
  const int device_;          // -1 for host memory
  const bool knows_devices_;  // whether the group is bound to a device
};

}  // namespace dsc
