// The norm of all gradients, and scaling by it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "reducer/reducer.hpp"

namespace dsc {
namespace {

constexpr size_t kBlock = 16384;          // elements that one rank takes at a time
constexpr double kSmallNumber = 1e-6;     // added to the norm that divides, as PyTorch's clip_grad_norm_ does
constexpr size_t kRunningSums = 8;

struct Partial {
  double squares = 0;
  double most = 0;
};

template <typename T>
void add_values(Partial& partial, const T* values, size_t count) {
  double sums[kRunningSums] = {};
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    sums[i % kRunningSums] += value * value;
    // A comparison with a NaN is false, so that it has to be taken as it is.
    if (!(std::fabs(value) <= partial.most)) partial.most = std::fabs(value);
  }
  for (const double sum : sums) partial.squares += sum;
}

void add_block(Partial& partial, int32_t dtype, const std::byte* values, size_t count) {
  if (dtype == DSC_DTYPE_F64) return add_values(partial, reinterpret_cast<const double*>(values), count);
  if (dtype == DSC_DTYPE_F32) return add_values(partial, reinterpret_cast<const float*>(values), count);
  static thread_local float wide[kBlock];
  cast(DSC_DTYPE_F32, wide, dtype, values, count);
  add_values(partial, wide, count);
}

// Collective: sums squares, and takes the maximum of magnitudes, in place.
void combine(Comm& group, Partial& partial, int32_t norm) {
  double& value = norm == DSC_NORM_MAX ? partial.most : partial.squares;
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F64;
  call.op = norm == DSC_NORM_MAX ? DSC_OP_MAX : DSC_OP_SUM;
  call.send = &value;
  call.recv = &value;
  call.count = 1;
  std::snprintf(call.note, sizeof call.note, "norm of gradients");
  group.run(call);
}

void check_request(const ClipRequest& request, size_t params) {
  if (!(request.max_norm > 0))
    fail(DSC_ERR_INVALID_ARG, "max_norm is %g, expected more than 0, or infinity", request.max_norm);
  if (!std::isfinite(request.scale) || request.scale == 0)
    fail(DSC_ERR_INVALID_ARG, "scale is %g, expected a finite number other than 0", request.scale);
  if (request.norm != DSC_NORM_TWO && request.norm != DSC_NORM_MAX)
    fail(DSC_ERR_INVALID_ARG, "norm is %d, expected 1 (two) or 2 (max)", request.norm);
  if (!request.counted.empty() && request.counted.size() != params)
    fail(DSC_ERR_INVALID_ARG, "counted has %zu entries, expected %zu", request.counted.size(), params);
}

}  // namespace

// The gradients are equal on all ranks, so that each rank reads its share of them.
double Reducer::norm_of_gradients(const ClipRequest& request) {
  Partial partial;
  const auto ranks = static_cast<size_t>(group_->size());
  size_t block = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!request.counted.empty() && request.counted[i] == 0) continue;
    const GradientSlot& slot = this->slot(i);
    for (size_t at = 0; at < slot.count; at += kBlock, ++block)
      if (block % ranks == static_cast<size_t>(group_->rank()))
        add_block(partial, slot.dtype, slot.view + at * dtype_bytes(slot.dtype), std::min(kBlock, slot.count - at));
  }
  combine(*group_, partial, request.norm);
  if (request.shards) combine(*request.shards, partial, request.norm);
  return request.norm == DSC_NORM_MAX ? partial.most : std::sqrt(partial.squares);
}

double Reducer::clip(const ClipRequest& request) {
  check_request(request, params_.size());
  expect_results();
  const double norm = norm_of_gradients(request) * std::fabs(request.scale);
  if (!std::isfinite(norm)) return norm;
  const double factor = request.scale * std::min(1.0, request.max_norm / (norm + kSmallNumber));
  if (factor == 1) return norm;
  for (size_t i = 0; i < params_.size(); ++i) {
    const GradientSlot& slot = this->slot(i);
    multiply(slot.dtype, slot.view, slot.view, slot.count, factor);
    if (states_[i].gradient) cast(slot.gradient_dtype, states_[i].gradient, slot.dtype, slot.view, slot.count);
  }
  return norm;
}

void Reducer::expect_results() const {
  check_alive();
  if (is_on_device())
    fail(DSC_ERR_UNSUPPORTED, "gradients on a device cannot be clipped here: expected gradients in host memory");
  const MutexLock lock(mutex_);
  require_idle();
  if (!has_results_)
    fail(DSC_ERR_STATE, "there are no gradients to clip: expected an iteration that was finished and reduced");
  for (size_t i = 0; i < params_.size(); ++i)
    if (!is_floating(slot(i).dtype))
      fail(DSC_ERR_UNSUPPORTED, "%s has gradients of %s, expected floats", label(i).c_str(), dtype_name(slot(i).dtype));
}

}  // namespace dsc
