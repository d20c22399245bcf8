// What ranks of other hosts are asked about an operation on devices, and what they answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine_nccl/published_calls.hpp"

namespace dsc {

struct StatusQuery {
  OpKind kind = OpKind::kNone;  // of a message, as who answers calls it; else a collective
  int32_t rank = kNoRank;       // who answers, in the communicator
  int32_t peer = kNoRank;       // of a message: who asks
  uint64_t number = 0;
};

// At most 64 bytes.
std::string encode(const StatusQuery& question);
// At most 512 bytes: lists and texts are cut.
std::string encode(const CallThere& there);
// Nothing for what is none.
std::optional<StatusQuery> decode_question(const std::string& question);
std::optional<CallThere> decode_call(const std::string& answer);

// What this rank knows. "" for what is no question.
std::string answer_of(const PublishedCalls& board, const std::string& question);

}  // namespace dsc
