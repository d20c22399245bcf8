// Reductions between hosts: all-reduce, reduce and reduce-scatter.
#include <algorithm>
#include <memory>

#include "dtype/dtype.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {
namespace {

// Bytes of one piece of a sum. The pieces pass between hosts in a pipeline.
constexpr size_t kSumBytes = size_t{2} << 20;

}  // namespace

size_t HierTransfer::sum_piece() const noexcept { return kSumBytes / dtype_bytes(work_type()); }

// Combines the values of this host's members at its leader.
void HierTransfer::combine_on_host(const void* values, void* sum, size_t count) {
  if (one_rank_per_host()) return convert(sum, work_type(), values, call_.dtype, count);
  if (!widens()) return combine_widened(values, sum, count);
  std::byte* const wide = scratch(kOwn, sum_piece() * sizeof(float));
  convert(wide, DSC_DTYPE_F32, values, call_.dtype, count);
  combine_widened(wide, sum, count);
}

void HierTransfer::combine_widened(const void* values, void* sum, size_t count) {
  Call call;
  call.kind = OpKind::kReduce;
  call.dtype = work_type();
  call.op = call_.op == DSC_OP_AVG ? int32_t{DSC_OP_SUM} : call_.op;
  call.root = 0;
  call.send = values;
  call.recv = sum;
  call.count = count;
  call.prescale = call_.prescale;
  run_local(call);
}

void HierTransfer::all_reduce() {
  const bool leads = layout_.leads();
  const size_t element = dtype_bytes(call_.dtype);
  const Cut cut(call_.count, sums_directly() ? call_.count : sum_piece());
  const auto input = [&](size_t piece) { return sent(cut.start(piece) * element); };
  const auto result = [&](size_t piece) { return received(cut.start(piece) * element); };
  const auto sum = [&](size_t piece) {
    return widens() ? scratch_of(kUp, piece, cut.length * sizeof(float)) : result(piece);
  };
  in_pieces(cut.pieces(),
            {.up =
                 [&](size_t piece) {
                   if (!sums_directly())
                     combine_on_host(input(piece), leads ? sum(piece) : nullptr, cut.count(piece));
                 },
             .down =
                 [&](size_t piece) {
                   if (leads && widens())
                     convert(result(piece), call_.dtype, sum(piece), work_type(), cut.count(piece));
                   spread_on_host(result(piece), result(piece), cut.count(piece) * element, 0);
                 },
             .across =
                 [&](size_t piece, OverlapHook overlap) {
                   context_.links.leaders().all_reduce(sums_directly() ? input(piece) : sum(piece),
                                                       sum(piece), cut.count(piece), between_hosts(),
                                                       deadline_, std::move(overlap));
                 }});
}

void HierTransfer::reduce() {
  const size_t element = dtype_bytes(call_.dtype);
  const int root_host = layout_.host_of(call_.root);
  const bool is_root = layout_.rank() == call_.root;
  // With two hosts only the root's host combines, directly into the result. No host needs scratch memory, so
  // the data is not cut.
  const bool is_whole = sums_directly() && layout_.hosts() == 2;
  const Cut cut(call_.count, is_whole ? call_.count : sum_piece());
  const auto input = [&](size_t piece) { return sent(cut.start(piece) * element); };
  const auto result = [&](size_t piece) { return received(cut.start(piece) * element); };
  const auto sum = [&](size_t piece) -> std::byte* {
    if (is_root && !widens()) return result(piece);
    const bool is_used = layout_.leads() && !is_whole;
    return is_used ? scratch_of(kUp, piece, cut.length * dtype_bytes(work_type())) : nullptr;
  };
  in_pieces(cut.pieces(),
            {.up =
                 [&](size_t piece) {
                   if (!sums_directly()) combine_on_host(input(piece), sum(piece), cut.count(piece));
                 },
             .down =
                 [&](size_t piece) {
                   if (layout_.own_host() != root_host) return;
                   std::byte* last = is_root ? result(piece) : sum(piece);
                   if (!is_root && widens()) last = scratch(kDown, cut.length * element);
                   if (layout_.leads() && widens())
                     convert(last, call_.dtype, sum(piece), work_type(), cut.count(piece));
                   pass(0, layout_.local_index_of(call_.root), last, cut.count(piece) * element);
                 },
             .across =
                 [&](size_t piece, OverlapHook overlap) {
                   context_.links.leaders().reduce(sums_directly() ? input(piece) : sum(piece), sum(piece),
                                                   cut.count(piece), between_hosts(), root_host, deadline_,
                                                   std::move(overlap));
                 }});
}

// Each piece holds a part of every rank's block, in node-major order.
void HierTransfer::reduce_scatter() {
  const size_t element = dtype_bytes(call_.dtype), work_bytes = dtype_bytes(work_type());
  std::vector<size_t> elements = lengths(), starts;
  for (size_t& length : elements) length /= element;
  for (size_t start = 0; const size_t length : elements) starts.push_back(start), start += length;
  if (sums_directly())
    return context_.links.leaders().reduce_scatter(call_.send, call_.recv, elements, between_hosts(),
                                                   deadline_);
  const Cut cut(*std::ranges::max_element(elements), sum_piece() / elements.size());
  const auto part_of = [&](size_t piece, int32_t rank) {
    return cut.count(piece, elements[static_cast<size_t>(rank)]);
  };
  const auto on_host = [&](size_t piece, int host) {
    size_t count = 0;
    for (const int32_t rank : layout_.members(host)) count += part_of(piece, rank);
    return count;
  };
  const size_t room_bytes = cut.length * elements.size() * work_bytes;
  const auto sum = [&](size_t piece) { return scratch_of(kUp, piece, room_bytes); };
  const auto own_part = [&](size_t piece) {
    size_t before = 0;
    for (int host = 0; host < layout_.own_host(); ++host) before += on_host(piece, host);
    return sum(piece) + before * work_bytes;
  };
  in_pieces(cut.pieces(),
            {.up =
                 [&](size_t piece) {
                   std::byte* const packed = one_rank_per_host() ? sum(piece) : scratch(kOwn, room_bytes);
                   size_t count = 0;
                   for (const int32_t rank : layout_.node_major_order()) {
                     const size_t start = starts[static_cast<size_t>(rank)] + cut.start(piece);
                     convert(packed + count * work_bytes, work_type(), sent(start * element), call_.dtype,
                             part_of(piece, rank));
                     count += part_of(piece, rank);
                   }
                   if (!one_rank_per_host())
                     combine_widened(packed, layout_.leads() ? sum(piece) : nullptr, count);
                 },
             .down =
                 [&](size_t piece) {
                   std::vector<size_t> parts;
                   for (const int32_t rank : layout_.own_members()) parts.push_back(part_of(piece, rank));
                   hand_out(layout_.leads() ? own_part(piece) : nullptr, parts,
                            received(cut.start(piece) * element));
                 },
             .across =
                 [&](size_t piece, OverlapHook overlap) {
                   std::vector<size_t> counts;
                   counts.reserve(static_cast<size_t>(layout_.hosts()));
                   for (int host = 0; host < layout_.hosts(); ++host) counts.push_back(on_host(piece, host));
                   context_.links.leaders().reduce_scatter(sum(piece), own_part(piece), counts,
                                                           between_hosts(), deadline_, std::move(overlap));
                 }});
}

// Distributes the leader's sum to the members; `elements[i]` elements go to member i.
void HierTransfer::hand_out(const void* part, const std::vector<size_t>& elements, void* result) {
  const auto own = static_cast<size_t>(layout_.own_local_index());
  const BlockList all(elements);
  if (one_rank_per_host()) return convert(result, call_.dtype, part, work_type(), all.total());
  if (layout_.leads() && widens()) {
    std::byte* const narrow = scratch(kDown, all.total() * dtype_bytes(call_.dtype));
    convert(narrow, call_.dtype, part, work_type(), all.total());
    part = narrow;
  }
  std::vector<size_t> from_leader(elements.size(), 0);
  from_leader[0] = elements[own];
  Call spread;
  spread.kind = OpKind::kAllToAllV;
  spread.dtype = call_.dtype;
  spread.send = part;
  spread.recv = result;
  spread.send_blocks =
      std::make_shared<const BlockList>(layout_.leads() ? elements : std::vector<size_t>(elements.size(), 0));
  spread.recv_blocks = std::make_shared<const BlockList>(std::move(from_leader));
  run_local(spread);
}

}  // namespace dsc
