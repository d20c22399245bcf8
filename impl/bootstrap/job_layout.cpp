#include "bootstrap/job_layout.hpp"

#include <algorithm>
#include <unordered_map>

#include "bootstrap/meeting_wire.hpp"
#include "store/bytes.hpp"

namespace dsc {

JobLayout layout_of(const std::vector<Member>& members) {
  JobLayout layout;
  std::unordered_map<std::string, int32_t> hosts;
  for (const Member& member : members) {
    const auto [host, is_new] = hosts.emplace(member.host, layout.host_count());
    if (is_new) layout.host_names.push_back(member.host_name);
    layout.host_of_rank.push_back(host->second);
  }
  return layout;
}

namespace {

constexpr size_t kMostHostNameBytes = 255;

// Consecutive hosts that all have the same number of ranks.
struct Block {
  uint32_t hosts = 0;
  uint32_t ranks_per_host = 0;
  uint32_t first_host = 0;
};

// Merges consecutive hosts with the same number of ranks into blocks.
std::vector<Block> blocks_of(const std::vector<int32_t>& hosts) {
  std::vector<Block> blocks;
  for (size_t first = 0, next = 0; first < hosts.size(); first = next) {
    while (next < hosts.size() && hosts[next] == hosts[first]) ++next;
    const auto host = static_cast<uint32_t>(hosts[first]);
    const auto ranks = static_cast<uint32_t>(next - first);
    Block* last = blocks.empty() ? nullptr : &blocks.back();
    if (last && last->ranks_per_host == ranks && last->first_host + last->hosts == host)
      ++last->hosts;
    else
      blocks.push_back({1, ranks, host});
  }
  return blocks;
}

// Consecutive host names often share a prefix. Each entry therefore stores the length of the prefix that it
// shares with the preceding name, and then the rest.
void write_host_names(ByteWriter& writer, const std::vector<std::string>& host_names) {
  std::string_view before;
  for (const std::string& whole : host_names) {
    const std::string_view host_name = std::string_view(whole).substr(0, kMostHostNameBytes);
    const auto kept = static_cast<size_t>(std::ranges::mismatch(before, host_name).in2 - host_name.begin());
    writer.number(static_cast<uint8_t>(kept));
    writer.number(static_cast<uint8_t>(host_name.size() - kept));
    writer.raw(host_name.substr(kept));
    before = host_name;
  }
}

std::optional<std::string> read_host_name(ByteReader& reader, std::string_view before) {
  const size_t kept = reader.number<uint8_t>();
  const size_t rest = reader.number<uint8_t>();
  const std::string_view text = reader.raw(rest);
  if (!reader.good() || kept > before.size()) return std::nullopt;
  return std::string(before.substr(0, kept)) + std::string(text);
}

// Adds the hosts and ranks of a block. Returns false if the block is invalid.
bool add(const Block& block, JobLayout& layout) {
  const uint64_t room = static_cast<uint64_t>(kMaxJobRanks) - layout.host_of_rank.size();
  if (uint64_t{block.first_host} + block.hosts > layout.host_names.size()) return false;
  if (block.hosts == 0 || block.ranks_per_host == 0 || uint64_t{block.hosts} * block.ranks_per_host > room)
    return false;
  for (uint32_t host = block.first_host; host < block.first_host + block.hosts; ++host)
    layout.host_of_rank.insert(layout.host_of_rank.end(), block.ranks_per_host, static_cast<int32_t>(host));
  return true;
}

}  // namespace

std::string encode(const JobLayout& layout) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(layout.host_count()));
  write_host_names(writer, layout.host_names);
  for (const Block& block : blocks_of(layout.host_of_rank)) {
    writer.number(block.hosts);
    writer.number(block.ranks_per_host);
    writer.number(block.first_host);
  }
  return writer.take();
}

// Every count is checked before memory is allocated for it.
std::optional<JobLayout> decode_layout(std::string_view bytes) {
  ByteReader reader(bytes);
  JobLayout layout;
  const auto count = reader.number<uint32_t>();
  if (count > static_cast<uint32_t>(kMaxJobRanks)) return std::nullopt;
  for (uint32_t host = 0; host < count; ++host) {
    auto host_name =
        read_host_name(reader, layout.host_names.empty() ? "" : std::string_view(layout.host_names.back()));
    if (!host_name) return std::nullopt;
    layout.host_names.push_back(*std::move(host_name));
  }
  while (reader.good() && reader.left() > 0) {
    Block block;
    block.hosts = reader.number<uint32_t>();
    block.ranks_per_host = reader.number<uint32_t>();
    block.first_host = reader.number<uint32_t>();
    if (!reader.good() || !add(block, layout)) return std::nullopt;
  }
  if (!reader.at_end() || layout.host_of_rank.empty()) return std::nullopt;
  return layout;
}

}  // namespace dsc
