#include "transport/transport_group.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include "base/guard.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "transport/combine.hpp"
#include "transport/transfer.hpp"

namespace dsc {
namespace {

// If a host sends at most this number of bytes, one round with whole inputs is faster than two rounds with
// less data each.
constexpr size_t kWholeBytes = size_t{64} * 1024;

bool travels_whole(const Connections& connections, size_t bytes) {
  return bytes * static_cast<size_t>(connections.size() - 1) <= kWholeBytes;
}

// Returns the shares of a reduction. If there are only two hosts, a root gets the whole array as its share,
// because dividing it would save nothing.
Shares shares_for(const Connections& connections, size_t count, size_t element_bytes, int32_t root) {
  if (connections.size() > 2 || root == kEverybody) return Shares(connections.size(), count, element_bytes);
  std::vector<size_t> counts(static_cast<size_t>(connections.size()));
  counts[static_cast<size_t>(root)] = count;
  return Shares(counts, element_bytes);
}

// In a group of one host, the scale and the division of an average must still be applied.
void reduce_alone(CombineMemory memory, size_t count, const ReduceSpec& spec) {
  const void* source = memory.in;
  void* result = memory.out;
  reduce(spec, &source, 1, &result, 1, count);
}

// The start of each message of the header exchange: the sizes of its text and of its inline data, in bytes.
struct HeaderSizes {
  uint32_t text_bytes;
  uint32_t inline_bytes;
};

void write_header(std::string& message, std::string_view text, TransportBlock inline_data) {
  const HeaderSizes sizes{static_cast<uint32_t>(text.size()), static_cast<uint32_t>(inline_data.bytes)};
  message.assign(reinterpret_cast<const char*>(&sizes), sizeof sizes);
  message += text;
  if (inline_data.bytes > 0) message.append(static_cast<const char*>(inline_data.data), inline_data.bytes);
}

TransportGroup::Header read_header(const std::byte* message, int32_t peer) {
  HeaderSizes sizes;
  std::memcpy(&sizes, message, sizeof sizes);
  if (sizes.text_bytes > TransportGroup::kHeaderBytes || sizes.inline_bytes > TransportGroup::kInlineBytes)
    fail(DSC_ERR_PROTOCOL,
         "header exchange: host %d sent %u bytes of text and %u bytes of inline data, expected at most %zu "
         "and "
         "%zu",
         peer, sizes.text_bytes, sizes.inline_bytes, TransportGroup::kHeaderBytes,
         TransportGroup::kInlineBytes);
  const std::byte* const text = message + sizeof sizes;
  return {{reinterpret_cast<const char*>(text), sizes.text_bytes},
          {text + sizes.text_bytes, sizes.inline_bytes}};
}

CombineMemory memory_of(const void* in, void* out) {
  return {static_cast<const std::byte*>(in), static_cast<std::byte*>(out)};
}

}  // namespace

void TransportGroup::abort_all(std::span<TransportGroup* const> groups, const Failure& why) noexcept {
  for (TransportGroup* group : groups) group->connections_.begin_abort(why);
  const Deadline deadline = Connections::abort_deadline();
  for (TransportGroup* group : groups) group->connections_.finish_abort(deadline);
}

void TransportGroup::exchange_headers(std::string_view mine, std::vector<std::string>& all,
                                      Deadline deadline) {
  exchange_headers(
      mine, {},
      [&all](std::span<const Header> headers) {
        all.clear();
        for (const Header& host : headers) all.emplace_back(host.text);
      },
      deadline);
}

void TransportGroup::exchange_headers(std::string_view mine, std::span<const TransportBlock> inline_data,
                                      const std::function<void(std::span<const Header>)>& take,
                                      Deadline deadline) {
  if (mine.size() > kHeaderBytes)
    fail(DSC_ERR_INVALID_ARG, "%zu bytes for the header exchange, expected at most %zu", mine.size(),
         kHeaderBytes);
  header_messages_.resize(static_cast<size_t>(size()));
  for (size_t host = 0; host < header_messages_.size(); ++host) {
    const TransportBlock block = inline_data.empty() ? TransportBlock{} : inline_data[host];
    if (block.bytes > kInlineBytes)
      fail(DSC_ERR_INVALID_ARG, "%zu bytes of inline data, expected at most %zu", block.bytes, kInlineBytes);
    write_header(header_messages_[host], mine, block);
  }
  std::optional<Error> error;
  connections_.perform("header exchange", [&] {
    std::vector<Header> headers(header_messages_.size());
    headers[static_cast<size_t>(rank())].text = mine;
    collect_headers(headers, deadline);
    capture([&] { take(headers); }, [&](const Error& thrown) { error.emplace(thrown); });
    for (int32_t peer = 0; peer < size(); ++peer)
      if (peer != rank()) connections_.channel(peer).release();
  });
  if (error) throw Error(*error);
}

// Posts the messages of this host and collects those of the peers. Received messages stay in their slots
// until they are released.
void TransportGroup::collect_headers(std::vector<Header>& headers, Deadline deadline) {
  std::vector<bool> posted(headers.size());
  connections_.run(deadline, [&](int32_t peer) {
    TransportChannel& channel = connections_.channel(peer);
    const auto at = static_cast<size_t>(peer);
    if (!posted[at] && channel.may_post()) {
      channel.post(header_messages_[at].data(), header_messages_[at].size());
      posted[at] = true;
    }
    if (const std::byte* message = headers[at].text.data() ? nullptr : channel.arrived())
      headers[at] = read_header(message, peer);
    return posted[at] && headers[at].text.data() && channel.all_sent() ? Step::kDone : Step::kWait;
  });
}

void TransportGroup::barrier(Deadline deadline) {
  std::vector<std::string> nothing;
  exchange_headers({}, nothing, deadline);
}

void TransportGroup::all_reduce(const void* in, void* out, size_t count, const ReduceSpec& spec,
                                Deadline deadline, OverlapHook overlap) {
  reduce_to("all_reduce", in, out, count, spec, kEverybody, deadline, std::move(overlap));
}

void TransportGroup::reduce(const void* in, void* out, size_t count, const ReduceSpec& spec, int32_t root,
                            Deadline deadline, OverlapHook overlap) {
  reduce_to("reduce", in, out, count, spec, root, deadline, std::move(overlap));
}

void TransportGroup::reduce_to(const char* name, const void* in, void* out, size_t count,
                               const ReduceSpec& spec, int32_t root, Deadline deadline, OverlapHook overlap) {
  const auto operation = [&] {
    const CombineMemory memory = memory_of(in, out);
    const size_t element_bytes = dtype_bytes(spec.dtype);
    if (size() == 1 || count == 0)
      reduce_alone(memory, count, spec);
    else if (travels_whole(connections_, count * element_bytes))
      combine_whole(connections_, memory, count, spec, root, deadline);
    else
      combine_shares(connections_, memory, shares_for(connections_, count, element_bytes, root), spec, root,
                     deadline);
  };
  connections_.perform(name, operation, std::move(overlap));
}

void TransportGroup::reduce_scatter(const void* in, void* out, std::span<const size_t> counts,
                                    const ReduceSpec& spec, Deadline deadline, OverlapHook overlap) {
  const auto operation = [&] {
    const CombineMemory memory = memory_of(in, out);
    if (size() == 1)
      reduce_alone(memory, counts[0], spec);
    else
      combine_shares(connections_, memory, Shares(counts, dtype_bytes(spec.dtype)), spec, kNobody, deadline);
  };
  connections_.perform("reduce_scatter", operation, std::move(overlap));
}

void TransportGroup::broadcast(void* data, size_t bytes, int32_t root, Deadline deadline,
                               OverlapHook overlap) {
  const auto operation = [&] {
    if (size() > 2 && bytes > kPostBytes)
      return broadcast_in_parts(connections_, static_cast<std::byte*>(data), bytes, root, deadline);
    std::vector<TransportBlock> sends(static_cast<size_t>(size())), receives(sends);
    if (rank() == root)
      sends.assign(sends.size(), {data, bytes});
    else
      receives[static_cast<size_t>(root)] = {data, bytes};
    transfer(connections_, sends, receives, deadline);
  };
  connections_.perform("broadcast", operation, std::move(overlap));
}

void TransportGroup::all_gather(std::span<const TransportBlock> blocks, Deadline deadline,
                                OverlapHook overlap) {
  const auto operation = [&] {
    const std::vector<TransportBlock> sends(blocks.size(), blocks[static_cast<size_t>(rank())]);
    transfer(connections_, sends, blocks, deadline);
  };
  connections_.perform("all_gather", operation, std::move(overlap));
}

void TransportGroup::exchange(std::span<const TransportBlock> sends, std::span<const TransportBlock> receives,
                              Deadline deadline, OverlapHook overlap) {
  const auto own = static_cast<size_t>(rank());
  const bool copies = receives[own].bytes > 0 && receives[own].data != sends[own].data;
  const auto copy_and_more = [&] {
    copy_bytes(receives[own].data, sends[own].data, receives[own].bytes);
    if (overlap) overlap();
  };
  connections_.perform(
      "exchange", [&] { transfer(connections_, sends, receives, deadline); },
      copies ? OverlapHook(copy_and_more) : std::move(overlap));
}

}  // namespace dsc
