// Data that goes straight from the memory of one rank into that of another. It uses the connections of the
// leaders where each host has one rank, and otherwise connections between all ranks, which are made when
// large blocks first need them.
#include "dtype/dtype.hpp"
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

// Blocks between ranks of one host are passed there while the others travel.
void HierTransfer::exchange_directly() {
  const size_t block = call_.count * dtype_bytes(call_.dtype), ranks = static_cast<size_t>(layout_.size());
  const bool is_root = layout_.rank() == call_.root, to_all = call_.kind == OpKind::kAllToAll;
  const bool gathers = call_.kind == OpKind::kGather, alone = one_rank_per_host();
  std::vector<std::byte> sent_in_place;  // in place, received blocks would overwrite unsent ones
  if (to_all && call_.send == call_.recv) sent_in_place.assign(sent(0), sent(block * ranks));
  const std::byte* const from = sent_in_place.empty() ? sent(0) : sent_in_place.data();
  std::vector<TransportBlock> sends(ranks), receives(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int other = static_cast<int>(rank);
    if (!alone && layout_.host_of(other) == layout_.own_host()) continue;
    const std::byte* const part = from + (gathers ? 0 : rank * block);
    if (to_all || (gathers ? other == call_.root : is_root))
      sends[rank] = {const_cast<std::byte*>(part), block};
    if (to_all || (gathers ? is_root : other == call_.root))
      receives[rank] = {received(to_all || gathers ? rank * block : 0), block};
  }
  if (alone) return context_.links.leaders().exchange(sends, receives, deadline_);
  context_.links.exchange_among_ranks(sends, receives, deadline_, overlap([&] {
                                        if (to_all)
                                          exchange_on_host(from);
                                        else
                                          pass_on_host(block);
                                      }));
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

// Returns whether the flag is set on all ranks.
bool HierTransfer::all_can(bool can) {
  uint8_t all = can ? 1 : 0;
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_U8;
  call.op = DSC_OP_MIN;
  call.send = &all;
  call.recv = &all;
  call.count = 1;
  HierTransfer(context_, call, deadline_).all_reduce();
  return all != 0;
}

}  // namespace dsc
