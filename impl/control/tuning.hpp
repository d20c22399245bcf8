// The sizes at which the algorithm changes, and the sizes of chunks and staging buffers. They depend on the
// number of members and on whether there are more ranks than processors. They affect only the speed of an
// operation and never a bit of its result. They must be equal on all ranks, because each rank chooses the
// algorithm independently.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace dsc {

inline constexpr size_t kNoLimit = size_t{1} << 62;  // larger than any buffer

// All sizes are in bytes.
struct Tuning {
  size_t direct_bytes;  // up to this size of all members' data, each member reduces all data itself
  // Above direct_bytes and up to this size, each member reduces a fixed share. Above this size, members claim
  // chunks.
  size_t divided_bytes;
  // Size of a staging buffer, which is the largest portion that passes through it in one round.
  size_t stage_bytes;
  size_t stage_chunk_bytes;  // largest chunk that a member claims in a reduction through staging buffers
  // From this size of a member's data on, zero copy is faster despite its second barrier round.
  size_t zero_copy_min_bytes;
  size_t zero_copy_chunk_bytes;  // largest chunk that a member claims with zero copy
  // From this size of all memory that an operation reads and writes on, results are stored without caching.
  size_t streaming_bytes;
  size_t message_chunk_bytes;  // size of a chunk of a message; two chunks are in transit at a time
  // From this size of the data that one member reads from another on, the kernel copies it directly between
  // ordinary buffers.
  size_t single_copy_min_bytes = kNoLimit;
};

// Values that the user has set for some of the settings, by name.
using TuningOverrides = std::vector<std::pair<std::string, size_t>>;

// Parses a text such as "direct_bytes=0,stage_bytes=64KiB". Throws CONFIG; the message lists the known keys
// and their ranges.
TuningOverrides parse_tuning(const std::string& text);

// `kernel_copies`: the kernel copies faster between processes than a staging buffer.
Tuning choose_tuning(int members, bool oversubscribed, bool kernel_copies, const TuningOverrides& overrides);

// Returns all settings, with sizes in bytes.
std::string tuning_text(const Tuning& tuning);
// Returns only the overrides. They are sorted, so that equal settings give equal texts.
std::string tuning_text(const TuningOverrides& overrides);

}  // namespace dsc
