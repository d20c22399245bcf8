#include "bootstrap/job_layout.hpp"

#include <unordered_map>

#include "bootstrap/meeting_wire.hpp"
#include "store/bytes.hpp"

namespace dsc {

JobLayout layout_of(const std::vector<Member>& members) {
  JobLayout layout;
  std::unordered_map<std::string, int32_t> hosts;
  for (const Member& member : members) {
    const auto [host, is_new] = hosts.emplace(member.host, layout.host_count());
    if (is_new) layout.places.push_back(member.place);
    layout.host_of_rank.push_back(host->second);
  }
  return layout;
}

std::string encode(const JobLayout& layout) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(layout.host_count()));
  for (const std::string& place : layout.places) writer.text(place);
  const auto& hosts = layout.host_of_rank;
  for (size_t first = 0, next = 0; first < hosts.size(); first = next) {
    while (next < hosts.size() && hosts[next] == hosts[first]) ++next;
    writer.number(static_cast<uint32_t>(next - first));
    writer.number(static_cast<uint32_t>(hosts[first]));
  }
  return writer.take();
}

std::optional<JobLayout> decode_layout(std::string_view bytes) {
  ByteReader reader(bytes);
  JobLayout layout;
  const auto count = reader.number<uint32_t>();
  for (uint32_t host = 0; host < count && reader.good(); ++host) layout.places.emplace_back(reader.text());
  while (reader.good() && reader.left() > 0) {
    const auto ranks = reader.number<uint32_t>();
    const auto host = reader.number<uint32_t>();
    if (host >= count || ranks > kMaxJobRanks - layout.host_of_rank.size()) return std::nullopt;
    layout.host_of_rank.insert(layout.host_of_rank.end(), ranks, static_cast<int32_t>(host));
  }
  if (!reader.at_end() || layout.host_of_rank.empty()) return std::nullopt;
  return layout;
}

}  // namespace dsc
