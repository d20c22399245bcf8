// Tied layers: several stages of a pipeline hold the same weights. The weights are made equal at the start.
// They stay equal because their gradients are summed over these stages.
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
  std::vector<Tensor> weights;  // this rank's weights; empty if its stage holds none
};

struct TiedRequest {
  // An error in this rank's arguments. If it is set, the fields after `text` are not read.
  dsc_result_t code = DSC_OK;
  std::string text;
  std::vector<TiedKey> keys;
  // The ranks of all stages of pipeline 0, then those of pipeline 1, and so on. If the list is empty, there
  // is one pipeline and rank s is stage s.
  std::vector<int32_t> ranks;
  int32_t stages = 0;     // used if `ranks` is not empty
  int32_t pipelines = 0;  // used if `ranks` is not empty
  int32_t sync = 1;
};

class TiedLayers {
 public:
  // Collective. If a rank has an error or ranks differ, all ranks throw the same error, and `comm` stays
  // usable.
  static std::shared_ptr<TiedLayers> create(Comm& comm, TiedRequest request);

  // Collective among the ranks that share weights. Each gradient is replaced by its sum over these ranks.
  // Gradients are in the order of this rank's weights in create().
  void reduce(std::span<const Tensor> gradients, void* stream);

  // These functions may be called from any thread.
  int32_t owner(const std::string& key) const;
  int32_t stage() const noexcept { return stage_; }
  void close() noexcept;  // ends this rank's participation

  // True while a call uses this object, to detect calls from a second thread.
  std::atomic<bool> in_call{false};

 private:
  // The weights of all keys that are on the same stages.
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
  std::vector<Owner> owners_;    // one entry per key
  std::vector<Weight> weights_;  // weights of this rank in the caller's order
  std::vector<Group> groups_;    // groups of this rank, in the order of their first keys
};

}  // namespace dsc
