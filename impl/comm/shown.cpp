#include "comm/shown.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "control/group.hpp"
#include "host/operation.hpp"

namespace dsc {

Shown show(const Call& call, uint64_t group, uint64_t number) {
  Shown shown{};
  shown.fields = fields_of(call);
  const BlockList* blocks = call.recv_blocks ? call.recv_blocks.get() : call.send_blocks.get();
  if (blocks) shown.fields.tag ^= hash_of(*blocks);
  shown.fingerprint = fingerprint(group, number, shown.fields);
  std::memcpy(shown.note, call.note, sizeof shown.note);
  return shown;
}

std::string difference(const std::vector<Shown>& all, const std::vector<std::vector<int32_t>>& ranks) {
  std::map<std::string, std::vector<int32_t>> by_call;
  bool differs = false;
  for (size_t i = 0; i < all.size(); ++i) {
    differs = differs || all[i].fingerprint != all[0].fingerprint;
    auto& same = by_call[describe(all[i].fields, all[i].note)];
    same.insert(same.end(), ranks[i].begin(), ranks[i].end());
  }
  if (!differs) return {};
  std::string text;
  for (auto& [call, who] : by_call) {
    std::sort(who.begin(), who.end());
    text += (text.empty() ? "" : "; ") + list_ranks(who) + ": " + call;
  }
  return by_call.size() == 1 ? text + ", with other lengths or another number" : text;
}

}  // namespace dsc
