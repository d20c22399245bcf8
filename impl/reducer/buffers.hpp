// Tensors of a model that are not parameters (PyTorch's buffers), such as running means.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/comm.hpp"
#include "gradients/param_list.hpp"
#include "reducer/join_gate.hpp"

namespace dsc {

// Only one thread at a time may use an object.
class Buffers {
 public:
  bool any() const noexcept { return !data_.empty(); }
  void require() const;  // throws STATE if set() was not called

  // Collective. Replaces the list of buffers. If a tensor differs between ranks or cannot be used, throws the
  // same error on all ranks.
  void set(Comm& group, std::span<const Tensor> buffers);

  // Collective. Either broadcasts the buffers from participants.first_rank, or replaces them by their mean
  // over the participants; `how` is a dsc_buffer_sync_t. A rank is a participant if `contributes` is true.
  // Integers are always broadcast.
  void sync(Comm& group, int32_t how, const JoinParticipants& participants, bool contributes);

 private:
  std::vector<Tensor> select(bool on_device, bool mean, int32_t how) const;
  void sync_part(Comm& group, std::span<const Tensor> part, bool mean, const JoinParticipants& participants,
                 bool contributes) const;

  std::unique_ptr<ParamList> list_;
  std::vector<void*> data_;
};

}  // namespace dsc
