#include "reducer/buffers.hpp"

#include <cstring>

#include "base/error.hpp"
#include "comm/verify.hpp"
#include "dtype/dtype.hpp"
#include "tensor_list/coalesced.hpp"

namespace dsc {
namespace {

// Returns the tensors in host memory or those on the device. A call of the communicator can move only one
// kind.
std::vector<Tensor> of_memory(std::span<const Tensor> tensors, bool on_device) {
  std::vector<Tensor> part;
  for (const Tensor& tensor : tensors)
    if ((tensor.device >= 0) == on_device) part.push_back(tensor);
  return part;
}

std::optional<TensorProblem> problem_of(const Comm& group, std::span<const Tensor> buffers) {
  for (const bool on_device : {false, true})
    if (auto problem = first_problem(group, of_memory(buffers, on_device), true)) return problem;
  return std::nullopt;
}

}  // namespace

void Buffers::set(Comm& group, std::span<const Tensor> buffers) {
  verify_params(group, buffers);
  const auto problem = problem_of(group, buffers);
  verify_settings(group,
                  std::vector<Setting>{{"the first unusable buffer", problem ? problem->text : "none"}});
  if (problem) fail(problem->code, "%s", problem->text.c_str());
  list_ = std::make_unique<ParamList>(buffers, 0);
  data_.clear();
  for (const Tensor& buffer : buffers) data_.push_back(buffer.data);
}

void Buffers::require() const {
  if (!list_)
    fail(DSC_ERR_STATE, "the reducer has no buffers, expected dsc_bucket_reducer_set_buffers() first");
}

std::vector<Tensor> Buffers::select(bool on_device, bool mean, int32_t how) const {
  std::vector<Tensor> part;
  for (size_t i = 0; i < data_.size(); ++i) {
    Tensor tensor = list_->tensors[i];
    tensor.data = data_[i];
    const bool is_mean = how == DSC_BUFFER_SYNC_MEAN && is_floating(tensor.dtype);
    if ((tensor.device >= 0) == on_device && is_mean == mean) part.push_back(tensor);
  }
  return part;
}

void Buffers::sync(Comm& group, int32_t how, const JoinParticipants& participants, bool contributes) {
  require();
  for (const bool on_device : {false, true})
    for (const bool mean : {false, true})
      sync_part(group, select(on_device, mean, how), mean, participants, contributes);
}

void Buffers::sync_part(Comm& group, std::span<const Tensor> part, bool mean,
                        const JoinParticipants& participants, bool contributes) const {
  if (part.empty()) return;
  if (!mean) return broadcast_coalesced(group, part, participants.first_rank, 0);
  mean_coalesced(group, part, participants.active, contributes);
}

}  // namespace dsc
