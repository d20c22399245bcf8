#include "reducer/coalesced.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "bucket_plan/plan.hpp"
#include "comm/reduce_ops.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "reducer/coalesced_on_device.hpp"
#include "reducer/list_operation.hpp"

namespace dsc {
namespace {

constexpr size_t kDefaultBufferBytes = 250 * size_t{1024} * 1024;
constexpr size_t kMostInFlight = 2;
constexpr int kFlightWaitMs = 2000;

// Whether the tensors lie one behind another in memory, as a single one does.
bool is_one_block(std::span<const Tensor> tensors, std::span<const size_t> indices) {
  const auto end = [&](size_t index) {
    return static_cast<const std::byte*>(tensors[index].data) + tensors[index].bytes();
  };
  for (size_t i = 1; i < indices.size(); ++i)
    if (tensors[indices[i]].data != end(indices[i - 1])) return false;
  return true;
}

// One running operation on some tensors. Those that are one block of memory need no buffer.
class Flight {
 public:
  Flight(std::span<const Tensor> tensors, std::span<const size_t> indices)
      : tensors_(tensors), indices_(indices) {
    for (const size_t index : indices) count_ += tensors[index].count;
    if (!is_one_block(tensors, indices)) buffer_ = std::make_unique_for_overwrite<std::byte[]>(bytes());
  }
  Flight(Flight&&) = default;
  ~Flight() {
    // The engine must be done with the memory before it is freed; if it is not, a leak is the lesser evil.
    if (work_ && !wait_ignoring_failure(*work_, Deadline::after_ms(kFlightWaitMs)))
      static_cast<void>(buffer_.release());
  }

  void depart(Comm& comm, const ListOperation& operation) {
    void* const memory = buffer_ ? buffer_.get() : tensors_[indices_[0]].data;
    const Call call = operation.on_buffer(comm, tensors_, indices_, memory, count_);
    if (!operation.sends && call.kind == OpKind::kAllReduce) {
      std::memset(call.recv, 0, bytes());
    } else if (buffer_ && operation.sends) {
      copy_parts([](std::byte* in_buffer, void* data, size_t bytes) { std::memcpy(in_buffer, data, bytes); });
    }
    work_ = comm.start(call);
  }

  // Returns the failure that leaves a result nevertheless: inputs that are not finite.
  std::optional<Error> land(bool receives) {
    std::optional<Error> found;
    // The operation has a deadline of its own.
    capture([&] { work_->wait(Deadline::never()); },
            [&](const Error& error) {
              if (error.failure().code != DSC_ERR_NONFINITE) throw Error(error);
              found.emplace(error);
            });
    if (receives && buffer_) copy_back();
    return found;
  }

 private:
  void copy_back() {
    copy_parts([](std::byte* in_buffer, void* data, size_t bytes) { std::memcpy(data, in_buffer, bytes); });
  }

  size_t bytes() const { return count_ * dtype_bytes(tensors_[indices_[0]].dtype); }

  template <typename Copy>
  void copy_parts(Copy copy) {
    std::byte* in_buffer = buffer_.get();
    for (const size_t index : indices_) {
      const size_t bytes = tensors_[index].bytes();
      if (bytes > 0) copy(in_buffer, tensors_[index].data, bytes);
      in_buffer += bytes;
    }
  }

  std::span<const Tensor> tensors_;
  std::span<const size_t> indices_;
  size_t count_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
  std::shared_ptr<Work> work_;
};

BucketPlan plan_flights(std::span<const Tensor> tensors, size_t buffer_bytes) {
  std::vector<PlanTensor> planned;
  for (const Tensor& tensor : tensors)
    planned.push_back({tensor.count, dtype_bytes(tensor.dtype), tensor.dtype, tensor.device});
  const size_t limit = buffer_bytes == 0 ? kDefaultBufferBytes : buffer_bytes;
  return plan_buckets(planned, {}, {&limit, 1});
}

void run_list(Comm& comm, std::span<const Tensor> tensors, size_t buffer_bytes, ListOperation operation) {
  check_tensors(tensors);
  if (const auto problem = first_problem(comm, tensors, true)) {
    if (problem->code == DSC_ERR_BACKEND) comm.abort();  // the others would wait for this rank
    fail(problem->code, "%s", problem->text.c_str());
  }
  if (comm.size() == 1 && (tensors.empty() || !operation.is_callers)) return;
  if (tensors.empty()) return comm.run(operation.on_nothing());
  const BucketPlan plan = plan_flights(tensors, buffer_bytes);
  operation.compare_list(tensors, plan);
  if (tensors[0].device >= 0) return run_list_on_device(comm, tensors, plan, operation);
  std::deque<Flight> flights;
  std::optional<Error> first;
  const auto land = [&] {
    if (const auto found = flights.front().land(operation.receives); found && !first) first.emplace(*found);
    flights.pop_front();
  };
  for (size_t b = 0; b < plan.buckets(); ++b) {
    if (flights.size() == kMostInFlight) land();
    flights.emplace_back(tensors, plan.bucket(b)).depart(comm, operation);
  }
  while (!flights.empty()) land();
  if (first) throw Error(*first);
}

// A part of memory that is in the list twice would be reduced once or twice, as the buffers happen to be cut.
void expect_apart(std::span<const Tensor> tensors) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].data && tensors[i].bytes() > 0) order.push_back(i);
  const auto start = [&](size_t index) { return reinterpret_cast<uintptr_t>(tensors[index].data); };
  std::ranges::sort(order, {}, start);
  for (size_t i = 1; i < order.size(); ++i)
    if (start(order[i]) - start(order[i - 1]) < tensors[order[i - 1]].bytes())
      fail(DSC_ERR_INVALID_ARG, "tensors %zu and %zu overlap, expected memory of its own for each",
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
