// Every operation is compared on all ranks: on each host, between the leaders, and then all know the same.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "comm/shown.hpp"
#include "comm/wide_comm.hpp"
#include "comm/wide_move.hpp"

namespace dsc {
namespace {

constexpr int kVerdictGraceMs = 1000;
constexpr int kWireGraceMs = 200;  // a rank that is missed is named by those of its own host first

// A call that a host shows, and a rank that made it.
struct Entry {
  Shown shown;
  int64_t rank;
};

}  // namespace

// Data that goes along is taken if all show the same.
void WideComm::compare(const Call& call, uint64_t number, Deadline deadline, WideMove* along) {
  const Shown mine = show(call, id_, number);
  std::vector<Shown> here(layout_.own_members().size());
  Call meet;
  meet.kind = OpKind::kVerify;
  meet.dtype = DSC_DTYPE_U8;
  meet.send = &mine;
  meet.recv = here.data();
  meet.count = sizeof mine;
  meet.timeout_ms = static_cast<int32_t>(std::clamp<int64_t>(deadline.remaining_ms(), 1, INT32_MAX));
  local_->run(meet);
  Verdict verdict;
  if (layout_.leads()) {
    const std::string text =
        compare_hosts(std::move(here), Deadline{deadline.ns + kWireGraceMs * kNsPerMs}, along);
    if (!text.empty()) verdict.code = DSC_ERR_MISMATCH;
    std::snprintf(verdict.text, sizeof verdict.text, "%.507s", text.c_str());
  }
  tell_members(verdict, deadline);
}

// A host shows one call if its ranks agree, and else each that differs, with a rank that made it.
std::string WideComm::compare_hosts(std::vector<Shown> here, Deadline deadline, WideMove* along) {
  std::vector<Entry> mine;
  for (size_t place = 0; place < here.size(); ++place)
    if (std::ranges::none_of(
            mine, [&](const Entry& entry) { return entry.shown.fingerprint == here[place].fingerprint; }))
      mine.push_back({here[place], layout_.own_members()[place]});
  mine.resize(std::min(mine.size(), Wire::kMeetBytes / sizeof(Entry)));
  std::string text;
  wire_->meet(
      {reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Entry)},
      along ? along->along() : std::vector<WireBlock>{},
      [&](std::span<const Wire::Met> met) {
        text = difference_of(met);
        if (along && text.empty()) along->take_along(met);
      },
      deadline);
  return text;
}

std::string WideComm::difference_of(std::span<const Wire::Met> met) const {
  std::vector<Shown> all;
  std::vector<std::vector<int32_t>> ranks;
  for (size_t host = 0; host < met.size(); ++host) {
    const std::string_view text = met[host].text;
    const size_t count = text.size() / sizeof(Entry);
    if (count == 0 || text.size() % sizeof(Entry) != 0)
      fail(DSC_ERR_PROTOCOL, "host %zu shows %zu bytes of its calls", host, text.size());
    for (size_t i = 0; i < count; ++i) {
      Entry entry;
      std::memcpy(&entry, text.data() + i * sizeof entry, sizeof entry);
      all.push_back(entry.shown);
      ranks.push_back(count == 1 ? layout_.members(static_cast<int>(host))
                                 : std::vector<int32_t>{static_cast<int32_t>(entry.rank)});
    }
  }
  return difference(all, ranks);
}

// From a leader to the ranks of its host, all of which fail if it says so.
void WideComm::tell_members(Verdict& verdict, Deadline deadline) {
  Call spread;
  spread.kind = OpKind::kBroadcast;
  spread.dtype = DSC_DTYPE_U8;
  spread.root = 0;
  spread.send = &verdict;
  spread.recv = &verdict;
  spread.count = sizeof verdict;
  const int64_t patience_ms = std::min<int64_t>(deadline.remaining_ms(), INT32_MAX / 2) + kVerdictGraceMs;
  spread.timeout_ms = static_cast<int32_t>(patience_ms);
  local_->run(spread);
  if (verdict.code != DSC_OK) fail(static_cast<dsc_result_t>(verdict.code), "%s", verdict.text);
}

}  // namespace dsc
