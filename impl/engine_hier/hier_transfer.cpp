#include "engine_hier/hier_transfer.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/transfer.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
void HierTransfer::check(const Call& call) {
  if (call.user)
    fail(DSC_ERR_UNSUPPORTED, "operations of the caller's do not run between hosts in this version");
  if (call.nonfinite != NonFiniteCheck::kOff)
    fail(DSC_ERR_UNSUPPORTED, "the non-finite check does not look at ranks of other hosts in this version");
  if (call.kind == OpKind::kAllToAllV)
    fail(DSC_ERR_UNSUPPORTED, "all_to_all_v does not go between hosts in this version");
}

void HierTransfer::run() {
  switch (pattern_of(call_.kind)) {
    case Pattern::kNothing:
      return;  // the comparison has synchronized all ranks
    case Pattern::kAllReduce:
      return all_reduce();
    case Pattern::kReduce:
      return reduce();
    case Pattern::kReduceScatter:
      return reduce_scatter();
    case Pattern::kBroadcast:
      return broadcast();
    case Pattern::kAllGather:
      return all_gather();
    case Pattern::kScatter:
    case Pattern::kGather:
    case Pattern::kAllToAll:
      return exchange_blocks();
  }
}

bool HierTransfer::one_rank_per_host() const noexcept { return layout_.hosts() == layout_.size(); }

// All members of a host run the same steps in the same order, as its collectives require. Only the leader
// adds the transfer between hosts.
void HierTransfer::in_pieces(size_t pieces, const Stages& stages) {
  if (pieces == 0) return;
  stages.up(0);
  for (size_t piece = 0; piece < pieces; ++piece) {
    const auto on_host = [&] {
      if (piece > 0) stages.down(piece - 1);
      if (piece + 1 < pieces) stages.up(piece + 1);
    };
    if (!layout_.leads()) {
      on_host();
      continue;
    }
    stages.across(piece, overlap(on_host));
  }
  stages.down(pieces - 1);
}

// The transport passes an error of the hook on to the other hosts and knows no local ranks, so the error
// must either name ranks of the group or none.
OverlapHook HierTransfer::overlap(std::function<void()> on_host) {
  return [this, on_host = std::move(on_host)] {
    capture(on_host, [&](const Error& error) {
      context_.check_host();
      throw Error(error.code(), error.what());
    });
  };
}

std::byte* HierTransfer::scratch(Scratch which, size_t bytes) {
  auto& memory = context_.scratch[which];
  if (memory.size() < bytes) memory = std::vector<std::byte>(bytes);
  return memory.data();
}

std::byte* HierTransfer::scratch_of(Scratch which, size_t piece, size_t bytes) {
  return this->scratch(static_cast<Scratch>(which + piece % 2), bytes);
}

// Passes a block between two members. All members take part, because the host engine's send and receive are
// reserved for the user's messages.
void HierTransfer::pass(int from, int to, void* data, size_t bytes) {
  if (from == to) return;
  const int own = layout_.own_local_index();
  std::vector<size_t> out(layout_.own_members().size(), 0), in(out);
  if (own == from) out[static_cast<size_t>(to)] = bytes;
  if (own == to) in[static_cast<size_t>(from)] = bytes;
  Call call;
  call.kind = OpKind::kAllToAllV;
  call.dtype = DSC_DTYPE_U8;
  call.send = data;
  call.recv = data;
  call.send_blocks = std::make_shared<const BlockList>(std::move(out));
  call.recv_blocks = std::make_shared<const BlockList>(std::move(in));
  run_local(call);
}

std::vector<size_t> HierTransfer::lengths() const {
  const size_t element = dtype_bytes(call_.dtype);
  const BlockList* blocks = call_.recv_blocks ? call_.recv_blocks.get() : call_.send_blocks.get();
  std::vector<size_t> bytes(static_cast<size_t>(layout_.size()), call_.count * element);
  if (blocks)
    for (size_t rank = 0; rank < bytes.size(); ++rank) bytes[rank] = blocks->lengths[rank] * element;
  return bytes;
}

}  // namespace dsc
