// The sizes at which data starts to move in another way, and in which portions: one table, by the number of
// members and by whether more ranks than processors want to run. They decide how long an operation takes and
// never change a bit of its result. They must be equal on all ranks, which choose by them without asking.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace dsc {

struct Tuning {
  size_t direct_bytes;       // data of all members up to which each of them reduces everything itself
  size_t divided_bytes;      // and from there on up to which each reduces its share; beyond, whoever is free
  size_t stage_bytes;        // room of a stage: what passes through at once
  size_t stage_chunk_bytes;  // most that a member takes on at once of a staged reduction
  size_t zero_copy_min_bytes;    // data of a member from which zero copy is worth its second meeting
  size_t zero_copy_chunk_bytes;  // most that a member takes on at once with zero copy
  size_t streaming_bytes;        // data of all members from which it is stored past the caches
  size_t message_chunk_bytes;    // of a message; two are on their way
};

// Values of the caller's for some of them, by name.
using TuningOverrides = std::vector<std::pair<std::string, size_t>>;

// "direct_bytes=0,stage_bytes=64KiB". Throws CONFIG, which names the known keys and their ranges.
TuningOverrides parse_tuning(const std::string& text);

Tuning choose_tuning(int members, bool oversubscribed, const TuningOverrides& overrides);

// All of them, in plain bytes.
std::string tuning_text(const Tuning& tuning);
// Those alone, sorted: equal settings have equal texts.
std::string tuning_text(const TuningOverrides& overrides);

}  // namespace dsc
