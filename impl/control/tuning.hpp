// The sizes at which the algorithm changes, and the sizes of portions. They depend on the number of members
// and on whether there are more ranks than processors. They affect only the speed of an operation and never a
// bit of its result. They must be equal on all ranks, because each rank chooses the algorithm independently.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace dsc {

// All sizes are in bytes.
struct Tuning {
  size_t direct_bytes;  // up to this size of all members' data, each member reduces everything itself
  // Above that up to this size, each member reduces its share; beyond, members claim chunks.
  size_t divided_bytes;
  size_t stage_bytes;        // size of a stage, and so of the portion that passes through it at once
  size_t stage_chunk_bytes;  // largest chunk of a staged reduction that a member claims
  // From this size of a member's data, zero copy is worth its second barrier round.
  size_t zero_copy_min_bytes;
  size_t zero_copy_chunk_bytes;  // largest chunk that a member claims with zero copy
  size_t streaming_bytes;  // size of all members' data from which results are stored with non-temporal stores
  size_t message_chunk_bytes;  // chunk of a message; two are in transit
};

// Values that the caller sets for some of the settings, by name.
using TuningOverrides = std::vector<std::pair<std::string, size_t>>;

// Parses a text such as "direct_bytes=0,stage_bytes=64KiB". Throws CONFIG, which lists the known keys and
// their ranges.
TuningOverrides parse_tuning(const std::string& text);

Tuning choose_tuning(int members, bool oversubscribed, const TuningOverrides& overrides);

// Returns all settings, in plain bytes.
std::string tuning_text(const Tuning& tuning);
// Returns only the overrides, sorted, so that equal settings give equal texts.
std::string tuning_text(const TuningOverrides& overrides);

}  // namespace dsc
