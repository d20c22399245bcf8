// Weights that several stages of a pipeline hold: equal at the start, and kept so by the sum of their
// gradients.
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
  std::vector<int32_t> stages;  // that hold it
  std::vector<Tensor> weights;  // of this rank, where its stage is one of them
};

struct TiedRequest {
  dsc_result_t code = DSC_OK;  // what is wrong with this rank's arguments; then nothing else is read
  std::string text;
  std::vector<TiedKey> keys;
  std::vector<int32_t> ranks;  // of the stages of pipeline 0, then of 1, ...; empty: the rank is the stage
  int32_t stages = 0;          // with ranks
  int32_t pipelines = 0;       // with ranks
  int32_t sync = 1;
};

class TiedLayers {
 public:
  // Collective. Whatever is wrong on one rank, and whatever ranks disagree about, is the same error on all,
  // and comm keeps working.
  static std::shared_ptr<TiedLayers> create(Comm& comm, TiedRequest request);

  // Collective among the ranks that share something: each gradient becomes the sum over them. In the order of
  // this rank's weights as they were given to create().
  void reduce(std::span<const Tensor> gradients, void* stream);

  // Any thread.
  int32_t owner(const std::string& key) const;
  int32_t stage() const noexcept { return stage_; }
  void close() noexcept;  // takes no further part

  // Set while a call is inside: one thread at a time.
  std::atomic<bool> in_call{false};

 private:
  // Keys that the same stages hold.
  struct Group {
    std::shared_ptr<Comm> comm;
    std::vector<size_t> weights;  // places in weights_
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
  std::vector<Weight> weights_;  // of this rank, in the caller's order
  std::vector<Group> groups_;    // that this rank is in, in the order of their first keys
};

}  // namespace dsc
