// Data that goes straight from the memory of one rank into that of another. It uses the connections of the
// leaders where each host has one rank, and otherwise connections between all ranks, which are made when
// large blocks first need them.
#include <numeric>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "dtype/dtype.hpp"
#include "engine_hier/hier_engine.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {
namespace {

// In larger groups ranks do not connect to each other, and the leaders pass on large blocks.
constexpr int kMostRanks = 32;

// Runs an operation of a transport group that has every rank as a "host", so that the numbers in its errors
// are ranks of the group.
void as_ranks_of_group(const std::function<void()>& operation) {
  capture(operation, [&](const Error& error) {
    ErrorPlace place = error.place();
    place.revoked = true;
    throw Error(error.code(), error.what(), place);
  });
}

}  // namespace

void HierTransfer::broadcast_directly() {
  const size_t bytes = call_.count * dtype_bytes(call_.dtype);
  const bool is_root = comm_.rank() == call_.root;
  void* const data = is_root ? const_cast<std::byte*>(sent(0)) : received(0);
  const auto keep = [&] { copy_bytes(received(0), data, bytes); };
  comm_.transport_->broadcast(data, bytes, call_.root, deadline_,
                              is_root ? OverlapHook(keep) : OverlapHook());
}

void HierTransfer::all_gather_directly() {
  const std::vector<size_t> bytes = lengths();
  const TransportBlock own{const_cast<std::byte*>(sent(0)), bytes[static_cast<size_t>(comm_.rank())]};
  std::vector<TransportBlock> receives;
  size_t start = 0;
  for (const size_t length : bytes) receives.push_back({received(start), length}), start += length;
  comm_.transport_->exchange(std::vector<TransportBlock>(bytes.size(), own), receives, deadline_);
}

// Blocks between ranks of one host are passed there while the others travel.
void HierTransfer::exchange_directly() {
  const size_t block = call_.count * dtype_bytes(call_.dtype), ranks = static_cast<size_t>(comm_.size());
  const bool is_root = comm_.rank() == call_.root, to_all = call_.kind == OpKind::kAllToAll;
  const bool gathers = call_.kind == OpKind::kGather, alone = one_rank_per_host();
  std::vector<std::byte> sent_in_place;  // in place, received blocks would overwrite unsent ones
  if (to_all && call_.send == call_.recv) sent_in_place.assign(sent(0), sent(block * ranks));
  const std::byte* const from = sent_in_place.empty() ? sent(0) : sent_in_place.data();
  std::vector<TransportBlock> sends(ranks), receives(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int other = static_cast<int>(rank);
    if (!alone && comm_.layout_.host_of(other) == comm_.layout_.own_host()) continue;
    const std::byte* const part = from + (gathers ? 0 : rank * block);
    if (to_all || (gathers ? other == call_.root : is_root))
      sends[rank] = {const_cast<std::byte*>(part), block};
    if (to_all || (gathers ? is_root : other == call_.root))
      receives[rank] = {received(to_all || gathers ? rank * block : 0), block};
  }
  if (alone) return comm_.transport_->exchange(sends, receives, deadline_);
  comm_.exchange_among_ranks(sends, receives, deadline_, overlap([&] {
                               if (to_all)
                                 exchange_on_host(from);
                               else
                                 pass_on_host(block);
                             }));
}

// Passes the blocks between the root and the other members of its host.
void HierTransfer::pass_on_host(size_t block) {
  const HierLayout& layout = comm_.layout_;
  if (layout.own_host() != layout.host_of(call_.root)) return;
  const bool gathers = call_.kind == OpKind::kGather, is_root = layout.rank() == call_.root;
  const int root_place = layout.place_of(call_.root);
  for (const int32_t rank : layout.own_members()) {
    const size_t at = static_cast<size_t>(rank) * block;
    std::byte* const out = const_cast<std::byte*>(gathers ? sent(0) : sent(at));
    std::byte* const in = gathers ? received(at) : received(0);
    const int place = layout.place_of(rank);
    if (rank == call_.root)
      copy_bytes(is_root ? in : nullptr, is_root ? out : nullptr, is_root ? block : 0);
    else if (gathers)
      pass(place, root_place, is_root ? in : out, block);
    else
      pass(root_place, place, is_root ? out : in, block);
  }
}

// ---- the connections

// The first call connects all ranks to each other. If one rank cannot open its end, none of them connects,
// and the leaders pass on the blocks.
bool HierTransfer::ranks_are_connected() {
  if (comm_.size() > kMostRanks) return false;
  if (!comm_.connects_ranks_) {
    std::unique_ptr<TransportGroup> wire = comm_.open_among_ranks();
    comm_.connects_ranks_ = all_can(wire != nullptr);
    if (*comm_.connects_ranks_) comm_.connect_among_ranks(std::move(wire), deadline_);
  }
  return *comm_.connects_ranks_;
}

bool HierTransfer::all_can(bool can) {
  uint8_t all = can ? 1 : 0;
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_U8;
  call.op = DSC_OP_MIN;
  call.send = &all;
  call.recv = &all;
  call.count = 1;
  HierTransfer(comm_, call, deadline_).all_reduce();
  return all != 0;
}

std::unique_ptr<TransportGroup> HierEngine::open_among_ranks() {
  std::vector<int32_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<TransportGroup> wire;
  capture(
      [&] {
        wire = std::make_unique<TransportGroup>(world_->transport(), rank(), std::move(ranks),
                                                Mesh::Members::kRanks);
      },
      [&](dsc_result_t, const char* why) {
        log(DSC_LOG_WARN, "group \"%s\" passes large blocks through one rank of each host: %s",
            name().c_str(), why);
      });
  return wire;
}

void HierEngine::connect_among_ranks(std::unique_ptr<TransportGroup> made, Deadline deadline) {
  TransportGroup& wire = *made;
  {
    MutexLock lock(mutex_);  // stored before it connects, so that a failure of the group aborts it
    among_ranks_ = std::move(made);
  }
  if (revoked_.load()) wire.abort();
  wire.set_check([this](const std::vector<bool>& awaited) {
    check_host();
    std::vector<int32_t> late;
    for (size_t rank = 0; rank < awaited.size(); ++rank)
      if (awaited[rank]) late.push_back(static_cast<int32_t>(rank));
    report_late(waiting_, late);
  });
  as_ranks_of_group([&] { connect_and_clear(wire, wire_key() + "/ranks", rank(), deadline); });
}

void HierEngine::exchange_among_ranks(std::span<const TransportBlock> sends,
                                      std::span<const TransportBlock> receives, Deadline deadline,
                                      OverlapHook overlap) {
  TransportGroup* wire = nullptr;
  {
    MutexLock lock(mutex_);
    wire = among_ranks_.get();
  }
  as_ranks_of_group([&] { wire->exchange(sends, receives, deadline, std::move(overlap)); });
}

}  // namespace dsc
