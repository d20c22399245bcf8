#include "control/job_event.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/fixed_text.hpp"
#include "store/bytes.hpp"

namespace dsc {
namespace {

enum class Kind : uint8_t { kGone = 1, kUnresponsive, kFailed, kAsked, kLeft };

std::optional<dsc_result_t> read_error(ByteReader& reader) {
  const auto code = static_cast<dsc_result_t>(reader.number<uint32_t>());
  if (!is_error(code)) return std::nullopt;
  return code;
}

void write_code(ByteWriter& writer, dsc_result_t code) { writer.number(static_cast<uint32_t>(code)); }

void write_ranks(ByteWriter& writer, const std::vector<int32_t>& ranks, size_t most) {
  const size_t count = std::min(ranks.size(), most);
  writer.number(static_cast<uint32_t>(count));
  for (size_t i = 0; i < count; ++i) writer.number(static_cast<uint32_t>(ranks[i]));
}

std::optional<std::vector<int32_t>> read_ranks(ByteReader& reader, size_t most) {
  const size_t count = reader.number<uint32_t>();
  if (count > most || count * sizeof(uint32_t) > reader.left()) return std::nullopt;
  std::vector<int32_t> ranks(count);
  for (int32_t& rank : ranks) rank = static_cast<int32_t>(reader.number<uint32_t>());
  return ranks;
}

std::string body_of(const RankGone& gone) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(Kind::kGone));
  writer.number(static_cast<uint32_t>(gone.rank));
  write_code(writer, gone.code);
  writer.number(static_cast<uint32_t>(gone.pid));
  writer.number(static_cast<uint32_t>(gone.silent_ms));
  return writer.take();
}

std::string body_of(const RankUnresponsive& event) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(Kind::kUnresponsive));
  writer.number(static_cast<uint32_t>(event.rank));
  writer.number(static_cast<uint8_t>(event.unresponsive ? 1 : 0));
  return writer.take();
}

std::string body_of(const GroupFailed& failed) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(Kind::kFailed));
  writer.number(failed.group);
  writer.raw(encode(failed.cause));
  return writer.take();
}

std::string body_of(const LatestAsked& asked) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(Kind::kAsked));
  writer.number(asked.number);
  writer.number(asked.group);
  write_ranks(writer, asked.ranks, kMostAskedRanks);
  writer.text(std::string_view(asked.question).substr(0, kMostQuestion));
  return writer.take();
}

std::string body_of(const GroupLeft& left) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(Kind::kLeft));
  writer.number(left.group);
  writer.number(static_cast<uint32_t>(left.rank));
  writer.number(static_cast<uint8_t>(left.finalizes ? 1 : 0));
  return writer.take();
}

std::optional<JobEvent> read_gone(ByteReader reader) {
  RankGone gone;
  gone.rank = static_cast<int32_t>(reader.number<uint32_t>());
  const auto code = read_error(reader);
  gone.pid = reader.number<uint32_t>();
  gone.silent_ms = reader.number<uint32_t>();
  if (!reader.at_end() || gone.rank < 0) return std::nullopt;
  if (code != DSC_ERR_PEER_DEAD && code != DSC_ERR_PEER_LEFT && code != DSC_ERR_PEER_STALLED)
    return std::nullopt;
  gone.code = *code;
  return gone;
}

std::optional<JobEvent> read_unresponsive(ByteReader reader) {
  RankUnresponsive event;
  event.rank = static_cast<int32_t>(reader.number<uint32_t>());
  const auto unresponsive = reader.number<uint8_t>();
  event.unresponsive = unresponsive == 1;
  if (!reader.at_end() || event.rank < 0 || unresponsive > 1) return std::nullopt;
  return event;
}

std::optional<JobEvent> read_failed(ByteReader reader) {
  GroupFailed failed;
  failed.group = reader.number<uint64_t>();
  const auto cause = decode_failure(reader.raw(reader.left()));
  if (!cause) return std::nullopt;
  failed.cause = *cause;
  return failed;
}

std::optional<JobEvent> read_asked(ByteReader reader) {
  LatestAsked asked;
  asked.number = reader.number<uint64_t>();
  asked.group = reader.number<uint64_t>();
  auto ranks = read_ranks(reader, kMostAskedRanks);
  asked.question = reader.text();
  if (!ranks || !reader.at_end() || asked.question.size() > kMostQuestion) return std::nullopt;
  asked.ranks = *std::move(ranks);
  return asked;
}

std::optional<JobEvent> read_left(ByteReader reader) {
  GroupLeft left;
  left.group = reader.number<uint64_t>();
  left.rank = static_cast<int32_t>(reader.number<uint32_t>());
  const auto finalizes = reader.number<uint8_t>();
  left.finalizes = finalizes == 1;
  if (!reader.at_end() || left.rank < 0 || finalizes > 1) return std::nullopt;
  return left;
}

std::optional<JobEvent> decode_event(std::string_view body) {
  ByteReader reader(body);
  switch (static_cast<Kind>(reader.number<uint8_t>())) {
    case Kind::kGone:
      return read_gone(reader);
    case Kind::kUnresponsive:
      return read_unresponsive(reader);
    case Kind::kFailed:
      return read_failed(reader);
    case Kind::kAsked:
      return read_asked(reader);
    case Kind::kLeft:
      return read_left(reader);
  }
  return std::nullopt;
}

}  // namespace

std::string encode(const Failure& cause) { return {reinterpret_cast<const char*>(&cause), sizeof cause}; }

std::optional<Failure> decode_failure(std::string_view bytes) {
  Failure cause;
  if (bytes.size() != sizeof cause) return std::nullopt;
  std::memcpy(&cause, bytes.data(), bytes.size());
  if (!is_error(cause.code)) return std::nullopt;
  cause.bound();
  return cause;
}

std::string encode(const JobEvent& event) {
  ByteWriter writer;
  writer.text(std::visit([](const auto& one) { return body_of(one); }, event));
  return writer.take();
}

JobEvents decode_events(std::string_view records, size_t end) {
  JobEvents all;
  ByteReader reader(records);
  while (reader.good() && reader.left() > 0 && records.size() - reader.left() < end) {
    const std::string_view body = reader.text();
    auto event = reader.good() ? decode_event(body) : std::nullopt;
    if (event)
      all.events.push_back(*std::move(event));
    else
      ++all.refused;
  }
  return all;
}

std::string describe(const RankGone& gone) {
  FixedText<128> text;
  text.add("rank %d", gone.rank);
  if (gone.pid > 0) text.add(" (pid %lld)", static_cast<long long>(gone.pid));
  if (gone.code == DSC_ERR_PEER_LEFT) return (text += " left").str();
  if (gone.code != DSC_ERR_PEER_STALLED) return (text += " died").str();
  text.add(" does not run: nothing was heard from it for %.1f s", static_cast<double>(gone.silent_ms) / 1000);
  return text.str();
}

Failure failure_of(const GroupLeft& left) noexcept {
  Failure failure;
  failure.code = DSC_ERR_PEER_LEFT;
  failure.ranks = {left.rank};
  failure.has_user_ranks = true;
  failure.text.add(
      "rank %d%s", left.rank,
      left.finalizes ? " finalizes the world and takes part in no more operations" : " has left");
  return failure;
}

}  // namespace dsc
