#include "pipeline_run/plan_handshake.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/fixed_text.hpp"
#include "base/hash.hpp"
#include "comm/gather.hpp"
#include "comm/tensor.hpp"

namespace dsc {
namespace {

// The data that ranks exchange before every run. It contains hashes instead of texts, so that it is short.
struct Summary {
  uint64_t schedule;
  uint64_t inputs;
  uint64_t outputs;
  uint64_t bytes;
  uint64_t held_bytes;
  uint64_t channel;
  int32_t code;
  int32_t wants_loss;
};

// The full texts of the description. Ranks exchange them only after a mismatch, to explain it in the error
// message.
struct Words {
  std::array<char, 384> text;
  std::array<char, 256> schedule;
  std::array<char, 256> inputs;
  std::array<char, 256> outputs;
};

template <typename T>
std::vector<T> gather(Comm& comm, const T& mine) {
  std::vector<T> all(static_cast<size_t>(comm.size()));
  gather_bytes(comm, OpKind::kPipeRun, 0, &mine, all.data(), sizeof mine);
  return all;
}

template <size_t N>
void copy_words(std::array<char, N>& target, const std::string& words) {
  std::snprintf(target.data(), N, "%s", clipped(words, N - 1).c_str());
}

using Edges = std::vector<std::pair<int, int>>;

bool differ(const std::vector<Summary>& all, const std::pair<int, int>& edge) {
  return all[static_cast<size_t>(edge.first)].outputs != all[static_cast<size_t>(edge.second)].inputs;
}

// Returns whether the descriptions of all ranks match. `edges` is the same on all ranks whose schedules are
// equal.
bool fits(const std::vector<Summary>& all, const Edges& edges) {
  for (const Summary& one : all)
    if (one.code != DSC_OK || one.schedule != all[0].schedule) return false;
  return std::ranges::none_of(edges, [&](const auto& edge) { return differ(all, edge); });
}

// Throws an error that explains the first mismatch. All ranks find the same mismatch.
[[noreturn]] void explain(const std::vector<Summary>& all, const std::vector<Words>& words,
                          const Edges& edges) {
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].code != DSC_OK)
      fail(all[rank].code, "rank %zu: %s", rank, bounded_text(words[rank].text).c_str());
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].schedule != all[0].schedule)
      fail(DSC_ERR_MISMATCH, "the stages disagree about the schedule: rank 0 runs %s, rank %zu runs %s",
           bounded_text(words[0].schedule).c_str(), rank, bounded_text(words[rank].schedule).c_str());
  for (const auto& edge : edges)
    if (differ(all, edge))
      fail(DSC_ERR_MISMATCH, "the outputs of rank %d are %s, but the inputs of rank %d are %s", edge.first,
           bounded_text(words[static_cast<size_t>(edge.first)].outputs).c_str(), edge.second,
           bounded_text(words[static_cast<size_t>(edge.second)].inputs).c_str());
  fail(DSC_ERR_INTERNAL, "the stages do not match, for an unknown reason");
}

}  // namespace

PipeAgreement agree(Comm& comm, const PipeSignature& signature) {
  const Summary mine{.schedule = fnv1a(signature.schedule),
                     .inputs = fnv1a(signature.inputs),
                     .outputs = fnv1a(signature.outputs),
                     .bytes = signature.bytes,
                     .held_bytes = signature.held_bytes,
                     .channel = signature.channel,
                     .code = signature.code,
                     .wants_loss = signature.wants_loss ? 1 : 0};
  const std::vector<Summary> all = gather(comm, mine);
  if (!fits(all, signature.edges)) {
    Words words{};
    copy_words(words.text, signature.text);
    copy_words(words.schedule, signature.schedule);
    copy_words(words.inputs, signature.inputs);
    copy_words(words.outputs, signature.outputs);
    explain(all, gather(comm, words), signature.edges);
  }
  PipeAgreement agreement;
  for (const Summary& one : all) {
    agreement.bytes = std::max<size_t>(agreement.bytes, one.bytes);
    agreement.fresh =
        agreement.fresh || one.channel == 0 || one.channel != all[0].channel || one.bytes > one.held_bytes;
    agreement.wants_loss = agreement.wants_loss || one.wants_loss != 0;
  }
  return agreement;
}

}  // namespace dsc
