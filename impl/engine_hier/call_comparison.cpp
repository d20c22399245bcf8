#include "engine_hier/call_comparison.hpp"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int kLeadersGraceMs = 200;  // gives the leader of a late rank time to name that rank first

// One distinct call on a host, and the members that made it: one bit for each of the host's first 256
// members.
struct DistinctCall {
  CallSignature signature;
  std::bitset<256> members;
};
static_assert(std::is_trivially_copyable_v<DistinctCall>);

}  // namespace

Deadline CallComparison::run(const CallSignature& own, uint64_t sequence) {
  const bool is_alone = context_.layout.own_members().size() == 1;
  const bool takes_result = inline_data_ && !inline_data_->one_rank_per_host();
  Row row{};
  row.signature = own;
  row.deadline_ns = deadline_.ns;
  if (takes_result) inline_data_->give_part(row.part);
  std::vector<Row> rows(context_.layout.leads() && !is_alone ? context_.layout.own_members().size() : 0);
  if (!is_alone) gather_rows(row, rows, sequence);
  for (const Row& member : rows) deadline_ = sooner(deadline_, Deadline{member.deadline_ns});
  HostOutcome outcome;
  if (context_.layout.leads()) {
    const CallDifference found =
        compare_hosts(is_alone ? std::span<const Row>(&row, 1) : rows, outcome.result);
    if (!found.text.empty()) outcome.fail(failure_of(found));
  }
  outcome.tell_members(context_.local, deadline_);
  if (takes_result) inline_data_->take_result(outcome.result);
  return deadline_;
}

void CallComparison::gather_rows(const Row& own, std::span<Row> rows, uint64_t sequence) {
  const HierStatus::HostWait wait(context_.status, sequence);
  Call gather;
  gather.kind = OpKind::kGather;
  gather.dtype = DSC_DTYPE_U8;
  gather.root = 0;
  gather.send = &own;
  gather.recv = rows.data();
  gather.count = sizeof own;
  gather.timeout_ms = static_cast<int32_t>(std::clamp<int64_t>(deadline_.remaining_ms(), 1, INT32_MAX));
  context_.local.run(gather);
}

// Compares the calls of all hosts. A host sends one entry if its ranks agree, otherwise one entry per
// distinct call.
CallDifference CallComparison::compare_hosts(std::span<const Row> rows, std::byte* result) {
  std::vector<DistinctCall> own;
  for (size_t member = 0; member < rows.size(); ++member) {
    auto same = std::ranges::find_if(own, [&](const DistinctCall& call) {
      return call.signature.fingerprint == rows[member].signature.fingerprint;
    });
    if (same == own.end()) same = own.insert(own.end(), {rows[member].signature, {}});
    if (member < same->members.size()) same->members.set(member);
  }
  own.resize(std::min(own.size(), TransportGroup::kHeaderBytes / sizeof(DistinctCall)));
  std::vector<const std::byte*> parts;
  for (const Row& row : rows) parts.push_back(row.part);
  CallDifference found;
  context_.links.leaders().exchange_headers(
      {reinterpret_cast<const char*>(own.data()), own.size() * sizeof(DistinctCall)},
      inline_data_ ? inline_data_->inline_blocks(parts) : std::vector<TransportBlock>{},
      [&](std::span<const TransportGroup::Header> headers) {
        found = difference_of(headers);
        if (inline_data_ && found.text.empty()) inline_data_->take_inline(headers, result);
      },
      Deadline{deadline_.ns + kLeadersGraceMs * kNsPerMs});
  return found;
}

CallDifference CallComparison::difference_of(std::span<const TransportGroup::Header> headers) const {
  std::vector<CallSignature> all;
  std::vector<std::vector<int32_t>> ranks;
  for (size_t host = 0; host < headers.size(); ++host) {
    const std::string_view text = headers[host].text;
    const size_t count = text.size() / sizeof(DistinctCall);
    if (count == 0 || text.size() % sizeof(DistinctCall) != 0)
      fail(DSC_ERR_PROTOCOL,
           "host %zu sent %zu bytes that describe its calls, expected a positive multiple of %zu", host,
           text.size(), sizeof(DistinctCall));
    for (size_t i = 0; i < count; ++i) {
      DistinctCall call;
      std::memcpy(&call, text.data() + i * sizeof call, sizeof call);
      const std::vector<int32_t>& members = context_.layout.members(static_cast<int>(host));
      all.push_back(call.signature);
      ranks.push_back(count == 1 ? members : std::vector<int32_t>{});
      for (size_t member = 0; count > 1 && member < std::min(members.size(), call.members.size()); ++member)
        if (call.members[member]) ranks.back().push_back(members[member]);
      if (ranks.back().empty()) ranks.back().push_back(members.back());  // a member beyond the first 256
    }
  }
  return difference(all, ranks);
}

}  // namespace dsc
