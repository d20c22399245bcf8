// Uneven inputs, like PyTorch's Join. A rank that has run out of batches contributes zeros to the collectives
// of the other ranks until all ranks have run out.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"
#include "reducer/join_gate.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

struct JoinOptions {
  bool divide_by_initial = true;  // if false, means are over the ranks that still have batches
  bool throw_on_early_end = false;
};

class Join final : public JoinGate {
 public:
  // Collective. Throws STATE if a reducer is inside an iteration or under another join, and INVALID_ARG if a
  // reducer has other ranks than comm. If this happens on one rank, all ranks throw.
  static std::shared_ptr<Join> create(Comm& comm, std::vector<std::shared_ptr<Reducer>> reducers,
                                      const JoinOptions& options);
  Join(std::shared_ptr<Comm> group, std::vector<std::shared_ptr<Reducer>> reducers,
       const JoinOptions& options);
  ~Join() override;

  // Collective, called when this rank has no more batches. Takes part in the operations of the other ranks
  // until all ranks have called it. Then copies the tensors of the rank that finished last to all ranks. If
  // several ranks finished last, uses the highest of them. Returns that rank.
  int finish(std::span<const Tensor> params);

  JoinParticipants announce(const Reducer& reducer, JoinStep step) override;
  void interrupt() noexcept override;

  void close() noexcept;

 private:
  struct Word;
  static bool is_active(const Word& word) noexcept;
  std::vector<Word> exchange(int32_t reducer, JoinStep step);
  void check_early_end(const std::vector<Word>& words) const;
  void shadow(const std::vector<Word>& words);
  JoinParticipants participants_of(const std::vector<Word>& words) const;
  void detach() noexcept;

  const std::shared_ptr<Comm> group_;
  const std::vector<std::shared_ptr<Reducer>> reducers_;
  const JoinOptions options_;
  std::vector<bool> active_;  // in the latest step, by rank
  bool is_over_ = false;
  std::atomic<bool> exchanging_{false};  // whether this rank is waiting for the step of the other ranks
};

}  // namespace dsc
