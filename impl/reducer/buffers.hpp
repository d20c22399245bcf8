// Tensors of a model that are not parameters (PyTorch's buffers), such as running means.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/comm.hpp"
#include "gradients/param_list.hpp"
#include "reducer/join_gate.hpp"

namespace dsc {

// One thread at a time.
class Buffers {
 public:
  bool any() const noexcept { return !data_.empty(); }
  void require() const;  // throws STATE if there is no list

  // Collective: replaces the list. If a tensor differs between ranks or cannot be used, throws the same error
  // on all ranks.
  void set(Comm& group, std::span<const Tensor> buffers);

  // Collective: `how` is a dsc_buffer_sync_t. Broadcasts from participants.first_rank, or computes the mean
  // over participants.active ranks, to which this one belongs if it `contributes`. Integers are always
  // broadcast.
  void sync(Comm& group, int32_t how, const JoinParticipants& participants, bool contributes);

 private:
  std::vector<Tensor> select(bool on_device, bool mean, int32_t how) const;
  void sync_part(Comm& group, std::span<const Tensor> part, bool mean, const JoinParticipants& participants,
                 bool contributes) const;

  std::unique_ptr<ParamList> list_;
  std::vector<void*> data_;
};

}  // namespace dsc
