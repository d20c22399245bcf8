// The least that an implementation of an operation on shared memory must do: copy or add data that its owner
// has just written, with one mark per rank and wait, and nothing else. All buffers are in one mapping.
// The floor checks nothing and records nothing, and none of its calls can fail.
//
// No way of dividing the work is the fastest at all sizes, so several are timed, and the fastest one counts.
#include <cstring>
#include <string>
#include <vector>

#include "floor_blocks.hpp"
#include "floor_kernel.hpp"
#include "floor_memory.hpp"
#include "harness.hpp"

namespace {

using bench::Block;
using bench::Call;
using bench::Op;

enum class Way {
  staged,   // each rank copies its input next to its mark, and makes its output from the copies
  pull,     // each rank makes its output from the other ranks' inputs
  push,     // each rank writes its input to the other ranks' outputs
  divided,  // each rank makes a part of every output
};

struct Variant {
  Way way;
  bool late_looks;
  bool non_temporal;
};

std::string name_of(const Variant& variant) {
  constexpr const char* names[] = {"staged", "pull", "push", "divided"};
  return std::string(names[static_cast<size_t>(variant.way)]) + (variant.late_looks ? ", late looks" : "") +
         (variant.non_temporal ? ", non-temporal" : "");
}

std::vector<Way> ways(Op op) {
  switch (op) {
    case Op::all_reduce:  // in place, so no rank may write its output while others read its input
      return {Way::staged, Way::divided};
    case Op::reduce:
    case Op::broadcast:
    case Op::send_recv:
      return {Way::staged, Way::pull, Way::divided};
    case Op::all_gather:
    case Op::all_to_all:
    case Op::gather:
      return {Way::staged, Way::pull, Way::push};
    case Op::reduce_scatter:
    case Op::scatter:
      return {Way::staged, Way::pull};
    default:
      return {Way::pull};
  }
}

// Small inputs may be staged, and stores of large outputs may bypass the caches.
std::vector<Variant> variants_of(const bench::Job& job) {
  constexpr size_t late_until = 16 << 10, non_temporal_from = 1 << 20;
  const size_t largest_input = bench::Shape(job.op, job.bytes, bench::root, job.ranks).in;
  std::vector<Variant> found;
  for (const Way way : ways(job.op)) {
    const bool staged = way == Way::staged;
    if (staged && largest_input > bench::FloorMemory::stage_elements) continue;
    found.push_back({way, false, false});
    if (job.bytes <= late_until) found.push_back({way, true, false});
    if (!staged && job.bytes >= non_temporal_from) found.push_back({way, false, true});
  }
  return found;
}

class FloorEngine : public bench::Engine {
 public:
  explicit FloorEngine(const bench::Job& job)
      : rank_(bench::rank_from_environment()),
        shape_(job.op, job.bytes, rank_, job.ranks),
        memory_(job, rank_),
        variants_(variants_of(job)) {}

  int rank() const override { return rank_; }
  float* allocate(size_t count) override { return buffers_[allocated_++] = memory_.allocate(count); }
  void release(float*) override {}

  std::vector<std::string> variants(Op) const override {
    std::vector<std::string> names;
    for (const Variant& variant : variants_) names.push_back(name_of(variant));
    return names;
  }

  void call(const Call& c) override {
    const Variant& variant = variants_[static_cast<size_t>(c.variant)];
    memory_.set_late_looks(variant.late_looks);
    if (c.op == Op::send_recv) return round_trip(c, variant);
    begin(variant, bench::sends(c.op, rank_) ? c.in : nullptr, shape_.in);
    if (c.op == Op::barrier)
      wait_for_all(c);
    else if (bench::is_sum(c.op))
      add(c, variant);
    else
      copy(c, variant);
    if (variant.way == Way::push || variant.way == Way::divided) end(c);
  }

 private:
  float* input(const Variant& variant, int rank) const {
    return variant.way == Way::staged ? memory_.stage(rank, started_) : memory_.of_rank(buffers_[0], rank);
  }
  float* output(int rank) const { return memory_.of_rank(buffers_[allocated_ - 1], rank); }

  void begin(const Variant& variant, const float* data, size_t elements) {
    ++started_;
    if (variant.way == Way::staged && data)
      std::memcpy(memory_.stage(rank_, started_), data, elements * sizeof(float));
    memory_.set_arrived(started_);
  }

  // Only ranks whose output others have written have to wait for them.
  void end(const Call& c) const {
    memory_.set_done(started_);
    if (!c.out) return;
    for (int r = 0; r < c.ranks; ++r) memory_.wait_done(r, started_);
  }

  void wait_for_all(const Call& c) const {
    for (int r = 0; r < c.ranks; ++r) memory_.wait_arrived(r, started_);
  }

  // Returns the index-th part of a contiguous block, in whole cache lines except for its end.
  static Block part(const Block& block, int index, int parts) {
    constexpr size_t line = 16;  // elements
    const auto start = [&](int i) {
      return i == parts ? block.width
                        : block.width / line * static_cast<size_t>(i) / static_cast<size_t>(parts) * line;
    };
    const size_t first = start(index);
    return {.rows = 1,
            .width = start(index + 1) - first,
            .from_offset = block.from_offset + first,
            .to_offset = block.to_offset + first};
  }

  void copy(const Call& c, const Variant& variant) {
    for (int turn = 0; turn < c.ranks; ++turn) {  // ranks begin with different peers
      for (int step = 0; step < c.ranks; ++step) {
        const int from = (rank_ + turn) % c.ranks, to = (rank_ + step) % c.ranks;
        if (variant.way == Way::push ? from != rank_ : variant.way != Way::divided && to != rank_) continue;
        Block block = bench::block_between(c, from, to);
        if (block.rows == 0) continue;
        if (variant.way == Way::divided) block = part(block, rank_, c.ranks);
        memory_.wait_arrived(from, started_);
        memory_.wait_arrived(to, started_);
        copy(block, input(variant, from), output(to), variant.non_temporal);
      }
    }
  }

  static void copy(const Block& block, const float* from, float* to, bool non_temporal) {
    for (size_t row = 0; row < block.rows; ++row) {
      const float* const source = from + block.from_offset + row * block.from_stride;
      float* const target = to + block.to_offset + row * block.to_stride;
      if (non_temporal)
        bench::sum(&source, 1, &target, 1, block.width, true);
      else
        std::memcpy(target, source, block.width * sizeof(float));
    }
  }

  void add(const Call& c, const Variant& variant) {
    const bool divided = variant.way == Way::divided;
    if (!divided && !c.out) return;
    wait_for_all(c);
    const int to = c.op == Op::reduce ? bench::root : rank_;
    Block block = bench::block_between(c, rank_, to);
    if (divided) block = part(block, rank_, c.ranks);
    targets_.clear();
    for (int r = 0; r < c.ranks; ++r)
      if (r == to || (divided && c.op == Op::all_reduce)) targets_.push_back(output(r) + block.to_offset);
    sources_.clear();
    for (int r = 0; r < c.ranks; ++r) sources_.push_back(input(variant, r) + block.from_offset);
    for (size_t row = 0; row < block.rows; ++row) {
      bench::sum(sources_.data(), sources_.size(), targets_.data(), targets_.size(), block.width,
                 variant.non_temporal);
      for (const float*& source : sources_) source += block.from_stride;
      for (float*& target : targets_) target += block.to_stride;
    }
  }

  // A message from each even rank to its neighbor, which returns it.
  void round_trip(const Call& c, const Variant& variant) {
    leg(c, variant, 0, buffers_[0]);
    leg(c, variant, 1, buffers_[1]);
  }

  // Ranks of this parity send the buffer to their neighbors.
  void leg(const Call& c, const Variant& variant, int parity, float* own_buffer) {
    const bool is_sender = rank_ % 2 == parity;
    const int peer = rank_ ^ 1, sender = is_sender ? rank_ : peer, receiver = is_sender ? peer : rank_;
    begin(variant, is_sender ? own_buffer : nullptr, c.count);
    const float* const from =
        variant.way == Way::staged ? memory_.stage(sender, started_) : memory_.of_rank(own_buffer, sender);
    Block block{.rows = 1, .width = c.count};
    if (variant.way == Way::divided)
      block = part(block, is_sender, 2);
    else if (is_sender)
      return;
    memory_.wait_arrived(peer, started_);
    copy(block, from, output(receiver), variant.non_temporal);
    if (variant.way != Way::divided) return;
    memory_.set_done(started_);
    if (!is_sender) memory_.wait_done(peer, started_);
  }

  int rank_;
  bench::Shape shape_;
  bench::FloorMemory memory_;
  std::vector<Variant> variants_;
  float* buffers_[2] = {};  // the input, and the output unless it is in place
  size_t allocated_ = 0;
  uint32_t started_ = 0;
  std::vector<const float*> sources_;  // members, so that a call allocates no memory
  std::vector<float*> targets_;
};

void body(const bench::Job& job) {
  FloorEngine engine(job);
  bench::measure(engine, job);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
