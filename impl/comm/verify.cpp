#include "comm/verify.hpp"

#include "base/error.hpp"
#include "comm/agreement.hpp"

namespace dsc {
namespace {

constexpr uint64_t kParamsTag = 1;
constexpr uint64_t kSettingsTag = 2;
constexpr size_t kShownValueBytes = 80;  // limit for a value in messages

}  // namespace

void verify_params(Comm& comm, std::span<const Tensor> params) {
  // The count comes first, so that lists of different lengths differ in their first line.
  std::vector<std::string> lines{std::to_string(params.size())};
  for (const Tensor& param : params) lines.push_back(describe(param));
  const auto found = find_disagreement(comm, kParamsTag, lines);
  if (!found) return check_tensors(params);
  const std::string ranks = ranks_text(found->ranks);
  if (found->line == 0) {
    fail(DSC_ERR_MISMATCH, "expected the same model on all ranks, but rank 0 has %s parameters and %s %s",
         found->expected.c_str(), ranks.c_str(),
         ((found->ranks.size() == 1 ? "has " : "have ") + found->found).c_str());
  }
  const size_t index = found->line - 1;
  fail(DSC_ERR_MISMATCH, "expected the same model on all ranks, but %s is %s on rank 0 and %s on %s",
       label(params[index].name, index).c_str(), clipped(found->expected, kShownValueBytes).c_str(),
       clipped(found->found, kShownValueBytes).c_str(), ranks.c_str());
}

void verify_settings(Comm& comm, std::span<const Setting> settings) {
  std::vector<std::string> lines;
  for (const Setting& setting : settings) lines.push_back(setting.value);
  const auto found = find_disagreement(comm, kSettingsTag, lines);
  if (!found) return;
  fail(DSC_ERR_CONFIG, "expected the same options on all ranks, but %s is %s on rank 0 and %s on %s",
       settings[found->line].name.c_str(), clipped(found->expected, kShownValueBytes).c_str(),
       clipped(found->found, kShownValueBytes).c_str(), ranks_text(found->ranks).c_str());
}

}  // namespace dsc
