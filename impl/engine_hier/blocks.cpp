// Blocks between a root and all ranks: gather and scatter between hosts.
#include "dtype/dtype.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {
namespace {

// Returns one block for each host, packed one after another from `at`. A host's block has `bytes` bytes for
// each of its ranks.
std::vector<TransportBlock> by_host(const HierLayout& layout, std::byte* at, size_t bytes) {
  std::vector<TransportBlock> blocks;
  for (int host = 0; host < layout.hosts(); ++host) {
    blocks.push_back({at, bytes * layout.members(host).size()});
    at += blocks.back().bytes;
  }
  return blocks;
}

}  // namespace

void HierTransfer::exchange_blocks() {
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  if (block == 0) return;
  const size_t all = block * static_cast<size_t>(layout_.size());
  const bool at_once = all <= kAtOnceBytes;
  if (one_rank_per_host() || (!at_once && ranks_connect(context_, deadline_))) return exchange_directly();
  if (call_.kind == OpKind::kGather) return at_once ? gather_at_once() : gather_in_steps();
  return at_once ? scatter_at_once() : scatter_in_steps();
}

// ---- small blocks: each leader packs all blocks of its host

void HierTransfer::gather_at_once() {
  const std::vector<size_t> bytes = lengths();
  const size_t block = bytes[0], members = layout_.own_members().size();
  const int root_host = layout_.host_of(call_.root);
  std::byte* const rows = layout_.leads() ? scratch(kUp, block * members) : nullptr;
  std::byte* const all = scratch(kDown, block * bytes.size());
  gather_rows(call_.send, rows, block);
  if (layout_.leads()) {
    std::vector<TransportBlock> sends(static_cast<size_t>(layout_.hosts())), receives(sends);
    sends[static_cast<size_t>(root_host)] = {rows, block * members};
    if (layout_.own_host() == root_host) receives = by_host(layout_, all, block);
    context_.links.leaders().exchange(sends, receives, deadline_);
  }
  if (layout_.own_host() != root_host) return;
  pass(0, layout_.local_index_of(call_.root), all, block * bytes.size());
  if (layout_.rank() == call_.root) layout_.unpack(received(0), all, bytes);
}

void HierTransfer::scatter_at_once() {
  const std::vector<size_t> bytes = lengths();
  const size_t block = bytes[0], members = layout_.own_members().size();
  const int root_host = layout_.host_of(call_.root);
  std::byte* const rows = layout_.leads() ? scratch(kDown, block * members) : nullptr;
  std::byte* const all = scratch(kUp, block * bytes.size());
  if (layout_.rank() == call_.root) layout_.pack(all, sent(0), bytes);
  if (layout_.own_host() == root_host) pass(layout_.local_index_of(call_.root), 0, all, block * bytes.size());
  if (layout_.leads()) {
    std::vector<TransportBlock> sends(static_cast<size_t>(layout_.hosts())), receives(sends);
    receives[static_cast<size_t>(root_host)] = {rows, block * members};
    if (layout_.own_host() == root_host) sends = by_host(layout_, all, block);
    context_.links.leaders().exchange(sends, receives, deadline_);
  }
  scatter_rows(rows, call_.recv, block);
}

// ---- large blocks: one after another, directly into the receiver's buffer where possible

// One step for each rank. Blocks of the root's own host are passed while those of other hosts travel.
void HierTransfer::gather_in_steps() {
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout_.host_of(call_.root), root_index = layout_.local_index_of(call_.root);
  std::vector<BlockPair> steps;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    BlockPair step;
    if (layout_.own_host() == layout_.host_of(rank))
      step.out = {root_host, layout_.local_index_of(rank), const_cast<std::byte*>(sent(0)), block};
    if (layout_.own_host() == root_host)
      step.in = {layout_.host_of(rank), root_index, received(static_cast<size_t>(rank) * block), block};
    steps.push_back(step);
  }
  exchange_pipelined(steps, block);
}

void HierTransfer::scatter_in_steps() {
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout_.host_of(call_.root), root_index = layout_.local_index_of(call_.root);
  std::vector<BlockPair> steps;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    BlockPair step;
    if (layout_.own_host() == root_host)
      step.out = {layout_.host_of(rank), root_index,
                  const_cast<std::byte*>(sent(static_cast<size_t>(rank) * block)), block};
    if (layout_.own_host() == layout_.host_of(rank))
      step.in = {root_host, layout_.local_index_of(rank), received(0), block};
    steps.push_back(step);
  }
  exchange_pipelined(steps, block);
}

}  // namespace dsc
