// The comparison of calls: each leader gathers the calls of its host, the leaders compare them, and each
// tells the outcome to its host, so that all ranks fail alike.
#include <algorithm>
#include <bitset>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"
#include "comm/call_signature.hpp"
#include "engine_hier/hier_engine.hpp"
#include "engine_hier/hier_transfer.hpp"

namespace dsc {
namespace {

constexpr int kOutcomeGraceMs = 1000;
constexpr int kWireGraceMs = 200;  // lets the host of a late rank name it first

// One distinct call on a host, and which members made it: one bit for each of the first 256.
struct Entry {
  CallSignature shown;
  std::bitset<256> places;
};
static_assert(std::is_trivially_copyable_v<Entry>);

}  // namespace

// Throws MISMATCH if the calls differ. Inline data (`along`; may be null) is used only if they are equal.
void HierEngine::compare(const Call& call, uint64_t number, Deadline deadline, HierTransfer* along) {
  const bool is_alone = layout_.own_members().size() == 1;
  const bool takes_result = along && !along->one_rank_per_host();
  Row mine{};
  mine.shown = signature_of(call, id(), number);
  if (takes_result) along->give_part(mine.part);
  std::vector<Row> rows(layout_.leads() && !is_alone ? layout_.own_members().size() : 0);
  if (!is_alone) gather_rows(mine, rows, deadline);
  Outcome outcome;
  if (layout_.leads()) {
    const CallDifference found =
        compare_hosts(is_alone ? std::span<const Row>(&mine, 1) : rows,
                      Deadline{deadline.ns + kWireGraceMs * kNsPerMs}, along, outcome.result);
    if (!found.text.empty()) outcome.fail(DSC_ERR_MISMATCH, found.text.c_str(), found.ranks);
  }
  tell_members(outcome, deadline);
  if (takes_result) along->take_result(outcome.result);
}

void HierEngine::gather_rows(const Row& mine, std::span<Row> rows, Deadline deadline) {
  Call gather;
  gather.kind = OpKind::kGather;
  gather.dtype = DSC_DTYPE_U8;
  gather.root = 0;
  gather.send = &mine;
  gather.recv = rows.data();
  gather.count = sizeof mine;
  gather.timeout_ms = static_cast<int32_t>(std::clamp<int64_t>(deadline.remaining_ms(), 1, INT32_MAX));
  local_->run(gather);
}

// Compares the calls between leaders. A host sends one entry if its ranks agree, else one per distinct
// call.
CallDifference HierEngine::compare_hosts(std::span<const Row> rows, Deadline deadline, HierTransfer* along,
                                         std::byte* result) {
  std::vector<Entry> mine;
  for (size_t place = 0; place < rows.size(); ++place) {
    auto same = std::ranges::find_if(
        mine, [&](const Entry& entry) { return entry.shown.fingerprint == rows[place].shown.fingerprint; });
    if (same == mine.end()) same = mine.insert(mine.end(), {rows[place].shown, {}});
    if (place < same->places.size()) same->places.set(place);
  }
  mine.resize(std::min(mine.size(), TransportGroup::kMeetBytes / sizeof(Entry)));
  std::vector<const std::byte*> parts;
  for (const Row& row : rows) parts.push_back(row.part);
  CallDifference found;
  transport_->meet(
      {reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Entry)},
      along ? along->along(parts) : std::vector<TransportBlock>{},
      [&](std::span<const TransportGroup::Met> met) {
        found = difference_of(met);
        if (along && found.text.empty()) along->take_along(met, result);
      },
      deadline);
  return found;
}

CallDifference HierEngine::difference_of(std::span<const TransportGroup::Met> met) const {
  std::vector<CallSignature> all;
  std::vector<std::vector<int32_t>> ranks;
  for (size_t host = 0; host < met.size(); ++host) {
    const std::string_view text = met[host].text;
    const size_t count = text.size() / sizeof(Entry);
    if (count == 0 || text.size() % sizeof(Entry) != 0)
      fail(DSC_ERR_PROTOCOL, "host %zu shows %zu bytes of its calls", host, text.size());
    for (size_t i = 0; i < count; ++i) {
      Entry entry;
      std::memcpy(&entry, text.data() + i * sizeof entry, sizeof entry);
      const std::vector<int32_t>& members = layout_.members(static_cast<int>(host));
      all.push_back(entry.shown);
      ranks.push_back(count == 1 ? members : std::vector<int32_t>{});
      for (size_t place = 0; count > 1 && place < std::min(members.size(), entry.places.size()); ++place)
        if (entry.places[place]) ranks.back().push_back(members[place]);
      if (ranks.back().empty()) ranks.back().push_back(members.back());  // beyond the first 256 members
    }
  }
  return difference(all, ranks);
}

// Passes the outcome from the leader to the ranks of its host. All of them throw if it is a failure.
void HierEngine::tell_members(Outcome& outcome, Deadline deadline) {
  if (layout_.own_members().size() > 1) spread(outcome, deadline);
  if (outcome.code == DSC_OK) return;
  Failure failure;
  failure.code = static_cast<dsc_result_t>(outcome.code);
  failure.text = outcome.text;
  failure.ranks.assign(outcome.ranks, outcome.ranks + outcome.n_ranks);
  failure.rank = failure.ranks.empty() ? kNoRank : failure.ranks.front();
  failure.revoked = !failure.ranks.empty();  // marks the ranks as those of the group
  fail_with(failure);
}

void HierEngine::spread(Outcome& outcome, Deadline deadline) {
  Call spread;
  spread.kind = OpKind::kBroadcast;
  spread.dtype = DSC_DTYPE_U8;
  spread.root = 0;
  spread.send = &outcome;
  spread.recv = &outcome;
  spread.count = sizeof outcome;
  const int64_t patience_ms = std::min<int64_t>(deadline.remaining_ms(), INT32_MAX / 2) + kOutcomeGraceMs;
  spread.timeout_ms = static_cast<int32_t>(patience_ms);
  local_->run(spread);
}

}  // namespace dsc
