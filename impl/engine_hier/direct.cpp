// Moves data directly from the memory of one rank into that of another. If each host has one rank, this uses
// the connections between the leaders. Otherwise it uses connections between all ranks, which are made when
// large blocks first need them.
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {

void HierTransfer::broadcast_directly() {
  const size_t bytes = call_.count * dtype_bytes(call_.dtype);
  const bool is_root = layout_.rank() == call_.root;
  void* const data = is_root ? const_cast<std::byte*>(sent(0)) : received(0);
  const auto keep = [&] { copy_bytes(received(0), data, bytes); };
  context_.links.leaders().broadcast(data, bytes, call_.root, deadline_,
                                     is_root ? OverlapHook(keep) : OverlapHook());
}

void HierTransfer::all_gather_directly() {
  const std::vector<size_t> bytes = lengths();
  const TransportBlock own{const_cast<std::byte*>(sent(0)), bytes[static_cast<size_t>(layout_.rank())]};
  std::vector<TransportBlock> receives;
  size_t start = 0;
  for (const size_t length : bytes) receives.push_back({received(start), length}), start += length;
  context_.links.leaders().exchange(std::vector<TransportBlock>(bytes.size(), own), receives, deadline_);
}

// Blocks between ranks of the same host are passed on that host while the other blocks travel.
void HierTransfer::exchange_directly() {
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const bool gathers = call_.kind == OpKind::kGather, is_root = layout_.rank() == call_.root;
  const bool alone = one_rank_per_host();
  std::vector<TransportBlock> sends(static_cast<size_t>(layout_.size())), receives(sends);
  for (int rank = 0; rank < layout_.size(); ++rank) {
    if (!alone && layout_.host_of(rank) == layout_.own_host()) continue;
    const size_t at = static_cast<size_t>(rank) * block;
    if (gathers ? rank == call_.root : is_root)
      sends[static_cast<size_t>(rank)] = {const_cast<std::byte*>(sent(gathers ? 0 : at)), block};
    if (gathers ? is_root : rank == call_.root)
      receives[static_cast<size_t>(rank)] = {received(gathers ? at : 0), block};
  }
  if (alone) return context_.links.leaders().exchange(sends, receives, deadline_);
  context_.links.exchange_among_ranks(sends, receives, deadline_, overlap([&] { pass_on_host(block); }));
}

// Passes the blocks between the root and the other members of its host.
void HierTransfer::pass_on_host(size_t block) {
  if (layout_.own_host() != layout_.host_of(call_.root)) return;
  const bool gathers = call_.kind == OpKind::kGather, is_root = layout_.rank() == call_.root;
  const int root_index = layout_.local_index_of(call_.root);
  for (const int32_t rank : layout_.own_members()) {
    const size_t at = static_cast<size_t>(rank) * block;
    std::byte* const out = const_cast<std::byte*>(gathers ? sent(0) : sent(at));
    std::byte* const in = gathers ? received(at) : received(0);
    const int member = layout_.local_index_of(rank);
    if (rank == call_.root)
      copy_bytes(is_root ? in : nullptr, is_root ? out : nullptr, is_root ? block : 0);
    else if (gathers)
      pass(member, root_index, is_root ? in : out, block);
    else
      pass(root_index, member, is_root ? out : in, block);
  }
}

bool ranks_connect(HierContext& context, Deadline deadline) {
  const auto all_can = [&](bool can) {
    uint8_t all = can ? 1 : 0;
    Call call = call_of_bytes(OpKind::kAllReduce, -1, &all, &all, 1);
    call.op = DSC_OP_MIN;
    HierTransfer(context, call, deadline).run();
    return all != 0;
  };
  return context.links.connect_ranks(all_can, deadline);
}

}  // namespace dsc
