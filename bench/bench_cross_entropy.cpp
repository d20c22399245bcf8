// Measures cross entropy over a divided vocabulary, and for comparison a pass that only reads the logits and
// a pass that copies them: dscrun -n RANKS bench_cross_entropy [TOKENS VOCAB ROUNDS]. Rank 0 prints
// milliseconds of the slowest rank in the best round.
#include <dsc/dsc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

namespace {

struct Size {
  size_t tokens, vocab;
  int rounds;
};

void ok(dsc_result_t result) {
  if (result >= 0) return;
  std::fprintf(stderr, "%s\n", dsc_last_error_message());
  std::exit(1);
}

dsc_comm_t* world() {
  dsc_comm_t* comm = nullptr;
  ok(dsc_world(&comm));
  return comm;
}

// Returns the time of the slowest rank in the best round.
double milliseconds(int rounds, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds + 1; ++round) {  // the first round warms up
    ok(dsc_barrier(world(), nullptr, nullptr));
    const auto begin = Clock::now();
    run();
    double time = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    ok(dsc_all_reduce(world(), &time, &time, 1, DSC_DTYPE_F64, DSC_OP_MAX, nullptr, nullptr));
    if (round > 0) best = std::min(best, time);
  }
  return best;
}

// Uses eight sums, so that only the memory limits the speed.
uint64_t read(const std::vector<uint64_t>& words) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= words.size(); i += 8)
    for (size_t k = 0; k < 8; ++k) sums[k] += words[i + k];
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// Fills the array with small numbers of either sign, which every type can represent.
void fill(std::vector<uint64_t>& words, dsc_dtype_t dtype) {
  uint64_t random = 1;
  for (uint64_t& word : words) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const auto value = [&](int i) { return static_cast<float>(random >> (8 * i + 32) & 15) / 2 - 4; };
    uint32_t halves[2];
    for (int i = 0; i < 2; ++i) {
      const float number = value(i);
      std::memcpy(&halves[i], &number, sizeof number);
      if (dtype == DSC_DTYPE_BF16) halves[i] = (halves[i] & 0xffff0000) | halves[i] >> 16;
    }
    std::memcpy(&word, halves, sizeof word);
  }
}

void measure(const Size& size, dsc_dtype_t dtype, const char* name) {
  int32_t rank = 0, ranks = 0;
  ok(dsc_comm_rank(world(), &rank));
  ok(dsc_comm_size(world(), &ranks));
  const size_t n = static_cast<size_t>(ranks);
  const size_t columns = size.vocab / n + (static_cast<size_t>(rank) < size.vocab % n ? 1 : 0);
  const size_t bytes = size.tokens * columns * (dtype == DSC_DTYPE_BF16 ? 2 : 4);
  std::vector<uint64_t> logits(bytes / 8 + 1), gradient(logits.size());
  fill(logits, dtype);
  std::vector<int64_t> targets(size.tokens);
  for (size_t t = 0; t < size.tokens; ++t) targets[t] = static_cast<int64_t>(t * 7919 % size.vocab);
  std::vector<float> loss(size.tokens);
  std::vector<double> state(2 * size.tokens);

  uint64_t sum = 0;
  const double read_ms = milliseconds(size.rounds, [&] { sum += read(logits); });
  const double copy_ms =
      milliseconds(size.rounds, [&] { std::memcpy(gradient.data(), logits.data(), bytes); });
  const double forward_ms = milliseconds(size.rounds, [&] {
    ok(dsc_vocab_cross_entropy_forward(world(), logits.data(), targets.data(), size.tokens, size.vocab, dtype,
                                       nullptr, loss.data(), state.data()));
  });
  const auto backward = [&](void* out) {
    ok(dsc_vocab_cross_entropy_backward(world(), logits.data(), targets.data(), size.tokens, size.vocab,
                                        dtype, nullptr, state.data(), nullptr, out));
  };
  const double backward_ms = milliseconds(size.rounds, [&] { backward(gradient.data()); });
  const double in_place_ms = milliseconds(size.rounds, [&] { backward(logits.data()); });
  if (rank == 0)
    std::printf(
        "%-5s %d ranks: read %.2f, copy %.2f, forward %.2f (%.2f reads), backward %.2f (%.2f copies), "
        "in place %.2f%s\n",
        name, ranks, read_ms, copy_ms, forward_ms, forward_ms / read_ms, backward_ms, backward_ms / copy_ms,
        in_place_ms, sum == 1 ? "." : "");
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, size_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  const Size size{number(1, 512), number(2, 50304), static_cast<int>(number(3, 15))};
  dsc_comm_t* comm = nullptr;
  ok(dsc_init_distributed(nullptr, &comm));
  measure(size, DSC_DTYPE_F32, "f32");
  measure(size, DSC_DTYPE_BF16, "bf16");
  ok(dsc_finalize());
  return 0;
}
