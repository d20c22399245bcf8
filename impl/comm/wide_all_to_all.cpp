// All-to-all between hosts of several ranks.
#include <cstring>

#include "comm/wide_comm.hpp"
#include "comm/wide_move.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kRoundBytes = size_t{1} << 20;   // of a round
constexpr size_t kAtOnceBytes = size_t{1} << 18;  // up to here, at a leader, rounds cost more than copies

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

void WideMove::all_to_all() {
  const size_t block = call_.count * dtype_bytes(call_.dtype), ranks = static_cast<size_t>(comm_.size());
  size_t most_members = 0;
  for (int host = 0; host < comm_.layout_.hosts(); ++host)
    most_members = std::max(most_members, comm_.layout_.members(host).size());
  if (block * ranks * most_members <= kAtOnceBytes) return exchange_at_once();
  if (call_.send != call_.recv) return exchange_in_rounds(sent(0), most_members);
  const std::vector<std::byte> in_place(sent(0), sent(block * ranks));
  exchange_in_rounds(in_place.data(), most_members);
}

// At the leader: [member][receiver] from this host; [receiver][member] to every host; [sender] to each
// member.
void WideMove::exchange_at_once() {
  const WideLayout& layout = comm_.layout_;
  const size_t block = call_.count * dtype_bytes(call_.dtype), ranks = static_cast<size_t>(comm_.size());
  const size_t members = layout.own_members().size(), bytes = block * ranks;
  if (bytes == 0) return;
  const bool leads = layout.leads();
  std::byte* const rows = leads ? room(kOwn, bytes * members) : nullptr;
  gather_rows(call_.send, rows, bytes);
  if (leads) {
    std::vector<WireBlock> sends, receives;
    std::byte *to = room(kUp, bytes * members), *from = room(kDown, bytes * members);
    for (int host = 0; host < layout.hosts(); ++host) {
      const size_t length = block * members * layout.members(host).size();
      sends.push_back({to, length});
      receives.push_back({from, length});
      from += length;
      for (const int32_t receiver : layout.members(host))
        for (size_t member = 0; member < members; ++member, to += block)
          copy_bytes(to, rows + member * bytes + static_cast<size_t>(receiver) * block, block);
    }
    comm_.wire_->exchange(sends, receives, deadline_);
    for (int host = 0; host < layout.hosts(); ++host) {
      const std::byte* at = static_cast<const std::byte*>(receives[static_cast<size_t>(host)].data);
      for (size_t member = 0; member < members; ++member)
        for (const int32_t sender : layout.members(host)) {
          copy_bytes(rows + member * bytes + static_cast<size_t>(sender) * block, at, block);
          at += block;
        }
    }
  }
  scatter_rows(rows, call_.recv, bytes);
}

// In each round the leaders have the blocks for one rank of another host: so many hosts further, so many
// ranks from its leader. Long blocks take several rounds.
void WideMove::exchange_in_rounds(const std::byte* from, size_t most_members) {
  const WideLayout& layout = comm_.layout_;
  const size_t block = call_.count * dtype_bytes(call_.dtype);
  const auto hosts = static_cast<size_t>(layout.hosts()), own = static_cast<size_t>(layout.own_host());
  const Cut cut(block, kRoundBytes / most_members);
  struct Round {
    int to, from;
    size_t place, part;
  };
  const auto round = [&](size_t number) {
    const size_t place = number / cut.pieces(), hop = 1 + place / most_members;
    return Round{static_cast<int>((own + hop) % hosts), static_cast<int>((own + hosts - hop) % hosts),
                 place % most_members, number % cut.pieces()};
  };
  const auto sends = [&](const Round& r) { return r.place < layout.members(r.to).size(); };
  const auto receives = [&](const Round& r) { return r.place < layout.own_members().size(); };
  const auto rows = [&](Room first, size_t number) {
    return room_of(first, number, cut.length * most_members);
  };
  exchange_on_host(from);
  in_pieces(
      (hosts - 1) * most_members * cut.pieces(),
      {.up =
           [&](size_t number) {
             const Round r = round(number);
             if (!sends(r)) return;
             const auto receiver = static_cast<size_t>(layout.members(r.to)[r.place]);
             gather_rows(from + receiver * block + cut.start(r.part),
                         layout.leads() ? rows(kUp, number) : nullptr, cut.count(r.part));
           },
       .down =
           [&](size_t number) {
             const Round r = round(number);
             if (!receives(r)) return;
             const size_t bytes = cut.count(r.part);
             const std::byte* row = rows(kDown, number);
             pass(0, static_cast<int>(r.place), rows(kDown, number), bytes * layout.members(r.from).size());
             if (static_cast<size_t>(layout.own_place()) != r.place) return;
             for (const int32_t sender : layout.members(r.from)) {
               copy_bytes(received(static_cast<size_t>(sender) * block + cut.start(r.part)), row, bytes);
               row += bytes;
             }
           },
       .across =
           [&](size_t number, Meanwhile meanwhile) {
             const Round r = round(number);
             const size_t bytes = cut.count(r.part);
             std::vector<WireBlock> out(hosts), in(hosts);
             if (sends(r))
               out[static_cast<size_t>(r.to)] = {rows(kUp, number), bytes * layout.own_members().size()};
             if (receives(r))
               in[static_cast<size_t>(r.from)] = {rows(kDown, number), bytes * layout.members(r.from).size()};
             comm_.wire_->exchange(out, in, deadline_, std::move(meanwhile));
           }});
}

// What stays on this host, without its leader.
void WideMove::exchange_on_host(const std::byte* from) {
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
