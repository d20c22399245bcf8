#include "reducer/broadcast.hpp"

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "bucket_plan/plan.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "reducer/device_broadcast.hpp"

namespace dsc {
namespace {

constexpr size_t kDefaultBufferBytes = 250 * size_t{1024} * 1024;
constexpr size_t kMostInFlight = 2;
constexpr int kBroadcastWaitMs = 2000;

// One running broadcast of some tensors. A tensor that travels alone needs no buffer.
class Flight {
 public:
  Flight(std::span<const Tensor> tensors, std::span<const size_t> indices)
      : tensors_(tensors), indices_(indices) {
    for (const size_t index : indices) count_ += tensors[index].count;
    if (indices.size() > 1) buffer_ = std::make_unique_for_overwrite<std::byte[]>(bytes());
  }
  Flight(Flight&&) = default;
  ~Flight() {
    // The engine must be done with the memory before it is freed; if it is not, a leak is the lesser evil.
    if (work_ && !wait_ignoring_failure(*work_, Deadline::after_ms(kBroadcastWaitMs)))
      static_cast<void>(buffer_.release());
  }

  void depart(Comm& comm, int root) {
    if (buffer_ && comm.rank() == root) {
      copy_parts([](std::byte* in_buffer, void* data, size_t bytes) { std::memcpy(in_buffer, data, bytes); });
    }
    Call call;
    call.kind = OpKind::kBroadcast;
    call.dtype = tensors_[indices_[0]].dtype;
    call.root = root;
    call.recv = buffer_ ? buffer_.get() : tensors_[indices_[0]].data;
    call.send = call.recv;
    call.count = count_;
    call.tag = list_fingerprint(tensors_, indices_);
    work_ = comm.start(call);
  }

  void land(bool is_root) {
    work_->wait(Deadline::never());  // the operation has a deadline of its own
    if (is_root || !buffer_) return;
    copy_parts([](std::byte* in_buffer, void* data, size_t bytes) { std::memcpy(data, in_buffer, bytes); });
  }

 private:
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

}  // namespace

// The fingerprint covers each count, because different lists can have equal sums.
uint64_t list_fingerprint(std::span<const Tensor> tensors, std::span<const size_t> indices) {
  std::string counts;
  for (const size_t index : indices) counts += std::to_string(tensors[index].count) + ' ';
  return fnv1a(counts);
}

void broadcast_coalesced(Comm& comm, std::span<const Tensor> tensors, int root, size_t buffer_bytes) {
  if (root < 0 || root >= comm.size())
    fail(DSC_ERR_INVALID_ARG, "root is %d, expected 0 to %d", root, comm.size() - 1);
  check_tensors(tensors);
  if (const auto problem = first_problem(comm, tensors, true)) {
    if (problem->code == DSC_ERR_BACKEND) comm.abort();  // the others would wait for this rank
    fail(problem->code, "%s", problem->text.c_str());
  }
  if (tensors.empty() || comm.size() == 1) return;
  const BucketPlan plan = plan_flights(tensors, buffer_bytes);
  if (tensors[0].device >= 0) return broadcast_on_device(comm, tensors, plan, root);
  const bool is_root = comm.rank() == root;
  std::deque<Flight> flights;
  for (size_t b = 0; b < plan.buckets(); ++b) {
    if (flights.size() == kMostInFlight) {
      flights.front().land(is_root);
      flights.pop_front();
    }
    flights.emplace_back(tensors, plan.bucket(b)).depart(comm, root);
  }
  for (Flight& flight : flights) flight.land(is_root);
}

}  // namespace dsc
