// Operations that send blocks from one rank to another: gather, scatter and all-to-all between hosts.
#include "dtype/dtype.hpp"
#include "engine_hier/hier_engine.hpp"
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
  const size_t all = block * static_cast<size_t>(comm_.size());
  const bool exchanges = call_.kind == OpKind::kAllToAll;
  const size_t at_leader = exchanges ? all * comm_.layout_.most_members() : all;
  const bool at_once = at_leader <= kAtOnceBytes;
  if (one_rank_per_host() || (!at_once && ranks_are_connected())) return exchange_directly();
  if (call_.kind == OpKind::kGather) return at_once ? gather_at_once() : gather_in_steps();
  if (call_.kind == OpKind::kScatter) return at_once ? scatter_at_once() : scatter_in_steps();
  return at_once ? exchange_at_once() : exchange_in_steps();
}

// ---- small blocks: each leader packs all blocks of its host

void HierTransfer::gather_rows(const void* row, void* rows, size_t bytes) {
  Call call;
  call.kind = OpKind::kGather;
  call.dtype = DSC_DTYPE_U8;
  call.root = 0;
  call.send = row;
  call.recv = rows;
  call.count = bytes;
  run_local(call);
}

void HierTransfer::scatter_rows(const void* rows, void* row, size_t bytes) {
  Call call;
  call.kind = OpKind::kScatter;
  call.dtype = DSC_DTYPE_U8;
  call.root = 0;
  call.send = rows;
  call.recv = row;
  call.count = bytes;
  run_local(call);
}

void HierTransfer::gather_at_once() {
  const HierLayout& layout = comm_.layout_;
  const std::vector<size_t> bytes = lengths();
  const size_t block = bytes[0], members = layout.own_members().size();
  const int root_host = layout.host_of(call_.root);
  std::byte* const rows = layout.leads() ? scratch(kUp, block * members) : nullptr;
  std::byte* const all = scratch(kDown, block * bytes.size());
  gather_rows(call_.send, rows, block);
  if (layout.leads()) {
    std::vector<TransportBlock> sends(static_cast<size_t>(layout.hosts())), receives(sends);
    sends[static_cast<size_t>(root_host)] = {rows, block * members};
    if (layout.own_host() == root_host) receives = by_host(layout, all, block);
    comm_.transport_->exchange(sends, receives, deadline_);
  }
  if (layout.own_host() != root_host) return;
  pass(0, layout.place_of(call_.root), all, block * bytes.size());
  if (layout.rank() == call_.root) layout.unpack(received(0), all, bytes);
}

void HierTransfer::scatter_at_once() {
  const HierLayout& layout = comm_.layout_;
  const std::vector<size_t> bytes = lengths();
  const size_t block = bytes[0], members = layout.own_members().size();
  const int root_host = layout.host_of(call_.root);
  std::byte* const rows = layout.leads() ? scratch(kDown, block * members) : nullptr;
  std::byte* const all = scratch(kUp, block * bytes.size());
  if (layout.rank() == call_.root) layout.pack(all, sent(0), bytes);
  if (layout.own_host() == root_host) pass(layout.place_of(call_.root), 0, all, block * bytes.size());
  if (layout.leads()) {
    std::vector<TransportBlock> sends(static_cast<size_t>(layout.hosts())), receives(sends);
    receives[static_cast<size_t>(root_host)] = {rows, block * members};
    if (layout.own_host() == root_host) sends = by_host(layout, all, block);
    comm_.transport_->exchange(sends, receives, deadline_);
  }
  scatter_rows(rows, call_.recv, block);
}

// Block orders at the leader: the gathered rows are [member][receiver], data for the hosts
// [receiver][member], data from a host [member][sender], and the scattered rows [member][sender].
void HierTransfer::exchange_at_once() {
  const HierLayout& layout = comm_.layout_;
  const size_t block = call_.count * dtype_bytes(call_.dtype), ranks = static_cast<size_t>(comm_.size());
  const size_t members = layout.own_members().size(), bytes = block * ranks;
  std::byte* const rows = layout.leads() ? scratch(kOwn, bytes * members) : nullptr;
  gather_rows(call_.send, rows, bytes);
  if (layout.leads()) {
    const std::vector<TransportBlock> sends = by_host(layout, scratch(kUp, bytes * members), block * members);
    const std::vector<TransportBlock> receives =
        by_host(layout, scratch(kDown, bytes * members), block * members);
    std::byte* to = scratch(kUp, bytes * members);
    for (const int32_t receiver : layout.node_major_order())
      for (size_t member = 0; member < members; ++member, to += block)
        copy_bytes(to, rows + member * bytes + static_cast<size_t>(receiver) * block, block);
    comm_.transport_->exchange(sends, receives, deadline_);
    for (int host = 0; host < layout.hosts(); ++host) {
      const auto* at = static_cast<const std::byte*>(receives[static_cast<size_t>(host)].data);
      for (size_t member = 0; member < members; ++member)
        for (const int32_t sender : layout.members(host)) {
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
  const int own_place = comm_.layout_.own_place(), own_host = comm_.layout_.own_host();
  const auto parcels = [&](size_t piece) { return steps[piece % steps.size()]; };
  const auto count = [&](size_t piece) { return cut.count(piece / steps.size()); };
  const auto start = [&](size_t piece) { return cut.start(piece / steps.size()); };
  // out() and in() return where a piece is on this rank: in the buffer of the member that sends or receives
  // it, in scratch memory on the leader otherwise, and null on other members.
  const auto out = [&](size_t piece) {
    const RemoteBlock parcel = parcels(piece).out;
    if (parcel.place == own_place) return const_cast<std::byte*>(from) + parcel.at + start(piece);
    return own_place == 0 ? scratch_of(kUp, piece, cut.length) : nullptr;
  };
  const auto in = [&](size_t piece) {
    const RemoteBlock parcel = parcels(piece).in;
    if (parcel.place == own_place) return received(parcel.at + start(piece));
    return own_place == 0 ? scratch_of(kDown, piece, cut.length) : nullptr;
  };
  const auto stay_here = [&](size_t piece) {
    const auto [sender, receiver] = parcels(piece);
    if (sender.place != receiver.place)
      pass(sender.place, receiver.place, sender.place == own_place ? out(piece) : in(piece), count(piece));
    else if (sender.place == own_place)
      copy_bytes(in(piece), out(piece), count(piece));
  };
  in_pieces(steps.size() * cut.pieces(),
            {.up =
                 [&](size_t piece) {
                   const RemoteBlock parcel = parcels(piece).out;
                   if (parcel.host == own_host) return stay_here(piece);
                   if (parcel.host >= 0) pass(parcel.place, 0, out(piece), count(piece));
                 },
             .down =
                 [&](size_t piece) {
                   const RemoteBlock parcel = parcels(piece).in;
                   if (parcel.host >= 0 && parcel.host != own_host)
                     pass(0, parcel.place, in(piece), count(piece));
                 },
             .across =
                 [&](size_t piece, OverlapHook overlap) {
                   std::vector<TransportBlock> sends(static_cast<size_t>(comm_.layout_.hosts())),
                       receives(sends);
                   const auto [to, of] = parcels(piece);
                   if (to.host >= 0 && to.host != own_host)
                     sends[static_cast<size_t>(to.host)] = {out(piece), count(piece)};
                   if (of.host >= 0 && of.host != own_host)
                     receives[static_cast<size_t>(of.host)] = {in(piece), count(piece)};
                   comm_.transport_->exchange(sends, receives, deadline_, std::move(overlap));
                 }});
}

// One step for each rank. Blocks of the root's own host are passed while those of other hosts travel.
void HierTransfer::gather_in_steps() {
  const HierLayout& layout = comm_.layout_;
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout.host_of(call_.root), root_place = layout.place_of(call_.root);
  std::vector<BlockPair> steps;
  for (int rank = 0; rank < layout.size(); ++rank) {
    BlockPair step;
    if (layout.own_host() == layout.host_of(rank)) step.out = {root_host, layout.place_of(rank), 0};
    if (layout.own_host() == root_host)
      step.in = {layout.host_of(rank), root_place, static_cast<size_t>(rank) * block};
    steps.push_back(step);
  }
  exchange_pipelined(sent(0), steps);
}

void HierTransfer::scatter_in_steps() {
  const HierLayout& layout = comm_.layout_;
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout.host_of(call_.root), root_place = layout.place_of(call_.root);
  std::vector<BlockPair> steps;
  for (int rank = 0; rank < layout.size(); ++rank) {
    BlockPair step;
    if (layout.own_host() == root_host)
      step.out = {layout.host_of(rank), root_place, static_cast<size_t>(rank) * block};
    if (layout.own_host() == layout.host_of(rank)) step.in = {root_host, layout.place_of(rank), 0};
    steps.push_back(step);
  }
  exchange_pipelined(sent(0), steps);
}

// For each distance, a host sends to the host that far ahead and receives from the one that far behind,
// with one step for each pair of members.
void HierTransfer::exchange_in_steps() {
  const HierLayout& layout = comm_.layout_;
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  std::vector<std::byte> sent_in_place;  // in place, received blocks would overwrite unsent ones
  if (call_.send == call_.recv)
    sent_in_place.assign(sent(0), sent(block * static_cast<size_t>(comm_.size())));
  const std::byte* const from = sent_in_place.empty() ? sent(0) : sent_in_place.data();
  exchange_on_host(from);
  const int own = layout.own_host(), hosts = layout.hosts();
  const auto most = static_cast<int>(layout.most_members());
  const auto has = [&](int host, int place) { return place < static_cast<int>(layout.members(host).size()); };
  const auto at = [&](int host, int place) {
    return static_cast<size_t>(layout.members(host)[static_cast<size_t>(place)]) * block;
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
  const auto& members = comm_.layout_.own_members();
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
  for (size_t place = 0; place < members.size(); ++place)
    copy_bytes(received(static_cast<size_t>(members[place]) * block), in.data() + place * block, block);
}

}  // namespace dsc
