#include "tied/tied.hpp"

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/joined.hpp"
#include "tensor_list/coalesced.hpp"
#include "tied/tied_check.hpp"

namespace dsc {

std::shared_ptr<TiedLayers> TiedLayers::create(Comm& comm, TiedRequest request) {
  check_tied(comm, request);
  for (TiedKey& key : request.keys) std::ranges::sort(key.stages);
  auto made = std::make_shared<TiedLayers>();
  const TiedPosition position = tied_position(request, comm.rank());
  made->stage_ = position.stage;
  made->note_weights(request.keys);
  made->make_groups(comm, request, position.pipeline);
  if (request.sync != 0) made->copy_weights(request);
  return made;
}

void TiedLayers::note_weights(const std::vector<TiedKey>& keys) {
  for (const TiedKey& key : keys) {
    owners_.push_back({key.key, key.stages.front()});
    for (size_t i = 0; i < key.weights.size(); ++i)
      weights_.push_back({"key '" + key.key + "', " + label(key.weights[i].name, i), key.weights[i].count});
  }
}

// Makes one group for each set of stages. Groups are made in the order of their first keys, which is the same
// on all ranks.
void TiedLayers::make_groups(Comm& comm, const TiedRequest& request, int32_t pipeline) {
  std::vector<size_t> begins;  // index of each key's first weight in weights_
  size_t weights = 0;
  for (const TiedKey& key : request.keys) {
    begins.push_back(weights);
    weights += key.weights.size();
  }
  std::vector<std::vector<int32_t>> made;
  for (const size_t k : sorted_keys(request)) {
    const std::vector<int32_t>& stages = request.keys[k].stages;
    if (stages.size() == 1 || std::ranges::find(made, stages) != made.end()) continue;
    made.push_back(stages);
    const bool member = std::ranges::find(stages, stage_) != stages.end();
    const auto group = comm.split(member ? pipeline : -1, stage_, {"tied/" + request.keys[k].key, 0});
    if (!group) continue;
    group->share_nonfinite(comm);
    groups_.push_back({group, {}});
    for (const size_t other : sorted_keys(request))
      if (request.keys[other].stages == stages)
        for (size_t i = 0; i < request.keys[other].weights.size(); ++i)
          groups_.back().weights.push_back(begins[other] + i);
  }
}

// Broadcasts the weights of each group from its rank 0, which is on the first of the stages.
void TiedLayers::copy_weights(const TiedRequest& request) const {
  std::vector<Tensor> all;
  for (const TiedKey& key : request.keys) all.insert(all.end(), key.weights.begin(), key.weights.end());
  for (const Group& group : groups_) {
    std::vector<Tensor> tensors;
    for (const size_t w : group.weights) tensors.push_back(all[w]);
    broadcast_coalesced(*group.comm, tensors, 0, 0);
  }
}

void TiedLayers::check_gradients(std::span<const Tensor> gradients, const void* stream) const {
  if (gradients.size() != weights_.size())
    fail(DSC_ERR_INVALID_ARG, "%zu gradients were given, expected %zu, one for each weight of this rank",
         gradients.size(), weights_.size());
  check_tensors(gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].count != weights_[i].count)
      fail(DSC_ERR_INVALID_ARG, "the gradient of %s has %zu elements, expected %zu",
           weights_[i].label.c_str(), gradients[i].count, weights_[i].count);
  }
  if (groups_.empty()) return;
  const Comm& comm = *groups_[0].comm;
  if (stream && comm.device() < 0)
    fail(DSC_ERR_UNSUPPORTED, "stream is not NULL, but the communicator is not bound to a device");
  if (const auto problem = first_problem(comm, gradients, true))
    fail(problem->code, "%s", problem->text.c_str());
  if (stream && gradients[0].device < 0)
    fail(DSC_ERR_UNSUPPORTED, "stream is not NULL, expected NULL: the gradients are in host memory");
}

void TiedLayers::reduce(std::span<const Tensor> gradients, void* stream) {
  check_gradients(gradients, stream);
  for (const Group& group : groups_) {
    // After an error, abort the other groups, because their ranks would wait for this rank.
    capture([&] { reduce_group(group, gradients, stream); },
            [&](const Error& error) {
              for (const Group& other : groups_)
                if (&other != &group) other.comm->abort();
              throw Error(error);
            });
  }
}

void TiedLayers::reduce_group(const Group& group, std::span<const Tensor> gradients, void* stream) const {
  std::vector<Call> calls;
  for (const size_t w : group.weights) {
    Call call;
    call.kind = OpKind::kAllReduce;
    call.dtype = gradients[w].dtype;
    call.op = DSC_OP_SUM;
    call.send = call.recv = gradients[w].data;
    call.count = gradients[w].count;
    call.stream = stream;
    call.nonfinite = group.comm->nonfinite()->check_for(call.dtype);
    std::snprintf(call.note, sizeof call.note, "%s", weights_[w].label.c_str());
    calls.push_back(call);
  }
  if (calls.size() == 1)
    group.comm->run(calls[0]);
  else
    group.comm->run_batch(calls);
}

int32_t TiedLayers::owner(const std::string& key) const {
  const auto found = std::ranges::find(owners_, key, &Owner::key);
  if (found != owners_.end()) return found->stage;
  fail(DSC_ERR_INVALID_ARG, "unknown key '%s'; expected one of: %s", clipped(key, 100).c_str(),
       clipped(joined(owners_, ", ", &Owner::key), 300).c_str());
}

void TiedLayers::close() noexcept {
  for (const Group& group : groups_) group.comm->leave();
}

}  // namespace dsc
