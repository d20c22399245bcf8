#include "engine_hier/hier_steps.hpp"

#include "base/error.hpp"
#include "base/guard.hpp"

namespace dsc {

// All members of a host run the same steps in the same order, because each step is a collective of the host.
// Only the leader also runs the transfer between hosts.
void HierSteps::in_pieces(size_t pieces, const Stages& stages) {
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

OverlapHook HierSteps::overlap(std::function<void()> on_host) {
  return [this, on_host = std::move(on_host)] {
    capture(on_host, [&](const Error& error) {
      context_.check_host();
      throw Error(error);
    });
  };
}

// Passes a block between two members. All members take part, because a step must be a collective: the host
// engine's send and receive are reserved for the user's messages.
void HierSteps::pass(int from, int to, void* data, size_t bytes) {
  if (from == to) return;
  const int own = layout_.own_local_index();
  std::vector<size_t> out(layout_.own_members().size(), 0), in(out);
  if (own == from) out[static_cast<size_t>(to)] = bytes;
  if (own == to) in[static_cast<size_t>(from)] = bytes;
  Call call = call_of_bytes(OpKind::kAllToAllV, -1, data, data, 0);
  call.send_blocks = std::make_shared<const BlockList>(std::move(out));
  call.recv_blocks = std::make_shared<const BlockList>(std::move(in));
  run_local(call);
}

// Gathers the blocks of this host's members on each member.
void HierSteps::gather_on_host(void* all, const std::vector<size_t>& bytes) {
  Call call = call_of_bytes(OpKind::kAllGatherV, -1, call_.send, all, 0);
  call.recv_blocks = std::make_shared<const BlockList>(bytes);
  run_local(call);
}

void HierSteps::spread_on_host(const void* from, void* to, size_t bytes, int local_index) {
  if (bytes == 0) return;
  if (one_rank_per_host()) return copy_bytes(to, from, bytes);
  const void* const own = layout_.own_local_index() == local_index ? from : to;
  run_local(call_of_bytes(OpKind::kBroadcast, local_index, own, to, bytes));
}

void HierSteps::gather_rows(const void* row, void* rows, size_t bytes) {
  run_local(call_of_bytes(OpKind::kGather, 0, row, rows, bytes));
}

void HierSteps::scatter_rows(const void* rows, void* row, size_t bytes) {
  run_local(call_of_bytes(OpKind::kScatter, 0, rows, row, bytes));
}

}  // namespace dsc
