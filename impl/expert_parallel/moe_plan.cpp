#include "expert_parallel/moe_plan.hpp"

#include "base/error.hpp"
#include "base/hash.hpp"
#include "comm/group_ids.hpp"
#include "comm/note_writer.hpp"
#include "dsc/types.h"

namespace dsc {
namespace {

uint64_t tag_of(const MoeSettings& settings) noexcept {
  uint64_t tag = mix_id(settings.experts, settings.top_k);
  tag = mix_id(tag, settings.capacity);
  tag = mix_id(tag, static_cast<uint64_t>(settings.drop));
  return mix_id(tag, settings.padded ? 1 : 0) | 1;  // a tag of 0 would mean that there is no tag
}

void note_settings(Call& call, const MoeSettings& settings) noexcept {
  NoteWriter note(call);
  note.add("experts ");
  note.add(settings.experts);
  note.add(", top_k ");
  note.add(settings.top_k);
  if (settings.capacity > 0) note.add(", capacity ");
  if (settings.capacity > 0) note.add(settings.capacity);
  if (settings.drop == DSC_MOE_DROP_LIGHTEST) note.add(", lightest");
  if (settings.padded) note.add(", padded");
}

constexpr size_t kMostRows = SIZE_MAX / 16;  // so that sums of a few such numbers do not overflow

// Exchanges how many rows each rank sends to each expert. Returns these numbers for this rank's experts,
// ordered by expert and then by source rank.
std::vector<size_t> exchange_counts(Comm& comm, const MoeSettings& settings, const ExpertLayout& layout,
                                    const std::vector<size_t>& counts) {
  const auto ranks = static_cast<size_t>(comm.size());
  const size_t block = layout.most_experts();
  std::vector<uint64_t> sent(block * ranks), received(block * ranks);
  for (size_t expert = 0; expert < settings.experts; ++expert) {
    const size_t holder = layout.rank_of(expert);
    sent[holder * block + expert - split_range(settings.experts, ranks, holder).begin] = counts[expert];
  }
  Call call;
  call.kind = OpKind::kAllToAll;
  call.dtype = DSC_DTYPE_U64;
  call.send = sent.data();
  call.recv = received.data();
  call.count = block;
  call.tag = tag_of(settings);
  note_settings(call, settings);
  comm.run(call);
  std::vector<size_t> rows(layout.own().count * ranks);
  size_t total = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = received[i % ranks * block + i / ranks];
    // Check the number, because a corrupt peer must not make this rank write outside of its memory.
    const size_t most = settings.capacity > 0 ? settings.capacity : kMostRows;
    if (rows[i] > most || (total += rows[i]) > kMostRows)
      fail(DSC_ERR_PROTOCOL,
           "rank %zu sends %zu rows to one expert, expected at most %zu, and at most %zu in total for the "
           "experts of this rank",
           i % ranks, rows[i], most, kMostRows);
  }
  return rows;
}

// Fails early if the engine cannot exchange blocks of different lengths, because such a plan could not be
// used.
void expect_supported(const Comm& comm, const MoeSettings& settings) {
  Call call;
  call.kind = settings.padded ? OpKind::kAllToAll : OpKind::kAllToAllV;
  call.dtype = DSC_DTYPE_F32;
  if (comm.size() == 1) return;
  if (const auto reason = comm.unsupported_reason(call))
    fail(DSC_ERR_UNSUPPORTED, "the exchanges of this plan: %s", reason->c_str());
}

}  // namespace

std::shared_ptr<MoePlan> MoePlan::create(Comm& comm, const MoeSettings& settings, const Choice& choice) {
  const auto ranks = static_cast<size_t>(comm.size());
  const ExpertLayout layout(settings, static_cast<size_t>(comm.rank()), ranks);
  expect_supported(comm, settings);
  ChosenSlots chosen = choose_slots(settings, choice);
  auto source_rows = exchange_counts(comm, settings, layout, chosen.counts);
  return std::make_shared<MoePlan>(settings, layout, choice.expert_ids.size(), std::move(chosen),
                                   std::move(source_rows), ranks, comm.scratch());
}

MoePlan::MoePlan(const MoeSettings& settings, const ExpertLayout& layout, size_t slots, ChosenSlots chosen,
                 std::vector<size_t> source_rows, size_t ranks, std::shared_ptr<Scratch> scratch)
    : settings_(settings),
      layout_(layout),
      source_rows_(std::move(source_rows)),
      runs_(layout_.runs(source_rows_)),
      ranks_(ranks),
      sent_(chosen.slots.size()),
      dropped_(chosen.dropped),
      is_ordered_(layout_.is_ordered()),
      positions_(slots, kNowhere),
      exchange_(layout_.rows_to(chosen.counts), layout_.rows_from(source_rows_), settings.padded,
                std::move(scratch)) {
  const std::vector<size_t> starts = layout_.send_starts(chosen.counts);
  const size_t* slot = chosen.slots.data();
  for (size_t expert = 0; expert < chosen.counts.size(); ++expert)
    for (size_t row = 0; row < chosen.counts[expert]; ++row) positions_[*slot++] = starts[expert] + row;
}

std::vector<size_t> MoePlan::expert_rows() const {
  std::vector<size_t> rows(experts().count);
  for (size_t i = 0; i < source_rows_.size(); ++i) rows[i / ranks_] += source_rows_[i];
  return rows;
}

RowExchange::Step MoePlan::step(const char* name, bool to_experts) const noexcept {
  return {name, mix_id(tag_of(settings_), fnv1a(name)), to_experts};
}

}  // namespace dsc
