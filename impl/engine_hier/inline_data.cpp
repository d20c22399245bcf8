// Inline data between hosts that have one rank each. The data travels in the same message as the call, which
// is sent to each host.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "comm/transfer.hpp"
#include "engine_hier/inline_data.hpp"

namespace dsc {
namespace {

// The maximum number of inline bytes that one host sends. Larger data is faster if each host does a share of
// the work.
constexpr size_t kMostBytes = size_t{64} * 1024;

void move_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

size_t start_of(const std::vector<size_t>& bytes, int rank) {
  return std::accumulate(bytes.begin(), bytes.begin() + rank, size_t{0});
}

}  // namespace

const std::byte* InlineData::expect(const TransportGroup::Header& header, size_t bytes) {
  if (header.inline_data.size() != bytes)
    fail(DSC_ERR_PROTOCOL, "the call of another host arrived with %zu bytes of data, expected %zu",
         header.inline_data.size(), bytes);
  return header.inline_data.data();
}

bool InlineData::fits() const {
  if (call_.kind == OpKind::kAllToAllV) return false;  // the lengths of each pair of ranks are compared first
  if (!one_rank_per_host()) return is_small();
  if (pattern_of(call_.kind) == Pattern::kNothing) return false;
  const std::vector<size_t> bytes = lengths();
  return *std::ranges::max_element(bytes) * (bytes.size() - 1) <= kMostBytes;
}

std::vector<TransportBlock> InlineData::inline_blocks(std::span<const std::byte* const> parts) {
  if (!one_rank_per_host())
    return std::vector<TransportBlock>(static_cast<size_t>(layout_.hosts()), host_part(parts));
  const std::vector<size_t> bytes = lengths();
  std::vector<TransportBlock> blocks(bytes.size());
  for (int host = 0; host < layout_.size(); ++host)
    if (host != layout_.rank()) blocks[static_cast<size_t>(host)] = block_for(host, bytes);
  return blocks;
}

// Returns what this rank sends to a host. Every host has one rank here, so hosts and ranks have the same
// numbers.
TransportBlock InlineData::block_for(int host, const std::vector<size_t>& bytes) const {
  std::byte* const data = const_cast<std::byte*>(sent(0));
  const auto at = static_cast<size_t>(host);
  const bool is_root = layout_.rank() == call_.root, is_for_root = host == call_.root;
  const TransportBlock own{data, bytes[static_cast<size_t>(layout_.rank())]};
  const auto cut = [&] { return TransportBlock{data + start_of(bytes, host), bytes[at]}; };
  switch (pattern_of(call_.kind)) {
    case Pattern::kNothing:
      return {};
    case Pattern::kAllReduce:
    case Pattern::kAllGather:
      return own;
    case Pattern::kReduce:
    case Pattern::kGather:
      return is_for_root ? own : TransportBlock{};
    case Pattern::kBroadcast:
      return is_root ? own : TransportBlock{};
    case Pattern::kScatter:
      return is_root ? cut() : TransportBlock{};
    case Pattern::kReduceScatter:
    case Pattern::kAllToAll:
      return cut();
  }
  return {};
}

void InlineData::take_inline(std::span<const TransportGroup::Header> headers, std::byte* result) {
  if (!one_rank_per_host()) return combine_hosts(headers, result);
  const std::vector<size_t> bytes = lengths();
  const auto rank = static_cast<size_t>(layout_.rank());
  const size_t own = bytes[rank], own_start = start_of(bytes, layout_.rank());
  const bool is_root = layout_.rank() == call_.root;
  const auto from = [&](int host, size_t expected) {
    return expect(headers[static_cast<size_t>(host)], expected);
  };
  const auto take_all = [&](const std::byte* mine) {
    move_bytes(received(own_start), mine, own);
    for (int host = 0; host < layout_.size(); ++host)
      if (const size_t length = bytes[static_cast<size_t>(host)]; host != layout_.rank())
        move_bytes(received(start_of(bytes, host)), from(host, length), length);
  };
  switch (pattern_of(call_.kind)) {
    case Pattern::kNothing:
      return;
    case Pattern::kAllReduce:
      return combine_inline(headers, sent(0), own);
    case Pattern::kReduce:
      if (is_root) combine_inline(headers, sent(0), own);
      return;
    case Pattern::kReduceScatter:
      return combine_inline(headers, sent(own_start), own);
    case Pattern::kBroadcast:
      return move_bytes(received(0), is_root ? sent(0) : from(call_.root, own), own);
    case Pattern::kScatter:
      return move_bytes(received(0), is_root ? sent(own_start) : from(call_.root, own), own);
    case Pattern::kGather:
      if (is_root) take_all(sent(0));
      return;
    case Pattern::kAllGather:
      return take_all(sent(0));
    case Pattern::kAllToAll:
      return take_all(sent(own_start));
  }
}

// Combines the data in the order of hosts, so that all ranks get the same bits, and rounds once.
void InlineData::combine_inline(std::span<const TransportGroup::Header> headers, const std::byte* mine,
                                size_t bytes) {
  std::vector<const void*> sources;
  sources.reserve(headers.size());
  for (int host = 0; host < layout_.size(); ++host)
    sources.push_back(host == layout_.rank() ? mine : expect(headers[static_cast<size_t>(host)], bytes));
  ReduceSpec spec = between_hosts();
  spec.dtype = call_.dtype;
  void* result = call_.recv;
  dsc::reduce(spec, sources.data(), layout_.size(), &result, 1, bytes / dtype_bytes(call_.dtype));
}

}  // namespace dsc
