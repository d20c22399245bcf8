#include "engine_hier/all_to_all.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {
namespace {

// What each rank sends to all other ranks about the sizes of its blocks.
struct Shown {
  uint64_t sent_bytes;
  uint64_t received_bytes;
  uint64_t longest_bytes;
  // Elements that rank `sender` sends to this rank, in the first block on whose length the two ranks
  // disagree.
  uint64_t sends;
  uint64_t expects;  // elements that this rank expects in that block
  int64_t sender;    // -1: all blocks have the expected lengths
};

[[noreturn]] void fail_pair(int receiver, const Shown& shown) {
  const auto sender = static_cast<int32_t>(shown.sender);
  Failure failure;
  failure.code = DSC_ERR_MISMATCH;
  failure.ranks = {std::min(sender, receiver), std::max(sender, receiver)};
  failure.has_user_ranks = true;
  failure.text = "rank " + std::to_string(sender) + " sends " + std::to_string(shown.sends) +
                 " elements to rank " + std::to_string(receiver) + ", which expects " +
                 std::to_string(shown.expects);
  throw Error(failure);
}

}  // namespace

AllToAll::AllToAll(HierContext& context, const Call& call, Deadline deadline) noexcept
    : HierSteps(context, call, deadline),
      element_bytes_(dtype_bytes(call.dtype)),
      from_(static_cast<const std::byte*>(call.send)) {}

void AllToAll::run() {
  const Sizes sizes = is_even() ? even_sizes() : compare_lengths();
  if (sizes.longest == 0) return;
  const bool at_once = sizes.at_leader <= kAtOnceBytes;
  if (one_rank_per_host() || (!at_once && ranks_connect(context_, deadline_))) return exchange_directly();
  if (!is_even()) learn_lengths();
  if (at_once) return exchange_at_once();
  exchange_in_steps(sizes.longest);
}

// ---- lengths

AllToAll::Sizes AllToAll::even_sizes() const noexcept {
  const size_t block = call_.count * element_bytes_;
  return {block, block * static_cast<size_t>(layout_.size()) * layout_.most_members()};
}

// Each rank compares what others send to it with what it expects. All ranks learn of the first difference
// before any data is written.
AllToAll::Sizes AllToAll::compare_lengths() {
  const std::vector<size_t>&sends = call_.send_blocks->lengths, &expects = call_.recv_blocks->lengths;
  std::vector<uint64_t> sent(sends.begin(), sends.end()), comes(sent.size());
  AllToAll(context_, call_of_bytes(OpKind::kAllToAll, -1, sent.data(), comes.data(), sizeof sent[0]),
           deadline_)
      .run();
  Shown own{call_.send_blocks->total() * element_bytes_,
            call_.recv_blocks->total() * element_bytes_,
            std::max(*std::ranges::max_element(sends), *std::ranges::max_element(expects)) * element_bytes_,
            0,
            0,
            -1};
  for (size_t rank = 0; rank < comes.size() && own.sender < 0; ++rank)
    if (comes[rank] != expects[rank])
      own.sends = comes[rank], own.expects = expects[rank], own.sender = static_cast<int64_t>(rank);
  std::vector<Shown> all(comes.size());
  HierTransfer(context_, call_of_bytes(OpKind::kAllGather, -1, &own, all.data(), sizeof own), deadline_)
      .run();
  Sizes sizes;
  std::vector<size_t> out(static_cast<size_t>(layout_.hosts())), in(out);
  for (int rank = 0; rank < layout_.size(); ++rank) {
    const Shown& shown = all[static_cast<size_t>(rank)];
    if (shown.sender >= 0) fail_pair(rank, shown);
    if (std::max(shown.sent_bytes, shown.received_bytes) > SIZE_MAX / 2 / all.size() ||
        shown.longest_bytes > std::max(shown.sent_bytes, shown.received_bytes))
      fail(DSC_ERR_PROTOCOL, "rank %d announced lengths that overflow or contradict each other", rank);
    const auto host = static_cast<size_t>(layout_.host_of(rank));
    sizes.longest = std::max<size_t>(sizes.longest, shown.longest_bytes);
    sizes.at_leader =
        std::max({sizes.at_leader, out[host] += shown.sent_bytes, in[host] += shown.received_bytes});
  }
  return sizes;
}

void AllToAll::learn_lengths() {
  const size_t ranks = static_cast<size_t>(layout_.size()), members = layout_.own_members().size();
  std::vector<uint64_t> own(call_.send_blocks->lengths.begin(), call_.send_blocks->lengths.end());
  own.insert(own.end(), call_.recv_blocks->lengths.begin(), call_.recv_blocks->lengths.end());
  lists_.resize(2 * ranks * members);
  run_local(call_of_bytes(OpKind::kAllGather, -1, own.data(), lists_.data(), own.size() * sizeof own[0]));
}

size_t AllToAll::out_bytes(size_t member, int receiver) const noexcept {
  const size_t ranks = static_cast<size_t>(layout_.size());
  return (is_even() ? call_.count : lists_[2 * ranks * member + static_cast<size_t>(receiver)]) *
         element_bytes_;
}

size_t AllToAll::in_bytes(size_t member, int sender) const noexcept {
  const size_t ranks = static_cast<size_t>(layout_.size());
  return (is_even() ? call_.count : lists_[2 * ranks * member + ranks + static_cast<size_t>(sender)]) *
         element_bytes_;
}

TransportBlock AllToAll::own_block(const std::byte* data, const BlockList* list, int rank) const noexcept {
  const auto at = static_cast<size_t>(rank);
  const size_t start = list ? list->starts[at] : at * call_.count;
  return {const_cast<std::byte*>(data) + start * element_bytes_,
          (list ? list->lengths[at] : call_.count) * element_bytes_};
}

TransportBlock AllToAll::own_out(int rank) const noexcept {
  return own_block(from_, call_.send_blocks.get(), rank);
}

TransportBlock AllToAll::own_in(int rank) const noexcept {
  return own_block(received(0), call_.recv_blocks.get(), rank);
}

void AllToAll::keep_sent() {
  if (call_.send != call_.recv || !is_even()) return;
  kept_.assign(sent(0), sent(even_sizes().longest * static_cast<size_t>(layout_.size())));
  from_ = kept_.data();
}

// ---- directly from rank to rank

// Blocks between ranks of the same host are passed on that host while the other blocks travel.
void AllToAll::exchange_directly() {
  keep_sent();
  const bool alone = one_rank_per_host();
  std::vector<TransportBlock> sends(static_cast<size_t>(layout_.size())), receives(sends);
  for (int rank = 0; rank < layout_.size(); ++rank) {
    if (!alone && layout_.host_of(rank) == layout_.own_host()) continue;
    sends[static_cast<size_t>(rank)] = own_out(rank);
    receives[static_cast<size_t>(rank)] = own_in(rank);
  }
  if (alone) return context_.links.leaders().exchange(sends, receives, deadline_);
  context_.links.exchange_among_ranks(sends, receives, deadline_, overlap([this] { exchange_on_host(); }));
}

// Blocks between ranks of this host do not pass through its leader. If blocks for other hosts lie between
// them in memory, they are packed first.
void AllToAll::exchange_on_host() {
  const auto& members = layout_.own_members();
  const bool in_a_row = static_cast<size_t>(members.back() - members.front()) + 1 == members.size();
  std::vector<size_t> sends, receives;
  std::vector<std::byte> out;
  for (const int32_t rank : members) {
    const auto [data, bytes] = own_out(rank);
    sends.push_back(bytes);
    receives.push_back(own_in(rank).bytes);
    if (!in_a_row && bytes > 0)
      out.insert(out.end(), static_cast<std::byte*>(data), static_cast<std::byte*>(data) + bytes);
  }
  std::vector<std::byte> in(in_a_row ? 0 : std::accumulate(receives.begin(), receives.end(), size_t{0}));
  Call call = call_of_bytes(is_even() ? OpKind::kAllToAll : OpKind::kAllToAllV, -1,
                            in_a_row ? own_out(members.front()).data : out.data(),
                            in_a_row ? own_in(members.front()).data : in.data(), is_even() ? sends[0] : 0);
  if (!is_even()) {
    call.send_blocks = std::make_shared<const BlockList>(std::move(sends));
    call.recv_blocks = std::make_shared<const BlockList>(receives);
  }
  run_local(call);
  const std::byte* from = in.data();
  for (size_t member = 0; member < members.size() && !in_a_row; from += receives[member++])
    copy_bytes(own_in(members[member]).data, from, receives[member]);
}

// ---- small blocks: each leader packs those of its host

// Order of the blocks at the leader, in memory. What the members send: [member][receiver]. Data for the other
// hosts: [receiver][member]. Data from one host: [member][sender]. What the members receive:
// [member][sender].
void AllToAll::exchange_at_once() {
  const std::vector<size_t> out = row_bytes(&AllToAll::out_bytes), in = row_bytes(&AllToAll::in_bytes);
  const size_t out_total = std::accumulate(out.begin(), out.end(), size_t{0});
  const size_t in_total = std::accumulate(in.begin(), in.end(), size_t{0});
  std::byte* const rows = layout_.leads() ? scratch(kOwn, std::max(out_total, in_total)) : nullptr;
  move_rows(rows, out, true);
  if (layout_.leads()) {
    pack_for_hosts(scratch(kUp, out_total), rows);
    context_.links.leaders().exchange(host_blocks(kUp, &AllToAll::out_bytes, out_total),
                                      host_blocks(kDown, &AllToAll::in_bytes, in_total), deadline_);
    unpack_from_hosts(rows, scratch(kDown, in_total));
  }
  move_rows(rows, in, false);
}

// The ranks agreed before that the total is small. If a member's list says otherwise now, it is corrupt.
std::vector<size_t> AllToAll::row_bytes(Lengths lengths) const {
  std::vector<size_t> bytes(layout_.own_members().size());
  size_t total = 0;
  for (size_t member = 0; member < bytes.size(); ++member)
    for (int rank = 0; rank < layout_.size(); ++rank) {
      const size_t length = (this->*lengths)(member, rank);
      if (length > kAtOnceBytes || (total += length) > kAtOnceBytes)
        fail(DSC_ERR_PROTOCOL, "rank %d sends more bytes than it announced", layout_.own_members()[member]);
      bytes[member] += length;
    }
  return bytes;
}

std::vector<TransportBlock> AllToAll::host_blocks(Scratch where, Lengths lengths, size_t total) {
  std::vector<TransportBlock> blocks;
  std::byte* at = scratch(where, total);
  for (int host = 0; host < layout_.hosts(); ++host) {
    blocks.push_back({at, 0});
    for (const int32_t rank : layout_.members(host))
      for (size_t member = 0; member < layout_.own_members().size(); ++member)
        blocks.back().bytes += (this->*lengths)(member, rank);
    at += blocks.back().bytes;
  }
  return blocks;
}

void AllToAll::move_rows(std::byte* rows, const std::vector<size_t>& bytes, bool to_leader) {
  if (is_even() && to_leader) return gather_rows(call_.send, rows, bytes[0]);
  if (is_even()) return scatter_rows(rows, call_.recv, bytes[0]);
  std::vector<size_t> none(bytes.size(), 0), own(none);
  own[0] = bytes[static_cast<size_t>(layout_.own_local_index())];
  const std::vector<size_t>& leaders = layout_.leads() ? bytes : none;
  Call call =
      call_of_bytes(OpKind::kAllToAllV, -1, to_leader ? call_.send : rows, to_leader ? rows : call_.recv, 0);
  call.send_blocks = std::make_shared<const BlockList>(to_leader ? own : leaders);
  call.recv_blocks = std::make_shared<const BlockList>(to_leader ? leaders : own);
  run_local(call);
}

void AllToAll::pack_for_hosts(std::byte* to, const std::byte* rows) const {
  const size_t members = layout_.own_members().size();
  std::vector<std::vector<const std::byte*>> starts(members);
  for (size_t member = 0; member < members; ++member)
    for (int rank = 0; rank < layout_.size(); ++rank) {
      starts[member].push_back(rows);
      rows += out_bytes(member, rank);
    }
  for (const int32_t receiver : layout_.node_major_order())
    for (size_t member = 0; member < members; ++member) {
      const size_t bytes = out_bytes(member, receiver);
      copy_bytes(to, starts[member][static_cast<size_t>(receiver)], bytes);
      to += bytes;
    }
}

void AllToAll::unpack_from_hosts(std::byte* rows, const std::byte* from) const {
  const size_t members = layout_.own_members().size();
  std::vector<std::vector<std::byte*>> starts(members);
  for (size_t member = 0; member < members; ++member)
    for (int rank = 0; rank < layout_.size(); ++rank) {
      starts[member].push_back(rows);
      rows += in_bytes(member, rank);
    }
  for (int host = 0; host < layout_.hosts(); ++host)
    for (size_t member = 0; member < members; ++member)
      for (const int32_t sender : layout_.members(host)) {
        const size_t bytes = in_bytes(member, sender);
        copy_bytes(starts[member][static_cast<size_t>(sender)], from, bytes);
        from += bytes;
      }
}

// ---- large blocks through the leaders, one after another

// For each distance d from 1 on, host h sends to host h + d and receives from host h - d, modulo the number
// of hosts. There is one step for each pair of members of the two hosts.
void AllToAll::exchange_in_steps(size_t longest) {
  keep_sent();
  exchange_on_host();
  const int own = layout_.own_host(), hosts = layout_.hosts();
  const size_t most = layout_.most_members(), own_index = static_cast<size_t>(layout_.own_local_index());
  const auto has = [&](int host, size_t member) { return member < layout_.members(host).size(); };
  std::vector<BlockPair> steps;
  for (int hop = 1; hop < hosts; ++hop)
    for (size_t sender = 0; sender < most; ++sender)
      for (size_t receiver = 0; receiver < most; ++receiver) {
        const int to = (own + hop) % hosts, of = (own + hosts - hop) % hosts;
        BlockPair step;
        if (has(own, sender) && has(to, receiver)) {
          const int32_t rank = layout_.members(to)[receiver];
          step.out = {to, static_cast<int>(sender), sender == own_index ? own_out(rank).data : nullptr,
                      out_bytes(sender, rank)};
        }
        if (has(of, sender) && has(own, receiver)) {
          const int32_t rank = layout_.members(of)[sender];
          step.in = {of, static_cast<int>(receiver), receiver == own_index ? own_in(rank).data : nullptr,
                     in_bytes(receiver, rank)};
        }
        steps.push_back(step);
      }
  exchange_pipelined(steps, longest);
}

}  // namespace dsc
