#include "exchange.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/call_signature.hpp"
#include "comm/describe.hpp"
#include "dtype/dtype.hpp"

namespace conformance {
namespace {

using dsc::Block;
using dsc::Transfer;
using Bytes = std::vector<std::byte>;

// A block of a result before it is written. All results are computed before any is written, because a receive
// buffer may also be a send buffer, even of another rank.
struct Result {
  const Transfer* receiver;
  Block block;
  Bytes data;
};

std::optional<dsc::Failure> differing_messages(uint64_t group, const std::vector<RankCall>& calls) {
  std::vector<dsc::CallSignature> shown;
  for (const RankCall& of : calls) shown.push_back(dsc::signature_of_message(*of.call, group, of.sequence));
  if (shown[0].fingerprint == shown[1].fingerprint) return std::nullopt;
  return dsc::failure_of(
      dsc::difference_of_ends({calls[0].rank, shown[0].fields}, {calls[1].rank, shown[1].fields}));
}

std::optional<dsc::Failure> differing_calls(uint64_t group, const std::vector<RankCall>& calls) {
  if (dsc::is_message(calls[0].call->kind)) return differing_messages(group, calls);
  std::vector<dsc::CallSignature> shown;
  std::vector<std::vector<int32_t>> ranks;
  for (const RankCall& of : calls) {
    shown.push_back(dsc::signature_of(*of.call, group, of.sequence));
    ranks.push_back({of.rank});
  }
  const dsc::CallDifference found = difference(shown, ranks);
  if (found.ranks.empty()) return std::nullopt;
  return dsc::failure_of(found);
}

// Only the two ranks of a pair know the length of the block between them.
std::optional<dsc::Failure> differing_lengths(const std::vector<RankCall>& calls) {
  if (!calls[0].call->send_blocks || !calls[0].call->recv_blocks) return std::nullopt;
  for (size_t from = 0; from < calls.size(); ++from)
    for (size_t to = 0; to < calls.size(); ++to) {
      const size_t sent = calls[from].call->send_blocks->lengths[to];
      const size_t expected = calls[to].call->recv_blocks->lengths[from];
      if (sent == expected) continue;
      const auto first = static_cast<int32_t>(std::min(from, to)),
                 last = static_cast<int32_t>(std::max(from, to));
      return dsc::failure_of({"rank " + std::to_string(from) + " sends " + std::to_string(sent) +
                                  " elements to rank " + std::to_string(to) + ", which expects " +
                                  std::to_string(expected),
                              {first, last}});
    }
  return std::nullopt;
}

Bytes pack(const Transfer& sender, const Block& block) {
  Bytes data(sender.bytes_of(block.count));
  size_t at = 0;
  for_each_run(block, 0, block.count, [&](size_t from, size_t, size_t elements) {
    std::memcpy(data.data() + at, sender.send_at(from), sender.bytes_of(elements));
    at += sender.bytes_of(elements);
  });
  return data;
}

void write(const Result& result) {
  size_t at = 0;
  for_each_run(result.block, 0, result.block.count, [&](size_t, size_t to, size_t elements) {
    const size_t bytes = result.receiver->bytes_of(elements);
    std::memcpy(result.receiver->recv_at(to), result.data.data() + at, bytes);
    at += bytes;
  });
}

// Returns the reduced block that `receiver` gets from all ranks.
Bytes reduced(const std::vector<Transfer>& ranks, const Transfer& receiver, bool checks,
              dsc::NonFinite& found) {
  std::vector<Bytes> inputs;
  std::vector<const void*> sources;
  size_t start = 0, count = 0;
  for (const Transfer& sender : ranks) {
    const Block block = sender.outgoing(receiver.rank);
    start = block.from;
    count = block.count;
    sources.push_back(inputs.emplace_back(pack(sender, block)).data());
  }
  Bytes result(receiver.bytes_of(count));
  void* const target = result.data();
  dsc::NonFinite part;
  dsc::reduce(receiver.reduce, sources.data(), static_cast<int>(sources.size()), &target, 1, count,
              checks ? &part : nullptr);
  found.add(part, start);
  return result;
}

std::vector<Result> reduce_all(const std::vector<Transfer>& ranks, bool checks, dsc::NonFinite& found) {
  std::vector<Result> results;
  for (const Transfer& receiver : ranks) {
    if (!receiver.receives(receiver.rank)) continue;
    // all receivers get the same block
    const bool is_shared = !dsc::divides(receiver.pattern) && !results.empty();
    Bytes data = is_shared ? results[0].data : reduced(ranks, receiver, checks, found);
    results.push_back({&receiver, receiver.received_from(receiver.rank), std::move(data)});
  }
  return results;
}

std::vector<Result> collect_all(const std::vector<Transfer>& ranks) {
  std::vector<Result> results;
  for (const Transfer& receiver : ranks) {
    if (!receiver.receives(receiver.rank)) continue;
    for (const Transfer& sender : ranks) {
      if (!sender.sends(sender.rank)) continue;
      Block block = receiver.received_from(sender.rank);
      const Block sent = sender.outgoing(receiver.rank);
      results.push_back({&receiver, block, pack(sender, sent)});
    }
  }
  return results;
}

void move_message(const std::vector<RankCall>& calls) {
  const bool sends = calls[0].call->kind == dsc::OpKind::kSend;
  const dsc::Call &sender = *calls[sends ? 0 : 1].call, &receiver = *calls[sends ? 1 : 0].call;
  const size_t bytes = sender.count * dsc::dtype_bytes(sender.dtype);
  if (bytes > 0) std::memcpy(receiver.recv, sender.send, bytes);
}

dsc::NonFinite move(const std::vector<RankCall>& calls) {
  dsc::NonFinite found;
  const dsc::Call& first = *calls[0].call;
  if (dsc::is_message(first.kind)) {
    move_message(calls);
    return found;
  }
  std::vector<Transfer> ranks;
  for (const RankCall& of : calls) ranks.emplace_back(*of.call, of.rank, static_cast<int>(calls.size()));
  if (ranks[0].pattern == dsc::Pattern::kNothing) return found;
  const bool checks = first.nonfinite != dsc::NonFiniteCheck::kOff;
  for (const Result& result : ranks[0].reduces() ? reduce_all(ranks, checks, found) : collect_all(ranks))
    write(result);
  return found;
}

dsc::Failure nonfinite_failure(const dsc::NonFinite& found) {
  dsc::Failure failure;
  failure.code = DSC_ERR_NONFINITE;
  failure.index = found.index;
  failure.ranks = {found.source};
  failure.text = dsc::describe_found(found);
  return failure;
}

}  // namespace

size_t bytes_of(const dsc::Call& call, int rank, int size) {
  if (dsc::is_message(call.kind)) return call.count * dsc::dtype_bytes(call.dtype);
  const Transfer transfer(call, rank, size);
  return std::max(transfer.send_bytes, transfer.recv_bytes);
}

Outcome exchange(uint64_t group, int runner, const std::vector<RankCall>& calls) {
  Outcome outcome;
  dsc::capture(
      [&] {
        outcome.failure = differing_calls(group, calls);
        if (!outcome.failure) outcome.failure = differing_lengths(calls);
        if (outcome.failure) return;
        outcome.found = move(calls);
        if (outcome.found.count > 0 && calls[0].call->nonfinite == dsc::NonFiniteCheck::kFail)
          outcome.failure = nonfinite_failure(outcome.found);
      },
      [&](const dsc::Error& error) {
        outcome.failure = error.failure();
        outcome.failure->ranks = {runner};
      });
  return outcome;
}

}  // namespace conformance
