// Operations that only copy data to all ranks: broadcast and all-gather.
#include <numeric>

#include "dtype/dtype.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {
namespace {

// Bytes of one piece of a block. The pieces pass between hosts in a pipeline.
constexpr size_t kCopyBytes = size_t{2} << 20;

// Returns blocks of the given lengths in bytes, one after another; the first one starts at `data`.
std::vector<TransportBlock> packed(void* data, const std::vector<size_t>& lengths) {
  std::vector<TransportBlock> blocks;
  auto* at = static_cast<std::byte*>(data);
  for (const size_t length : lengths) {
    blocks.push_back({at, length});
    at += length;
  }
  return blocks;
}

}  // namespace

// ---- on each host

// ---- operations

void HierTransfer::broadcast() {
  if (one_rank_per_host()) return broadcast_directly();
  const size_t bytes = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout_.host_of(call_.root);
  const bool is_root = layout_.rank() == call_.root;
  const bool is_source = layout_.own_host() == root_host;
  const Cut cut(bytes, kCopyBytes);
  const auto spread = [&](size_t piece) {
    std::byte* const data = received(cut.start(piece));
    spread_on_host(is_root ? sent(cut.start(piece)) : data, data, cut.count(piece),
                   is_source ? layout_.local_index_of(call_.root) : 0);
  };
  in_pieces(cut.pieces(), {.up =
                               [&](size_t piece) {
                                 if (is_source) spread(piece);
                               },
                           .down =
                               [&](size_t piece) {
                                 if (!is_source) spread(piece);
                               },
                           .across =
                               [&](size_t piece, OverlapHook overlap) {
                                 context_.links.leaders().broadcast(received(cut.start(piece)),
                                                                    cut.count(piece), root_host, deadline_,
                                                                    std::move(overlap));
                               }});
}

// Gathers blocks of equal or different lengths. Blocks of this host come first. Those of other hosts follow;
// each piece is passed to the ranks of this host when it arrives.
void HierTransfer::all_gather() {
  if (one_rank_per_host()) return all_gather_directly();
  const std::vector<size_t> bytes = lengths();
  const size_t total = std::accumulate(bytes.begin(), bytes.end(), size_t{0});
  std::unique_ptr<std::byte[]> node_major;
  if (!layout_.in_order()) node_major = std::make_unique_for_overwrite<std::byte[]>(total);
  std::byte* const all = layout_.in_order() ? received(0) : node_major.get();
  std::vector<size_t> of_hosts(static_cast<size_t>(layout_.hosts())), of_members;
  for (size_t rank = 0; rank < bytes.size(); ++rank)
    of_hosts[static_cast<size_t>(layout_.host_of(static_cast<int>(rank)))] += bytes[rank];
  for (const int32_t rank : layout_.own_members()) of_members.push_back(bytes[static_cast<size_t>(rank)]);
  const std::vector<TransportBlock> blocks = packed(all, of_hosts);
  gather_on_host(blocks[static_cast<size_t>(layout_.own_host())].data, of_members);
  const bool at_once = total <= kAtOnceBytes;
  const size_t longest = *std::ranges::max_element(of_hosts);
  const Cut cut(longest, at_once ? longest : kCopyBytes);
  const auto part = [&](const TransportBlock& block, size_t piece) {
    return TransportBlock{static_cast<std::byte*>(block.data) + cut.start(piece),
                          cut.count(piece, block.bytes)};
  };
  in_pieces(cut.pieces(), {.up = [](size_t) {},
                           .down =
                               [&](size_t piece) {
                                 if (at_once) return spread_on_host(all, all, total, 0);
                                 for (const TransportBlock& block : blocks)
                                   if (&block != &blocks[static_cast<size_t>(layout_.own_host())])
                                     spread_on_host(part(block, piece).data, part(block, piece).data,
                                                    part(block, piece).bytes, 0);
                               },
                           .across =
                               [&](size_t piece, OverlapHook overlap) {
                                 std::vector<TransportBlock> parts;
                                 parts.reserve(blocks.size());
                                 for (const TransportBlock& block : blocks)
                                   parts.push_back(part(block, piece));
                                 context_.links.leaders().all_gather(parts, deadline_, std::move(overlap));
                               }});
  if (!layout_.in_order()) layout_.unpack(received(0), all, bytes);
}

}  // namespace dsc
