// Status queries between hosts about an operation on devices, and their replies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine_nccl/published_calls.hpp"

namespace dsc {

struct StatusQuery {
  OpKind kind = OpKind::kNone;  // send or receive, as the answering rank calls it, or a collective
  int32_t rank = kNoRank;       // the answering rank of the communicator
  int32_t peer = kNoRank;       // for a message: the asking rank
  uint64_t sequence = 0;
};

// The result has at most 64 bytes.
std::string encode(const StatusQuery& question);
// The result has at most 512 bytes; longer lists and texts are cut.
std::string encode(const CallThere& there);
// Return nullopt if the bytes are not a valid question or answer.
std::optional<StatusQuery> decode_question(const std::string& question);
std::optional<CallThere> decode_call(const std::string& answer);

// Returns this rank's answer, or "" if the bytes are not a valid question.
std::string answer_of(const PublishedCalls& published, const std::string& question);

}  // namespace dsc
