// Tied layers: weights that several stages of a pipeline hold. They are made equal at the start and stay
// equal because their gradients are summed.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

struct TiedKey {
  std::string key;
  std::vector<int32_t> stages;  // stages that hold the weights
  std::vector<Tensor> weights;  // this rank's weights if its stage is one of them
};

struct TiedRequest {
  dsc_result_t code = DSC_OK;  // error in this rank's arguments; then other fields are not read
  std::string text;
  std::vector<TiedKey> keys;
  std::vector<int32_t> ranks;  // ranks of the stages of pipeline 0, then of 1, ...; empty: rank = stage
  int32_t stages = 0;          // used if `ranks` is not empty
  int32_t pipelines = 0;       // used if `ranks` is not empty
  int32_t sync = 1;
};

class TiedLayers {
 public:
  // Collective. An error on one rank and a difference between ranks throw the same error on all ranks, and
  // comm stays usable.
  static std::shared_ptr<TiedLayers> create(Comm& comm, TiedRequest request);

  // Collective among ranks that share weights: each gradient becomes the sum over these ranks. Gradients
  // are in the order of this rank's weights in create().
  void reduce(std::span<const Tensor> gradients, void* stream);

  // Any thread.
  int32_t owner(const std::string& key) const;
  int32_t stage() const noexcept { return stage_; }
  void close() noexcept;  // ends this rank's part

  // True while a call uses this object, so that a second thread can be refused.
  std::atomic<bool> in_call{false};

 private:
  // The weights of all keys that the same stages hold.
  struct Group {
    std::shared_ptr<Comm> comm;
    std::vector<size_t> weights;  // indices in weights_
  };
  struct Weight {
    std::string label;
    size_t count;
  };
  struct Owner {
    std::string key;
    int32_t stage;
  };

  void note_weights(const std::vector<TiedKey>& keys);
  void make_groups(Comm& comm, const TiedRequest& request, int32_t pipeline);
  void copy_weights(const TiedRequest& request) const;
  void reduce_group(const Group& group, std::span<const Tensor> gradients, void* stream) const;
  void check_gradients(std::span<const Tensor> gradients, const void* stream) const;

  int32_t stage_ = 0;
  std::vector<Owner> owners_;    // by key
  std::vector<Weight> weights_;  // weights of this rank in the caller's order
  std::vector<Group> groups_;    // groups of this rank, in the order of their first keys
};

}  // namespace dsc
