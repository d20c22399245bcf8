#include "tied/tied_check.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/hash.hpp"
#include "base/joined.hpp"
#include "comm/agreement.hpp"
#include "comm/gather.hpp"

namespace dsc {
namespace {

constexpr uint64_t kTroubleTag = 11;  // tags distinguish these exchanges from others
constexpr uint64_t kPlanTag = 12;
constexpr uint64_t kShapesTag = 13;
constexpr uint64_t kWordsTag = 14;
constexpr size_t kShownKeyBytes = 120;  // limit for a value in messages

struct Trouble {
  int32_t code = DSC_OK;
  std::array<char, 380> text{};
};

template <typename T>
std::vector<T> gather(Comm& comm, uint64_t tag, std::span<const T> mine) {
  std::vector<T> all(mine.size() * static_cast<size_t>(comm.size()));
  gather_bytes(comm, OpKind::kVerify, tag, mine.data(), all.data(), mine.size_bytes());
  return all;
}

// ---- checks of this rank alone ----

void check_table(const TiedRequest& request, int size) {
  if (request.ranks.empty()) return;
  std::vector<bool> seen(static_cast<size_t>(size));
  for (size_t i = 0; i < request.ranks.size(); ++i) {
    const int32_t rank = request.ranks[i];
    if (rank < 0 || rank >= size)
      fail(DSC_ERR_INVALID_ARG, "options->ranks[%zu] is %d, expected 0 to %d", i, rank, size - 1);
    if (seen[static_cast<size_t>(rank)])
      fail(DSC_ERR_INVALID_ARG, "options->ranks has rank %d twice, expected each rank once", rank);
    seen[static_cast<size_t>(rank)] = true;
  }
  if (request.ranks.size() != seen.size())
    fail(DSC_ERR_INVALID_ARG, "options->ranks has %zu ranks (%d pipelines of %d stages), expected %d",
         request.ranks.size(), request.pipelines, request.stages, size);
}

void check_names(const TiedRequest& request) {
  std::vector<std::string> names;
  for (const TiedKey& key : request.keys) {
    if (key.key.empty()) fail(DSC_ERR_INVALID_ARG, "a key is empty, expected a name");
    if (key.key.find('\n') != std::string::npos)
      fail(DSC_ERR_INVALID_ARG, "a key has a line break, expected a name of one line");
    names.push_back(key.key);
  }
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    fail(DSC_ERR_INVALID_ARG, "keys has '%s' twice, expected each key once",
         clipped(*twice, kShownKeyBytes).c_str());
}

void check_stages(const TiedKey& key, int32_t stages) {
  if (key.stages.empty())
    fail(DSC_ERR_INVALID_ARG, "key '%s' is on no stage, expected one stage or more", key.key.c_str());
  std::vector<int32_t> sorted = key.stages;
  std::ranges::sort(sorted);
  if (sorted.front() < 0 || sorted.back() >= stages)
    fail(DSC_ERR_INVALID_ARG, "key '%s' is on stages %s, expected 0 to %d", key.key.c_str(),
         joined(sorted, ", ").c_str(), stages - 1);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    fail(DSC_ERR_INVALID_ARG, "key '%s' names stage %d twice, expected each stage once", key.key.c_str(),
         *twice);
}

void check_weights(Comm& comm, const TiedRequest& request, const TiedKey& key, int32_t stage) {
  const bool holds = std::ranges::find(key.stages, stage) != key.stages.end();
  if (holds == key.weights.empty())
    fail(DSC_ERR_INVALID_ARG,
         holds ? "key '%s' has no weights, but the stage of this rank (%d) holds it"
               : "key '%s' has weights, but the stage of this rank (%d) does not hold it",
         key.key.c_str(), stage);
  check_tensors(key.weights);
  if (const auto problem = first_problem(comm, key.weights, request.sync != 0))
    fail(problem->code, "key '%s': %s", key.key.c_str(), problem->text.c_str());
}

void check_own(Comm& comm, const TiedRequest& request) {
  if (request.code != DSC_OK) fail(request.code, "%s", request.text.c_str());
  check_table(request, comm.size());
  check_names(request);
  const int32_t stages = request.ranks.empty() ? comm.size() : request.stages;
  const int32_t stage = tied_position(request, comm.rank()).stage;
  const Tensor* first = nullptr;
  for (const size_t k : sorted_keys(request)) {
    const TiedKey& key = request.keys[k];
    check_stages(key, stages);
    check_weights(comm, request, key, stage);
    if (key.weights.empty()) continue;
    if (first && first->device != key.weights[0].device)
      fail(DSC_ERR_UNSUPPORTED,
           "the weights of key '%s' are on device %d and other weights on device %d, expected one device for "
           "all",
           key.key.c_str(), key.weights[0].device, first->device);
    first = key.weights.data();
  }
}

void share_trouble(Comm& comm, const TiedRequest& request) {
  Trouble mine;
  capture([&] { check_own(comm, request); },
          [&](dsc_result_t code, const char* text) {
            mine.code = code;
            const std::string words = clipped(text, mine.text.size() - 1);
            std::memcpy(mine.text.data(), words.c_str(), words.size());
          });
  const auto all = gather<Trouble>(comm, kTroubleTag, {&mine, 1});
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].code != DSC_OK) fail(all[rank].code, "rank %zu: %s", rank, all[rank].text.data());
}

// ---- comparison between ranks ----

// Returns the ranks of the pipelines, such as "0, 1 | 2, 3".
std::string pipelines_text(const TiedRequest& request) {
  std::string text;
  const std::span<const int32_t> ranks = request.ranks;
  const auto stages = static_cast<size_t>(request.stages);
  for (size_t first = 0; first < ranks.size(); first += stages)
    text += (first > 0 ? " | " : "") + joined(ranks.subspan(first, stages), ", ");
  return text;
}

std::vector<std::string> plan_lines(const TiedRequest& request) {
  std::vector<std::string> lines;
  if (request.ranks.empty())
    lines.emplace_back("one pipeline (stage = rank)");
  else
    lines.push_back(std::to_string(request.pipelines) + " pipelines (ranks " + pipelines_text(request) + ")");
  lines.emplace_back(request.sync ? "sync = true (copy the weights)"
                                  : "sync = false (do not copy the weights)");
  for (const size_t k : sorted_keys(request)) {
    std::vector<int32_t> stages = request.keys[k].stages;
    std::ranges::sort(stages);
    lines.push_back("key '" + request.keys[k].key + "' on stages " + joined(stages, ", "));
  }
  return lines;
}

std::string shown(const std::string& line) {
  return line.empty() ? "no further key" : clipped(line, kShownKeyBytes);
}

void check_plans(Comm& comm, const TiedRequest& request) {
  const auto found = find_disagreement(comm, kPlanTag, plan_lines(request));
  if (!found) return;
  fail(DSC_ERR_MISMATCH, "expected the same tied layers on all ranks, but rank 0 passed %s, and %s passed %s",
       shown(found->expected).c_str(), ranks_text(found->ranks).c_str(), shown(found->found).c_str());
}

std::string describe_all(const TiedKey& key) {
  return joined(key.weights, "; ", [](const Tensor& weight) { return describe(weight); });
}

// Collective. Throws MISMATCH; the message shows the weights of a key on two ranks where they differ.
[[noreturn]] void explain_shapes(Comm& comm, const TiedKey& key, size_t one, size_t other) {
  using Words = std::array<char, kShownKeyBytes>;
  Words mine{};
  std::snprintf(mine.data(), mine.size(), "%s", clipped(describe_all(key), mine.size() - 1).c_str());
  const auto all = gather<Words>(comm, kWordsTag, {&mine, 1});
  fail(DSC_ERR_MISMATCH,
       "expected the same weights of key '%s', but they are %s on rank %zu and %s on rank %zu",
       clipped(key.key, kShownKeyBytes).c_str(), all[one].data(), one, all[other].data(), other);
}

void check_shapes(Comm& comm, const TiedRequest& request) {
  const std::vector<size_t> keys = sorted_keys(request);
  std::vector<uint64_t> mine;
  mine.reserve(keys.size());
  for (const size_t k : keys)
    mine.push_back(request.keys[k].weights.empty() ? 0 : fnv1a(describe_all(request.keys[k])) | 1);
  const auto all = gather<uint64_t>(comm, kShapesTag, mine);
  for (size_t i = 0; i < keys.size(); ++i) {
    size_t first = 0;
    while (first < static_cast<size_t>(comm.size()) && all[first * keys.size() + i] == 0) ++first;
    for (size_t rank = first; rank < static_cast<size_t>(comm.size()); ++rank) {
      const uint64_t found = all[rank * keys.size() + i];
      if (found != 0 && found != all[first * keys.size() + i])
        explain_shapes(comm, request.keys[keys[i]], first, rank);
    }
  }
}

}  // namespace

TiedPosition tied_position(const TiedRequest& request, int rank) noexcept {
  if (request.ranks.empty()) return {rank, 0};
  const auto at = static_cast<int32_t>(std::ranges::find(request.ranks, rank) - request.ranks.begin());
  return {at % request.stages, at / request.stages};
}

std::vector<size_t> sorted_keys(const TiedRequest& request) {
  std::vector<size_t> order(request.keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t k) -> const std::string& { return request.keys[k].key; });
  return order;
}

void check_tied(Comm& comm, const TiedRequest& request) {
  share_trouble(comm, request);
  check_plans(comm, request);
  if (!request.keys.empty()) check_shapes(comm, request);
}

}  // namespace dsc
