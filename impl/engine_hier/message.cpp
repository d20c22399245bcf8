#include "engine_hier/message.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/call_signature.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

void compare_ends(TransportGroup& pair, const CommState& state, const Call& call, uint64_t number,
                  Deadline deadline) {
  Call neutral = call;  // both ends must compute the same fingerprint
  neutral.kind = OpKind::kSend;
  neutral.root = -1;
  const CallSignature own = signature_of(neutral, state.id(), number);
  std::vector<std::string> texts;
  pair.meet({reinterpret_cast<const char*>(&own), sizeof own}, texts, deadline);
  const std::string& other = texts[pair.rank() == 0 ? 1 : 0];
  CallSignature theirs{};
  std::memcpy(&theirs, other.data(), std::min(other.size(), sizeof theirs));
  const CallDifference found = difference({own, theirs}, {{state.rank()}, {call.root}});
  if (found.text.empty()) return;
  ErrorPlace place;
  place.revoked = true;  // marks the ranks as those of this group
  place.n_ranks = 2;
  std::tie(place.ranks[0], place.ranks[1]) = std::minmax(state.rank(), call.root);
  place.rank = place.ranks[0];
  throw Error(DSC_ERR_MISMATCH, found.text.c_str(), place);
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

void pass_message(HierLinks& links, const CommState& state, const Call& call, uint64_t number,
                  Deadline deadline) {
  const bool sends = call.kind == OpKind::kSend;
  const int ends[] = {sends ? state.rank() : call.root, sends ? call.root : state.rank()};
  capture(
      [&] {
        TransportGroup& pair = links.pair(ends[0], ends[1], {call.kind, number, now_ns()}, deadline);
        compare_ends(pair, state, call, number, deadline);
        exchange(pair, call, deadline);
      },
      [&](const Error& error) {
        ErrorPlace place = error.place();
        if (place.revoked) throw error;  // its ranks are those of the group already
        place.revoked = true;
        for (int32_t i = 0; i < place.n_ranks; ++i) place.ranks[i] = ends[place.ranks[i] == 0 ? 0 : 1];
        throw Error(error.code(), error.what(), place);
      });
}

}  // namespace dsc
