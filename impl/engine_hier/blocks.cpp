// Operations that send blocks from one rank to another: gather, scatter and all-to-all between hosts.
#include "dtype/dtype.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {
namespace {

constexpr size_t kStepBytes = size_t{2} << 20;

// Returns one block for each host, packed from `at` on; a block has `bytes` bytes for each rank of its
// host.
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
  const bool exchanges = call_.kind == OpKind::kAllToAll;
  const size_t at_leader = exchanges ? all * layout_.most_members() : all;
  const bool at_once = at_leader <= kAtOnceBytes;
  const auto are_connected = [&] {
    return context_.links.connect_ranks([&](bool can) { return all_can(can); }, deadline_);
  };
  if (one_rank_per_host() || (!at_once && are_connected())) return exchange_directly();
  if (call_.kind == OpKind::kGather) return at_once ? gather_at_once() : gather_in_steps();
  if (call_.kind == OpKind::kScatter) return at_once ? scatter_at_once() : scatter_in_steps();
  return at_once ? exchange_at_once() : exchange_in_steps();
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

// Block orders at the leader: the gathered rows are [member][receiver], data for the hosts
// [receiver][member], data from a host [member][sender], and the scattered rows [member][sender].
void HierTransfer::exchange_at_once() {
  const size_t block = call_.count * dtype_bytes(call_.dtype), ranks = static_cast<size_t>(layout_.size());
  const size_t members = layout_.own_members().size(), bytes = block * ranks;
  std::byte* const rows = layout_.leads() ? scratch(kOwn, bytes * members) : nullptr;
  gather_rows(call_.send, rows, bytes);
  if (layout_.leads()) {
    const std::vector<TransportBlock> sends =
        by_host(layout_, scratch(kUp, bytes * members), block * members);
    const std::vector<TransportBlock> receives =
        by_host(layout_, scratch(kDown, bytes * members), block * members);
    std::byte* to = scratch(kUp, bytes * members);
    for (const int32_t receiver : layout_.node_major_order())
      for (size_t member = 0; member < members; ++member, to += block)
        copy_bytes(to, rows + member * bytes + static_cast<size_t>(receiver) * block, block);
    context_.links.leaders().exchange(sends, receives, deadline_);
    for (int host = 0; host < layout_.hosts(); ++host) {
      const auto* at = static_cast<const std::byte*>(receives[static_cast<size_t>(host)].data);
      for (size_t member = 0; member < members; ++member)
        for (const int32_t sender : layout_.members(host)) {
          copy_bytes(rows + member * bytes + static_cast<size_t>(sender) * block, at, block);
          at += block;
        }
    }
  }
  scatter_rows(rows, call_.recv, bytes);
}

// ---- large blocks: one after the other, straight into the receiver's buffer where possible

// In each step every host sends at most one block and receives at most one. Long blocks go in pieces, and
// the steps take turns piece by piece. A leader's own blocks need no scratch memory.
void HierTransfer::exchange_pipelined(const std::byte* from, const std::vector<BlockPair>& steps) {
  const Cut cut(call_.count * dtype_bytes(call_.dtype), kStepBytes);
  const int own_index = layout_.own_local_index(), own_host = layout_.own_host();
  const auto step = [&](size_t piece) { return steps[piece % steps.size()]; };
  const auto count = [&](size_t piece) { return cut.count(piece / steps.size()); };
  const auto start = [&](size_t piece) { return cut.start(piece / steps.size()); };
  // out() and in() return where a piece is on this rank: in the buffer of the member that sends or receives
  // it, in scratch memory on the leader otherwise, and null on other members.
  const auto out = [&](size_t piece) {
    const RemoteBlock end = step(piece).out;
    if (end.local_index == own_index) return const_cast<std::byte*>(from) + end.at + start(piece);
    return own_index == 0 ? scratch_of(kUp, piece, cut.length) : nullptr;
  };
  const auto in = [&](size_t piece) {
    const RemoteBlock end = step(piece).in;
    if (end.local_index == own_index) return received(end.at + start(piece));
    return own_index == 0 ? scratch_of(kDown, piece, cut.length) : nullptr;
  };
  const auto stay_here = [&](size_t piece) {
    const auto [sender, receiver] = step(piece);
    if (sender.local_index != receiver.local_index)
      pass(sender.local_index, receiver.local_index, sender.local_index == own_index ? out(piece) : in(piece),
           count(piece));
    else if (sender.local_index == own_index)
      copy_bytes(in(piece), out(piece), count(piece));
  };
  in_pieces(steps.size() * cut.pieces(),
            {.up =
                 [&](size_t piece) {
                   const RemoteBlock end = step(piece).out;
                   if (end.host == own_host) return stay_here(piece);
                   if (end.host >= 0) pass(end.local_index, 0, out(piece), count(piece));
                 },
             .down =
                 [&](size_t piece) {
                   const RemoteBlock end = step(piece).in;
                   if (end.host >= 0 && end.host != own_host)
                     pass(0, end.local_index, in(piece), count(piece));
                 },
             .across =
                 [&](size_t piece, OverlapHook overlap) {
                   std::vector<TransportBlock> sends(static_cast<size_t>(layout_.hosts())), receives(sends);
                   const auto [to, of] = step(piece);
                   if (to.host >= 0 && to.host != own_host)
                     sends[static_cast<size_t>(to.host)] = {out(piece), count(piece)};
                   if (of.host >= 0 && of.host != own_host)
                     receives[static_cast<size_t>(of.host)] = {in(piece), count(piece)};
                   context_.links.leaders().exchange(sends, receives, deadline_, std::move(overlap));
                 }});
}

// One step for each rank. Blocks of the root's own host are passed while those of other hosts travel.
void HierTransfer::gather_in_steps() {
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout_.host_of(call_.root), root_index = layout_.local_index_of(call_.root);
  std::vector<BlockPair> steps;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    BlockPair step;
    if (layout_.own_host() == layout_.host_of(rank)) step.out = {root_host, layout_.local_index_of(rank), 0};
    if (layout_.own_host() == root_host)
      step.in = {layout_.host_of(rank), root_index, static_cast<size_t>(rank) * block};
    steps.push_back(step);
  }
  exchange_pipelined(sent(0), steps);
}

void HierTransfer::scatter_in_steps() {
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout_.host_of(call_.root), root_index = layout_.local_index_of(call_.root);
  std::vector<BlockPair> steps;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    BlockPair step;
    if (layout_.own_host() == root_host)
      step.out = {layout_.host_of(rank), root_index, static_cast<size_t>(rank) * block};
    if (layout_.own_host() == layout_.host_of(rank)) step.in = {root_host, layout_.local_index_of(rank), 0};
    steps.push_back(step);
  }
  exchange_pipelined(sent(0), steps);
}

// For each distance, a host sends to the host that far ahead and receives from the one that far behind,
// with one step for each pair of members.
void HierTransfer::exchange_in_steps() {
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  std::vector<std::byte> sent_in_place;  // in place, received blocks would overwrite unsent ones
  if (call_.send == call_.recv)
    sent_in_place.assign(sent(0), sent(block * static_cast<size_t>(layout_.size())));
  const std::byte* const from = sent_in_place.empty() ? sent(0) : sent_in_place.data();
  exchange_on_host(from);
  const int own = layout_.own_host(), hosts = layout_.hosts();
  const auto most = static_cast<int>(layout_.most_members());
  const auto has = [&](int host, int member) {
    return member < static_cast<int>(layout_.members(host).size());
  };
  const auto at = [&](int host, int member) {
    return static_cast<size_t>(layout_.members(host)[static_cast<size_t>(member)]) * block;
  };
  std::vector<BlockPair> steps;
  for (int hop = 1; hop < hosts; ++hop)
    for (int sender = 0; sender < most; ++sender)
      for (int receiver = 0; receiver < most; ++receiver) {
        const int to = (own + hop) % hosts, of = (own + hosts - hop) % hosts;
        BlockPair step;
        if (has(own, sender) && has(to, receiver)) step.out = {to, sender, at(to, receiver)};
        if (has(of, sender) && has(own, receiver)) step.in = {of, receiver, at(of, sender)};
        steps.push_back(step);
      }
  exchange_pipelined(from, steps);
}

// Blocks between ranks of this host do not pass through its leader.
void HierTransfer::exchange_on_host(const std::byte* from) {
  const auto& members = layout_.own_members();
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const size_t first = static_cast<size_t>(members.front()) * block;
  const bool in_a_row = static_cast<size_t>(members.back() - members.front()) + 1 == members.size();
  std::vector<std::byte> out, in;
  Call call;
  call.kind = OpKind::kAllToAll;
  call.dtype = DSC_DTYPE_U8;
  call.count = block;
  call.send = from + first;
  call.recv = received(first);
  if (!in_a_row) {
    for (const int32_t rank : members)
      out.insert(out.end(), from + static_cast<size_t>(rank) * block,
                 from + static_cast<size_t>(rank + 1) * block);
    in.resize(out.size());
    call.send = out.data();
    call.recv = in.data();
  }
  run_local(call);
  if (in_a_row) return;
  for (size_t member = 0; member < members.size(); ++member)
    copy_bytes(received(static_cast<size_t>(members[member]) * block), in.data() + member * block, block);
}

}  // namespace dsc
