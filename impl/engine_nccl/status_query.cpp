#include "engine_nccl/status_query.hpp"

#include <algorithm>

#include "store/bytes.hpp"

namespace dsc {
namespace {

constexpr size_t kMostLate = 16;
constexpr size_t kMostWords = 160;
constexpr size_t kMostLateText = 240;

}  // namespace

std::string encode(const StatusQuery& question) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(question.kind));
  writer.number(static_cast<uint32_t>(question.rank));
  writer.number(static_cast<uint32_t>(question.peer));
  writer.number(question.sequence);
  return writer.take();
}

std::string encode(const CallThere& there) {
  ByteWriter writer;
  writer.number(there.fingerprint);
  writer.number(static_cast<uint32_t>(there.rank));
  writer.text(std::string_view(there.words).substr(0, kMostWords));
  const size_t late = std::min(there.late.size(), kMostLate);
  writer.number(static_cast<uint32_t>(late));
  for (size_t i = 0; i < late; ++i) writer.number(static_cast<uint32_t>(there.late[i]));
  writer.text(std::string_view(there.late_text).substr(0, kMostLateText));
  return writer.take();
}

std::optional<StatusQuery> decode_question(const std::string& bytes) {
  ByteReader reader(bytes);
  StatusQuery question;
  question.kind = static_cast<OpKind>(reader.number<uint8_t>());
  question.rank = static_cast<int32_t>(reader.number<uint32_t>());
  question.peer = static_cast<int32_t>(reader.number<uint32_t>());
  question.sequence = reader.number<uint64_t>();
  if (!reader.at_end()) return std::nullopt;
  return question;
}

std::optional<CallThere> decode_call(const std::string& answer) {
  ByteReader reader(answer);
  CallThere there;
  there.fingerprint = reader.number<uint64_t>();
  there.rank = static_cast<int32_t>(reader.number<uint32_t>());
  there.words = reader.text();
  const size_t late = reader.number<uint32_t>();
  if (late > kMostLate) return std::nullopt;
  for (size_t i = 0; i < late; ++i) there.late.push_back(static_cast<int32_t>(reader.number<uint32_t>()));
  there.late_text = reader.text();
  if (!reader.at_end()) return std::nullopt;
  return there;
}

std::string answer_of(const PublishedCalls& published, const std::string& question) {
  const auto asked = decode_question(question);
  if (!asked) return {};
  return encode(is_message(asked->kind)
                    ? published.called_message(asked->kind, asked->rank, asked->peer, asked->sequence)
                    : published.called(asked->sequence));
}

}  // namespace dsc
