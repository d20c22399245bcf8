#include "expert_parallel/moe_plan.hpp"

#include <array>
#include <cstring>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "comm/group_ids.hpp"
#include "comm/note_writer.hpp"
#include "dtype/dtype.hpp"
#include "expert_parallel/fp8_rows.hpp"
#include "expert_parallel/row_sums.hpp"

namespace dsc {
namespace {

uint64_t tag_of(const MoeSettings& settings) noexcept {
  uint64_t tag = mix_id(settings.experts, settings.top_k);
  tag = mix_id(tag, settings.capacity);
  tag = mix_id(tag, static_cast<uint64_t>(settings.drop));
  return mix_id(tag, settings.padded ? 1 : 0) | 1;  // 0 would stand for no tag
}

void note_settings(Call& call, const MoeSettings& settings) noexcept {
  NoteWriter note(call);
  note.add("experts ");
  note.add(settings.experts);
  note.add(", top_k ");
  note.add(settings.top_k);
  note.add(", capacity ");
  note.add(settings.capacity);
  if (settings.drop == DSC_MOE_DROP_LIGHTEST) note.add(", lightest");
  if (settings.padded) note.add(", padded");
}

constexpr size_t kMostRows = SIZE_MAX / 16;  // so that sums of a few such numbers do not overflow

// Exchanges how many rows each rank sends to each expert. Returns those for this rank's experts, by expert
// and then by rank.
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
    // A corrupt peer must not make this rank write beyond its memory.
    if (rows[i] > (settings.capacity > 0 ? settings.capacity : kMostRows) || (total += rows[i]) > kMostRows)
      fail(DSC_ERR_PROTOCOL, "rank %zu sends %zu rows to an expert, which is more than there can be",
           i % ranks, rows[i]);
  }
  return rows;
}

// Where the engine cannot exchange blocks of different lengths, the plan would be of no use.
void expect_supported(const Comm& comm, const MoeSettings& settings) {
  Call call;
  call.kind = settings.padded ? OpKind::kAllToAll : OpKind::kAllToAllV;
  call.dtype = DSC_DTYPE_F32;
  if (comm.size() == 1) return;
  if (const auto reason = comm.unsupported_reason(call))
    fail(DSC_ERR_UNSUPPORTED, "the exchanges of this plan: %s", reason->c_str());
}

const std::byte* row_at(const void* rows, size_t row, size_t bytes) {
  return static_cast<const std::byte*>(rows) + row * bytes;
}

std::byte* row_at(void* rows, size_t row, size_t bytes) {
  return static_cast<std::byte*>(rows) + row * bytes;
}

// Rows of no elements may have no memory.
void copy_rows(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void clear_rows(void* rows, size_t bytes) {
  if (bytes > 0) std::memset(rows, 0, bytes);
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

// ---- to the experts

template <typename Put>
std::shared_ptr<Work> MoePlan::to_experts(Comm& comm, const char* name, const RowFormat& format, void* rows,
                                          const Put& put, const std::function<void()>& finish, bool starts) {
  exchange_.expect_idle();
  std::byte* received = is_direct(format) ? static_cast<std::byte*>(rows) : exchange_.expert_side(format);
  std::byte* sent = ranks_ == 1 ? received : exchange_.token_side(format);
  for (size_t token = 0, slot = 0; token < tokens(); ++token) {
    const std::byte* before = nullptr;  // row of the same token
    for (size_t k = 0; k < settings_.top_k; ++k, ++slot) {
      if (positions_[slot] == kNowhere) continue;
      std::byte* to = row_at(sent, positions_[slot], format.bytes());
      put(token, slot, before, to);
      before = to;
    }
  }
  const auto deliver_all = [self = shared_from_this(), format, received, rows, finish] {
    self->deliver(format, received, rows);
    finish();
  };
  return exchange_.run(comm, step(name, true), format, sent, received, deliver_all, starts);
}

// Rows of padding are zeros here and not where they come from, so that they need not be written there.
void MoePlan::clear_padding(const RowFormat& format, void* rows) const {
  if (!settings_.padded) return;
  const size_t bytes = format.plain_bytes();
  size_t next = 0;
  for (const RowRun& run : runs_) {
    clear_rows(row_at(rows, next, bytes), (run.expert - next) * bytes);
    next = run.expert + run.count;
  }
  clear_rows(row_at(rows, next, bytes), (this->rows() - next) * bytes);
}

void MoePlan::deliver(const RowFormat& format, const std::byte* received, void* rows) const {
  clear_padding(format, rows);
  if (is_direct(format)) return;
  const size_t from_bytes = format.bytes(), to_bytes = format.plain_bytes();
  for (const RowRun& run : runs_) {
    const std::byte* from = row_at(received, run.received, from_bytes);
    std::byte* to = row_at(rows, run.expert, to_bytes);
    if (format.is_fp8) {
      for (size_t row = 0; row < run.count; ++row)
        decode_fp8_row(format.dtype, row_at(from, row, from_bytes), format.hidden, row_at(to, row, to_bytes));
    } else {
      copy_rows(to, from, run.count * to_bytes);
    }
  }
}

std::shared_ptr<Work> MoePlan::dispatch(Comm& comm, const RowFormat& format, const void* tokens, void* rows,
                                        bool starts) {
  const auto put = [&](size_t token, size_t, const std::byte* before, std::byte* to) {
    const std::byte* from = row_at(tokens, token, format.plain_bytes());
    if (format.is_fp8 && !before)
      encode_fp8_row(format.dtype, from, format.hidden, to);
    else
      copy_rows(to, before ? before : from, format.bytes());
  };
  return to_experts(
      comm, "dispatch", format, rows, put, [] {}, starts);
}

std::shared_ptr<Work> MoePlan::combine_backward(Comm& comm, const RowFormat& format,
                                                const CombineGradients& gradients, bool starts) {
  const auto put = [&](size_t token, size_t slot, const std::byte*, std::byte* to) {
    const void* from = row_at(gradients.out_gradients, token, format.plain_bytes());
    if (!gradients.weights) return copy_rows(to, from, format.plain_bytes());
    const std::byte* weight = row_at(gradients.weights, slot, weight_bytes(format.dtype));
    sum_rows(format.dtype, &from, weight, 1, format.hidden, to);
  };
  const auto finish = [this, format, gradients] { multiply_gradients(format, gradients); };
  return to_experts(comm, "combine_backward", format, gradients.row_gradients, put, finish, starts);
}

void MoePlan::multiply_gradients(const RowFormat& format, const CombineGradients& gradients) const {
  if (!gradients.weight_gradients) return;
  const size_t row_bytes = format.plain_bytes(), bytes = weight_bytes(format.dtype);
  for (size_t slot = 0; slot < positions_.size(); ++slot) {
    std::byte* weight = row_at(gradients.weight_gradients, slot, bytes);
    if (positions_[slot] == kNowhere)
      clear_rows(weight, bytes);
    else
      multiply_rows(format.dtype, row_at(gradients.out_gradients, slot / settings_.top_k, row_bytes),
                    row_at(gradients.returned, slot, row_bytes), format.hidden, weight);
  }
}

// ---- back to the tokens

std::shared_ptr<Work> MoePlan::to_tokens(Comm& comm, const char* name, const RowFormat& format,
                                         const void* rows,
                                         const std::function<void(const std::byte*)>& finish, bool starts) {
  exchange_.expect_idle();
  const size_t bytes = format.plain_bytes();
  const auto* sent = static_cast<const std::byte*>(rows);
  if (!is_direct(format)) {
    std::byte* packed = exchange_.expert_side(format);
    for (const RowRun& run : runs_)
      copy_rows(row_at(packed, run.received, bytes), row_at(rows, run.expert, bytes), run.count * bytes);
    sent = packed;
  }
  std::byte* received = ranks_ == 1 ? nullptr : exchange_.token_side(format);
  const std::byte* returned = ranks_ == 1 ? sent : received;
  const auto finish_all = [self = shared_from_this(), finish, returned] { finish(returned); };
  return exchange_.run(comm, step(name, false), format, sent, received, finish_all, starts);
}

void MoePlan::sum_tokens(const RowFormat& format, const std::byte* rows, const void* weights,
                         void* out) const {
  const size_t bytes = format.plain_bytes(), bytes_of_weight = weight_bytes(format.dtype);
  std::array<const void*, 64> own;
  std::array<double, 64> factors;  // room for weights of any type
  for (size_t token = 0; token < tokens(); ++token) {
    size_t count = 0;
    for (size_t slot = token * settings_.top_k; slot < (token + 1) * settings_.top_k; ++slot) {
      if (positions_[slot] == kNowhere) continue;
      own[count] = row_at(rows, positions_[slot], bytes);
      if (weights)
        std::memcpy(row_at(static_cast<void*>(factors.data()), count, bytes_of_weight),
                    row_at(weights, slot, bytes_of_weight), bytes_of_weight);
      ++count;
    }
    if (count == 0)
      clear_rows(row_at(out, token, bytes), bytes);
    else
      sum_rows(format.dtype, own.data(), weights ? factors.data() : nullptr, count, format.hidden,
               row_at(out, token, bytes));
  }
}

void MoePlan::copy_returned(const RowFormat& format, const std::byte* rows, void* returned) const {
  const size_t bytes = format.plain_bytes();
  for (size_t slot = 0; slot < positions_.size(); ++slot)
    if (positions_[slot] == kNowhere)
      clear_rows(row_at(returned, slot, bytes), bytes);
    else
      copy_rows(row_at(returned, slot, bytes), row_at(rows, positions_[slot], bytes), bytes);
}

std::shared_ptr<Work> MoePlan::combine(Comm& comm, const RowFormat& format, const void* rows,
                                       const Combined& combined, bool starts) {
  const auto finish = [this, format, combined](const std::byte* received) {
    sum_tokens(format, received, combined.weights, combined.out);
    if (combined.returned) copy_returned(format, received, combined.returned);
  };
  return to_tokens(comm, "combine", format, rows, finish, starts);
}

std::shared_ptr<Work> MoePlan::dispatch_backward(Comm& comm, const RowFormat& format,
                                                 const void* row_gradients, void* token_gradients,
                                                 bool starts) {
  const auto finish = [this, format, token_gradients](const std::byte* received) {
    sum_tokens(format, received, nullptr, token_gradients);
  };
  return to_tokens(comm, "dispatch_backward", format, row_gradients, finish, starts);
}

}  // namespace dsc
