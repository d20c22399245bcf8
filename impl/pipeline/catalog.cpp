#include "pipeline/catalog.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/closed_form.hpp"
#include "pipeline/lower.hpp"

namespace dsc {
namespace {

using Maker = std::unique_ptr<Schedule> (*)(ScheduleSpec);

struct Entry {
  std::string_view name;
  Maker make;
};

std::unique_ptr<Schedule> gpipe(ScheduleSpec spec) {
  auto order = gpipe_order(spec.micro_batches);
  return lower(std::move(spec), std::move(order), PlacementShape::kLoop);
}

std::unique_ptr<Schedule> one_f_one_b(ScheduleSpec spec) {
  auto order = one_f_one_b_order(spec.stages, spec.micro_batches);
  return lower(std::move(spec), std::move(order), PlacementShape::kLoop);
}

constexpr std::array kOffered{
    Entry{"deepspeed_train", deepspeed_train}, Entry{"deepspeed_inference", deepspeed_inference},
    Entry{"data_parallel", data_parallel}, Entry{"gpipe", gpipe}, Entry{"1f1b", one_f_one_b}};

constexpr std::array<std::string_view, 10> kNotOffered{
    "interleaved_1f1b", "looped_bfs", "zb_h1",      "zb_h2", "zb_v",
    "v_half",           "v_min",      "dualpipe_v", "auto",  "custom"};

// How many letters must be added, removed or changed.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

[[noreturn]] void refuse_name(std::string_view name) {
  constexpr size_t kShown = 32;
  const std::string_view shown = name.substr(0, kShown);
  if (std::ranges::find(kNotOffered, name) != kNotOffered.end())
    fail(DSC_ERR_UNSUPPORTED, "schedule \"%.*s\" is not offered by this version",
         static_cast<int>(shown.size()), shown.data());
  auto known = kOffered;
  std::ranges::stable_sort(known, {}, [&](const Entry& entry) { return distance(shown, entry.name); });
  std::string list;
  for (const Entry& entry : known) list.append(list.empty() ? "" : ", ").append(entry.name);
  fail(DSC_ERR_INVALID_ARG, "unknown schedule \"%.*s\", expected one of: %s", static_cast<int>(shown.size()),
       shown.data(), list.c_str());
}

void check_numbers(const ScheduleSpec& spec) {
  if (spec.stages < 1) fail(DSC_ERR_INVALID_ARG, "stages is %d, expected 1 or more", spec.stages);
  if (spec.stage < 0 || spec.stage >= spec.stages)
    fail(DSC_ERR_INVALID_ARG, "stage is %d, expected 0 to %d", spec.stage, spec.stages - 1);
  if (spec.micro_batches < 1)
    fail(DSC_ERR_INVALID_ARG, "micro_batches is %d, expected 1 or more", spec.micro_batches);
  if (spec.chunks != 1)
    fail(DSC_ERR_INVALID_ARG, "chunks is %d, expected 1 for schedule \"%s\"", spec.chunks, spec.name.c_str());
}

}  // namespace

std::unique_ptr<Schedule> make_schedule(ScheduleSpec spec) {
  const auto found = std::ranges::find(kOffered, std::string_view(spec.name), &Entry::name);
  if (found == kOffered.end()) refuse_name(spec.name);
  check_numbers(spec);
  return found->make(std::move(spec));
}

}  // namespace dsc
