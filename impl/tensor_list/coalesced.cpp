#include "tensor_list/coalesced.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "bucket_plan/plan.hpp"
#include "comm/reduce_ops.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "memory/space.hpp"
#include "tensor_list/list_operation.hpp"

namespace dsc {
namespace {

constexpr size_t kDefaultBufferBytes = 250 * size_t{1024} * 1024;
constexpr size_t kMostInFlight = 2;
constexpr int kFlightWaitMs = 2000;

// One running operation on some tensors, which are packed into a buffer. No buffer is needed for a single
// tensor, or for tensors that are contiguous in memory if a buffer would have no gaps between them.
class Flight {
 public:
  Flight(Space& space, void* stream, const ListOperation& operation, std::span<const Tensor> tensors,
         std::span<const size_t> indices)
      : space_(space), stream_(stream), operation_(operation), tensors_(tensors), indices_(indices) {
    lay_out();
    if (!is_one_block()) buffer_ = space.take(bytes(), stream);
  }
  Flight(Flight&&) = default;
  ~Flight() {
    // Wait until the engine no longer uses the memory. If it may still use the memory after that, leaking it
    // is better than freeing it.
    if (!space_.in_stream_order() && work_ &&
        !wait_ignoring_failure(*work_, Deadline::after_ms(kFlightWaitMs)))
      keep(std::move(buffer_));
  }

  void depart() {
    void* const memory = buffer_ ? buffer_.get() : first().data;
    const bool is_zero = !operation_.sends && operation_.call.kind == OpKind::kAllReduce;
    const bool has_gaps = buffer_ && operation_.is_callers && part_alignment() > 1;  // gaps are reduced, too
    if (is_zero || has_gaps) space_.zero(memory, bytes(), stream_);
    if (buffer_ && operation_.sends) space_.gather(parts(), stream_);
    Call call = operation_.on_buffer(space_.group(), tensors_, indices_, memory, count_);
    call.stream = stream_;
    work_ = space_.group().start(call);
  }

  // Waits for the operation and copies the results into the tensors. If inputs that are not finite count as a
  // failure, returns this failure instead of throwing it, because there is still a result.
  std::optional<Error> land() {
    std::optional<Error> found;
    const Failure failure = space_.await_work(*work_, stream_);
    if (failure.code != DSC_OK) {
      if (failure.code != DSC_ERR_NONFINITE) throw Error(failure);
      found.emplace(failure);
    }
    if (operation_.receives && buffer_) space_.scatter(parts(), stream_);
    return found;
  }

  const std::shared_ptr<Work>& work() const noexcept { return work_; }

 private:
  const Tensor& first() const { return tensors_[indices_[0]]; }
  size_t bytes() const { return count_ * dtype_bytes(first().dtype); }
  size_t part_alignment() const noexcept { return dsc::part_alignment(space_.in_stream_order()); }

  void lay_out() {
    const size_t step = std::max<size_t>(part_alignment() / dtype_bytes(first().dtype), 1);
    for (const size_t index : indices_) {
      const size_t at = (count_ + step - 1) / step * step;
      parts_.push_back({tensors_[index].data, tensors_[index].count, at});
      count_ = at + tensors_[index].count;
    }
  }

  // Returns true if the tensors are contiguous in memory. Ranks may differ in this only if a buffer has no
  // gaps.
  bool is_one_block() const {
    if (indices_.size() == 1) return true;
    if (part_alignment() > 1) return false;
    const auto end = [&](size_t index) {
      return static_cast<const std::byte*>(tensors_[index].data) + tensors_[index].bytes();
    };
    for (size_t i = 1; i < indices_.size(); ++i)
      if (tensors_[indices_[i]].data != end(indices_[i - 1])) return false;
    return true;
  }

  PartsCopy parts() const {
    return {
        .parts = parts_, .tensor_dtype = first().dtype, .block = buffer_.get(), .block_dtype = first().dtype};
  }

  Space& space_;
  void* const stream_;
  const ListOperation& operation_;
  std::span<const Tensor> tensors_;
  std::span<const size_t> indices_;
  std::vector<TensorPart> parts_;
  size_t count_ = 0;  // number of elements in the buffer
  Memory buffer_;
  std::shared_ptr<Work> work_;
};

BucketPlan plan_flights(std::span<const Tensor> tensors, size_t buffer_bytes) {
  std::vector<PlanTensor> planned;
  for (const Tensor& tensor : tensors)
    planned.push_back({tensor.count, dtype_bytes(tensor.dtype), tensor.dtype, tensor.device});
  const size_t limit = buffer_bytes == 0 ? kDefaultBufferBytes : buffer_bytes;
  return plan_buckets(planned, {}, {&limit, 1});
}

// Runs a few operations in parallel with the host, which meanwhile packs and unpacks others.
void run_at_once(Space& space, std::span<const Tensor> tensors, const BucketPlan& plan,
                 const ListOperation& operation) {
  std::deque<Flight> flights;
  std::optional<Error> first;
  const auto land = [&] {
    if (const auto found = flights.front().land(); found && !first) first.emplace(*found);
    flights.pop_front();
  };
  for (size_t b = 0; b < plan.buckets(); ++b) {
    if (flights.size() == kMostInFlight) land();
    flights.emplace_back(space, nullptr, operation, tensors, plan.bucket(b)).depart();
  }
  while (!flights.empty()) land();
  if (first) throw Error(*first);
}

// Keeps the first error of several steps.
class FirstError {
 public:
  template <typename Step>
  bool run(const Step& step) {
    return capture(step, [this](const Error& error) {
      if (!first_) first_.emplace(error);
    });
  }
  void rethrow() const {
    if (first_) throw Error(*first_);
  }

 private:
  std::optional<Error> first_;
};

// Runs all operations on a separate stream, ordered after the work on the device's default stream. At the
// end, even after an error, the host waits. It first waits for all operations, each of which has its own
// time-out, and then for the copies after them.
void run_in_stream_order(Space& space, std::span<const Tensor> tensors, const BucketPlan& plan,
                         const ListOperation& operation) {
  space.prepare();
  const auto stream = space.make_stream();
  space.order(nullptr, stream.get());
  std::vector<std::shared_ptr<Work>> works;
  FirstError error;
  const auto fly = [&](size_t bucket) {
    Flight flight(space, stream.get(), operation, tensors, plan.bucket(bucket));
    flight.depart();
    works.push_back(flight.work());
    flight.land();
  };
  for (size_t b = 0; b < plan.buckets(); ++b)
    if (!error.run([&] { fly(b); })) break;
  for (const auto& work : works) error.run([&] { work->wait(Deadline::never()); });
  error.run([&] {
    const int timeout_ms = space.group().timeout_ms();
    if (!space.wait_for(space.mark(stream.get()), Deadline::after_ms(timeout_ms)))
      fail(DSC_ERR_TIMEOUT, "copies on device %d did not finish within %d ms", space.group().device(),
           timeout_ms);
  });
  error.rethrow();
}

void run_list(Comm& comm, std::span<const Tensor> tensors, size_t buffer_bytes, ListOperation operation) {
  check_tensors(tensors);
  if (const auto problem = first_problem(comm, tensors, true)) {
    if (problem->code == DSC_ERR_BACKEND) comm.abort();  // other ranks would wait for this rank
    fail(problem->code, "%s", problem->text.c_str());
  }
  if (comm.size() == 1 && (tensors.empty() || !operation.is_callers)) return;
  if (tensors.empty()) return comm.run(operation.on_nothing());
  const BucketPlan plan = plan_flights(tensors, buffer_bytes);
  operation.compare_list(tensors, plan);
  const auto space = Space::of(comm, tensors[0].device >= 0);
  if (space->in_stream_order())
    run_in_stream_order(*space, tensors, plan, operation);
  else
    run_at_once(*space, tensors, plan, operation);
}

// Checks that tensors do not overlap. Otherwise, whether memory is reduced once or twice would depend on how
// tensors are packed into buffers.
void expect_apart(std::span<const Tensor> tensors) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].data && tensors[i].bytes() > 0) order.push_back(i);
  const auto start = [&](size_t index) { return reinterpret_cast<uintptr_t>(tensors[index].data); };
  std::ranges::sort(order, {}, start);
  for (size_t i = 1; i < order.size(); ++i)
    if (start(order[i]) - start(order[i - 1]) < tensors[order[i - 1]].bytes())
      fail(DSC_ERR_INVALID_ARG, "tensors %zu and %zu overlap, expected separate memory for each",
           std::min(order[i], order[i - 1]), std::max(order[i], order[i - 1]));
}

}  // namespace

void broadcast_coalesced(Comm& comm, std::span<const Tensor> tensors, int root, size_t buffer_bytes) {
  comm.check_rank("root", root);
  const bool is_root = comm.rank() == root;
  ListOperation operation{{}, is_root, !is_root};
  operation.call.kind = OpKind::kBroadcast;
  operation.call.root = root;
  run_list(comm, tensors, buffer_bytes, operation);
}

void all_reduce_coalesced(Comm& comm, std::span<const Tensor> tensors, int32_t op, size_t buffer_bytes) {
  ListOperation operation{{}, true, true, true};
  operation.call.kind = OpKind::kAllReduce;
  check_tensors(tensors);
  expect_apart(tensors);
  for (const Tensor& tensor : tensors) {
    operation.call.dtype = tensor.dtype;
    set_reduction(operation.call, op);
  }
  run_list(comm, tensors, buffer_bytes, operation);
}

void mean_coalesced(Comm& comm, std::span<const Tensor> tensors, int active, bool contributes) {
  ListOperation operation{{}, contributes, true};
  operation.call.kind = OpKind::kAllReduce;
  operation.call.op = DSC_OP_SUM;
  operation.call.prescale = 1.0 / active;
  run_list(comm, tensors, 0, operation);
}

}  // namespace dsc
