// A kind of memory, and what the floors above do with it: memory of the host, or of the device to which a
// group is bound. They are written once, for a Space.
//
// In host memory a function has done its work when it returns, and streams and marks are null. On a device a
// function puts its work on the stream that it is given, behind the work that is there, and returns.
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

// Elements are converted first, and scaled in the type that they have then.
struct ElementCopy {
  void* to;
  int32_t to_dtype;
  const void* from;
  int32_t from_dtype;
  size_t count;
  double scale = 1;
};

// One of several tensors whose elements lie in one block, too.
struct TensorPart {
  void* tensor;
  size_t count;
  size_t offset;  // in elements, from the start of the block
};

// All tensors have one type. Like ElementCopy it converts first and then scales.
struct PartsCopy {
  std::span<const TensorPart> parts;
  int32_t tensor_dtype;
  void* block;
  int32_t block_dtype;
  double scale = 1;
  void* norm = nullptr;  // memory of norm_bytes(), to which the norm of the converted elements, not yet
                         // scaled, is added
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

// Where tensors begin in a block, in bytes: kernels are fast at such addresses.
inline size_t part_alignment(bool on_device) noexcept { return on_device ? 16 : 1; }

// The last holder frees it.
using Memory = std::shared_ptr<std::byte>;
// A point in the order of a stream; null in host memory.
using Mark = std::shared_ptr<const void>;

// Never frees the memory, because a device or an operation may still use it.
void keep(Memory memory) noexcept;

// Any thread may use it, several at once for different elements. The group must outlive it and what it
// gives; memory, streams and marks may outlive the Space.
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
  // Whether work happens in the order of streams, after the function has returned.
  bool in_stream_order() const noexcept { return device_ >= 0; }
  // Throws UNSUPPORTED for a stream, which host memory does not have.
  void check_stream(const void* stream) const;
  // Throws INVALID_ARG for a gradient, which may be null, in other memory.
  void check_gradient(const void* gradient, const std::string& who) const {
    if (knows_devices_) expect_gradient_on(group_, device_, gradient, who);
  }
  // Throws UNSUPPORTED where the library has no arithmetic for this memory. Not while a stream is captured,
  // unless it was called before.
  virtual void prepare() const = 0;
  virtual bool is_prepared() const = 0;

  // Throws UNSUPPORTED if the group cannot run the operation on gradients of these types here, or this memory
  // has no arithmetic: what is refused would otherwise be refused in the middle of an iteration.
  void check_reductions(Call call, std::span<const int32_t> dtypes) const;
  // Whether a stream handle means a different stream in every thread.
  virtual bool is_of_thread(void* stream) const noexcept = 0;

  // --- Memory.
  // Collective: returns zeroed memory that operations of the group reach directly.
  virtual Memory allocate(size_t bytes) = 0;
  // Collective: the same for memory that operations need not reach; in the host it is of this rank alone.
  virtual Memory allocate_own(size_t bytes) = 0;
  // Returns memory without a value, for work on this stream only: the last holder may let it go at once.
  virtual Memory take(size_t bytes, void* stream) = 0;
  // Returns host memory between which and this memory copies never make the host wait.
  virtual Memory stage(size_t bytes) = 0;

  // --- Order.
  // Returns a stream that waits for no other; null in host memory.
  virtual std::shared_ptr<void> make_stream() = 0;
  virtual bool is_captured(void* stream) const = 0;
  // The point behind all work that is on the stream now.
  virtual Mark mark(void* stream) = 0;
  // Work that is put on the stream from now on waits for the mark.
  virtual void follow(void* stream, const Mark& mark) = 0;
  // Waits for the mark; false if the deadline passes first.
  virtual bool wait_for(const Mark& mark, Deadline deadline) const = 0;
  // Work that is put on `later` from now on waits for that on `stream`.
  void order(void* stream, void* later);
  bool wait_idle(void* stream, Deadline deadline) noexcept;
  // Waits for the mark too, but throws the failure of the group as soon as there is one, and TIMEOUT after
  // the group's time-out, with a text that says that `what` of this rank were not there.
  bool await(const Mark& mark, const char* what, Deadline deadline = Deadline::never()) const;
  void await_stream(void* stream, const char* what);
  // What is put on the stream from now on waits for the operation; in host memory this waits for it. Returns
  // how it has ended: on a device one that still runs counts as a success, because what fails later fails the
  // group.
  Failure await_work(Work& work, void* stream) const;

  // --- Elements. The types are floating ones, except in plain copies.
  virtual void copy(const ElementCopy& copy, void* stream) = 0;
  // Adds converted elements to those that are there; the scale is not used.
  virtual void add(const ElementCopy& copy, void* stream) = 0;
  virtual void divide(const Elements& elements, int divisor, void* stream) = 0;
  virtual void zero(void* at, size_t bytes, void* stream) = 0;
  virtual void copy_rows(const RowsCopy& copy, void* stream) = 0;
  // Copies tensors to the block, or the block to the tensors. A tensor may be its own place in the block.
  virtual void gather(const PartsCopy& copy, void* stream) = 0;
  virtual void scatter(const PartsCopy& copy, void* stream) = 0;
  void scale(const Elements& elements, double factor, void* stream);

  // --- Numbers. They wait for the stream, as await() does; the stream is not captured.
  // Copies memory to plain host memory.
  void read(void* to, const void* from, size_t bytes, void* stream, const char* what);
  // The size of a norm that grows from launch to launch. All of it is zeroed at first.
  virtual size_t norm_bytes() const noexcept = 0;
  // Reads norms that lie one after another.
  void read_norms(std::span<Norm> norms, const void* states, void* stream, const char* what);
  // The bits depend on the order of the parts, and on a device on the device.
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
