#include "engine_hier/message.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/call_signature.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

void compare_ends(TransportGroup& pair, const CommState& state, const Call& call, uint64_t sequence,
                  Deadline deadline) {
  const CallSignature own = signature_of_message(call, state.id(), sequence);
  std::vector<std::string> texts;
  pair.exchange_headers({reinterpret_cast<const char*>(&own), sizeof own}, texts, deadline);
  const std::string& other = texts[pair.rank() == 0 ? 1 : 0];
  CallSignature theirs{};
  std::memcpy(&theirs, other.data(), std::min(other.size(), sizeof theirs));
  if (theirs.fingerprint == own.fingerprint) return;
  throw Error(failure_of(difference_of_ends({state.rank(), own.fields}, {call.root, theirs.fields})));
}

void exchange(TransportGroup& pair, const Call& call, Deadline deadline) {
  std::vector<TransportBlock> out(2), in(2);
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  if (call.kind == OpKind::kSend)
    out[1] = {const_cast<void*>(call.send), bytes};
  else
    in[0] = {call.recv, bytes};
  pair.exchange(out, in, deadline);
}

}  // namespace

void pass_message(HierLinks& links, const CommState& state, const Call& call, uint64_t sequence,
                  ArrivalMark& arrival, Deadline deadline) {
  const bool sends = call.kind == OpKind::kSend;
  const int ends[] = {sends ? state.rank() : call.root, sends ? call.root : state.rank()};
  capture(
      [&] {
        TransportGroup& pair = links.pair(ends[0], ends[1], {call.kind, sequence, now_ns()}, deadline);
        compare_ends(pair, state, call, sequence, deadline);
        arrival.set();
        exchange(pair, call, deadline);
      },
      [&](const Error& error) {
        Failure failure = error.failure();
        if (failure.has_user_ranks) throw error;
        failure.has_user_ranks = true;
        for (int32_t& rank : failure.ranks) rank = ends[rank == 0 ? 0 : 1];
        throw Error(failure);
      });
}

}  // namespace dsc
