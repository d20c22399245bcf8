#include "pipeline_support.hpp"

#include <algorithm>
#include <map>
#include <utility>

using dsc::Instruction;
using dsc::PipeOp;
using dsc::Placement;

List rest_of(dsc::Schedule& schedule) {
  List list;
  for (Instruction it; schedule.next(it);) list.push_back(it);
  return list;
}

std::string to_text(const Instruction& it) {
  return "step " + std::to_string(it.step) + ": " + pipe_op_name(it.op) + " of micro-batch " +
         std::to_string(it.micro_batch) + " in chunk " + std::to_string(it.chunk) + ", buffer " +
         std::to_string(it.buffer) + ", peer " + std::to_string(it.peer);
}

namespace {

enum Has : unsigned {
  kLoaded = 1,
  kInput = 2,
  kForward = 4,
  kOutputGrad = 8,
  kInputHalf = 16,
  kWeightHalf = 32
};

class Rendezvous {
 public:
  Rendezvous(const std::vector<List>& lists, const Placement& placement, int32_t micro_batches,
             const Costs& costs)
      : lists_(lists),
        placement_(placement),
        micro_batches_(micro_batches),
        costs_(costs),
        positions_(lists.size(), 0),
        clocks_(lists.size(), 0),
        has_(static_cast<size_t>(placement.parts()) * static_cast<size_t>(micro_batches), 0) {}

  Outcome run() {
    for (bool moved = true; moved && problem_.empty();) {
      moved = false;
      for (size_t s = 0; s < lists_.size(); ++s)
        while (problem_.empty() && advance(s)) moved = true;
    }
    for (size_t s = 0; s < lists_.size() && problem_.empty(); ++s)
      if (head(s)) problem_ = "stage " + std::to_string(s) + " hangs at " + to_text(*head(s));
    return {problem_, *std::max_element(clocks_.begin(), clocks_.end())};
  }

 private:
  const Instruction* head(size_t s) const {
    return positions_[s] < lists_[s].size() ? &lists_[s][positions_[s]] : nullptr;
  }
  int32_t part(size_t s, const Instruction& it) const {
    return placement_.part(static_cast<int32_t>(s), it.chunk);
  }
  unsigned& has(int32_t part, int32_t micro_batch) {
    return has_[static_cast<size_t>(part) * static_cast<size_t>(micro_batches_) +
                static_cast<size_t>(micro_batch)];
  }
  void need(size_t s, const Instruction& it, int32_t part, unsigned what) {
    if ((has(part, it.micro_batch) & what) != what)
      problem_ = "stage " + std::to_string(s) + " is not ready for " + to_text(it);
  }
  bool here(size_t s, int32_t part) const { return placement_.stage(part) == static_cast<int32_t>(s); }

  bool advance(size_t s) {
    const Instruction* it = head(s);
    if (!it) return false;
    switch (it->op) {
      case PipeOp::kSendActivation:
        return meet(s, *it, PipeOp::kRecvActivation, 1, kForward, kInput);
      case PipeOp::kSendGrad:
        return meet(s, *it, PipeOp::kRecvGrad, -1, kInputHalf, kOutputGrad);
      case PipeOp::kRecvActivation:
      case PipeOp::kRecvGrad:
        return false;  // a receive advances together with its send
      default:
        compute(s, *it);
        ++positions_[s];
        return true;
    }
  }

  bool meet(size_t s, const Instruction& sent, PipeOp receives, int32_t direction, unsigned made,
            unsigned becomes) {
    const auto to = static_cast<size_t>(sent.peer);
    const Instruction* other = head(to);
    if (!other || other->op != receives || other->peer != static_cast<int32_t>(s)) return false;
    if (other->micro_batch != sent.micro_batch || part(to, *other) != part(s, sent) + direction) {
      problem_ = to_text(sent) + " meets " + to_text(*other);
      return false;
    }
    need(s, sent, part(s, sent), made);
    has(part(to, *other), other->micro_batch) |= becomes;
    clocks_[s] = clocks_[to] = std::max(clocks_[s], clocks_[to]);
    ++positions_[s];
    ++positions_[to];
    return true;
  }

  void compute(size_t s, const Instruction& it) {
    if (it.op == PipeOp::kLoadMicroBatch) has(part(s, it), it.micro_batch) |= kLoaded;
    if (it.op == PipeOp::kForward) forward(s, it);
    if (it.op == PipeOp::kBackward || it.op == PipeOp::kBackwardInput) input_half(s, it);
    if (it.op == PipeOp::kBackward || it.op == PipeOp::kBackwardWeight) {
      need(s, it, part(s, it), kInputHalf);
      has(part(s, it), it.micro_batch) |= kWeightHalf;
      clocks_[s] += costs_.backward_weight;
    }
  }

  void forward(size_t s, const Instruction& it) {
    const int32_t p = part(s, it);
    if (p == 0 || p == placement_.parts() - 1) need(s, it, p, kLoaded);
    if (p > 0) need(s, it, here(s, p - 1) ? p - 1 : p, here(s, p - 1) ? kForward : kInput);
    has(p, it.micro_batch) |= kForward;
    clocks_[s] += costs_.forward;
  }

  void input_half(size_t s, const Instruction& it) {
    const int32_t p = part(s, it);
    need(s, it, p, kForward);
    if (p + 1 < placement_.parts())
      need(s, it, here(s, p + 1) ? p + 1 : p, here(s, p + 1) ? kInputHalf : kOutputGrad);
    has(p, it.micro_batch) |= kInputHalf;
    clocks_[s] += costs_.backward_input;
  }

  const std::vector<List>& lists_;
  const Placement placement_;
  const int32_t micro_batches_;
  const Costs costs_;
  std::vector<size_t> positions_;
  std::vector<int64_t> clocks_;
  std::vector<unsigned> has_;
  std::string problem_;
};

using Key = std::pair<int32_t, int32_t>;  // chunk and micro-batch

class Buffers {
 public:
  Buffers(int32_t stage, const Placement& placement, bool is_training)
      : stage_(stage), placement_(placement), is_training_(is_training) {}

  void see(const Instruction& it) {
    if (it.buffer < 0) return;
    const Key key{it.chunk, it.micro_batch};
    const bool begins =
        it.op == PipeOp::kLoadMicroBatch || it.op == PipeOp::kRecvActivation || it.op == PipeOp::kForward;
    const auto owner = owners_.find(it.buffer);
    if (owner == owners_.end() ? !begins : owner->second != key) {
      use_.problem = to_text(it) + ": the buffer " + (begins ? "is still in use" : "does not hold it");
      return;
    }
    if (owner == owners_.end()) {
      owners_[it.buffer] = key;
      use_.peak = std::max(use_.peak, static_cast<int32_t>(owners_.size()));
      const int32_t part = placement_.part(stage_, it.chunk);
      users_[key] = is_training_ ? 1 + (part > 0) + is_here(part + 1) : 1;
    }
    ended_by(it);
  }

  const BufferUse& use() const { return use_; }

 private:
  bool is_here(int32_t part) const {
    return part >= 0 && part < placement_.parts() && placement_.stage(part) == stage_;
  }

  // In training a batch's buffer has these users: the computation of the weights' gradients, the send of the
  // input's gradient, and neighboring parts on this stage, which read it. Without training the user of the
  // output is the last one.
  void ended_by(const Instruction& it) {
    const int32_t part = placement_.part(stage_, it.chunk);
    const bool is_weight_half = it.op == PipeOp::kBackward || it.op == PipeOp::kBackwardWeight;
    const bool is_last = part == placement_.parts() - 1;
    if (is_training_ ? is_weight_half || it.op == PipeOp::kSendGrad
                     : it.op == (is_last ? PipeOp::kForward : PipeOp::kSendActivation))
      drop({it.chunk, it.micro_batch}, it.buffer);
    for (const int32_t neighbour : {part + 1, part - 1})
      if (is_training_ && is_weight_half && is_here(neighbour)) drop_part(neighbour, it);
    if (!is_training_ && it.op == PipeOp::kForward && is_here(part - 1)) drop_part(part - 1, it);
  }

  void drop_part(int32_t part, const Instruction& it) {
    const Key there{placement_.chunk(part), it.micro_batch};
    for (const auto& [buffer, key] : owners_)
      if (key == there) return drop(there, buffer);
    use_.problem = to_text(it) + ": what it reads of a neighbour here has no buffer";
  }

  void drop(const Key& key, int32_t buffer) {
    if (--users_[key] == 0) owners_.erase(buffer);
  }

  const int32_t stage_;
  const Placement placement_;
  const bool is_training_;
  std::map<int32_t, Key> owners_;
  std::map<Key, int> users_;
  BufferUse use_;
};

}  // namespace

Outcome run_rendezvous(const std::vector<List>& lists, const Placement& placement, int32_t micro_batches,
                       const Costs& costs) {
  return Rendezvous(lists, placement, micro_batches, costs).run();
}

BufferUse follow_buffers(const List& list, int32_t stage, const Placement& placement, bool is_training) {
  Buffers buffers(stage, placement, is_training);
  for (const Instruction& it : list) {
    buffers.see(it);
    if (!buffers.use().problem.empty()) break;
  }
  return buffers.use();
}
