#include "control/tuning.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/joined.hpp"

namespace dsc {
namespace {

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPage = 4096;

// The tuning for groups of up to `members` members.
struct Row {
  int members;  // largest size of a group
  bool oversubscribed;
  Tuning tuning;
};

constexpr size_t kCache = 0;  // stands for the size of the last-level cache
// With fixed shares, a rank does not have to copy its own data. But if there are more ranks than processors,
// a share has to wait until its rank runs.
constexpr size_t kAlone = 1;  // stands for no limit, or for 0 if there are more ranks than processors
// The first row that fits is used. The values were measured on a machine with two cores. They were chosen so
// that the staging buffers of all members fit into the last-level cache.
constexpr std::array kRows = {
    Row{1, true, {kNoLimit, kAlone, 4 * kKiB, 4 * kKiB, kNoLimit, 512 * kKiB, kCache, 4 * kKiB}},
    Row{2, false, {8 * kKiB, kAlone, 256 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 64 * kKiB}},
    Row{2, true, {128 * kKiB, kAlone, 256 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 64 * kKiB}},
    Row{4, false, {32 * kKiB, kAlone, 512 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 64 * kKiB}},
    Row{4, true, {128 * kKiB, kAlone, 512 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 64 * kKiB}},
    Row{8, true, {128 * kKiB, kAlone, 512 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 32 * kKiB}},
    Row{16, true, {128 * kKiB, kAlone, 128 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 16 * kKiB}},
    Row{32, true, {128 * kKiB, kAlone, 64 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 8 * kKiB}},
    Row{1 << 30, true, {128 * kKiB, kAlone, 64 * kKiB, 64 * kKiB, 16 * kKiB, 512 * kKiB, kCache, 4 * kKiB}},
};

// A setting by name, with the values that it accepts.
struct Key {
  const char* name;
  size_t Tuning::*value;
  size_t least;
  size_t most;
  size_t unit;  // the value must be a multiple of this number of bytes
};
constexpr std::array kKeys = {
    Key{"direct_bytes", &Tuning::direct_bytes, 0, kNoLimit, 1},
    Key{"divided_bytes", &Tuning::divided_bytes, 0, kNoLimit, 1},
    Key{"stage_bytes", &Tuning::stage_bytes, kPage, 16 * kMiB, kPage},
    Key{"stage_chunk_bytes", &Tuning::stage_chunk_bytes, kPage, 16 * kMiB, kPage},
    Key{"zero_copy_min_bytes", &Tuning::zero_copy_min_bytes, 0, kNoLimit, 1},
    Key{"zero_copy_chunk_bytes", &Tuning::zero_copy_chunk_bytes, kPage, 64 * kMiB, kPage},
    Key{"streaming_bytes", &Tuning::streaming_bytes, 0, kNoLimit, 1},
    Key{"message_chunk_bytes", &Tuning::message_chunk_bytes, kPage, kMiB, kPage},
    Key{"single_copy_min_bytes", &Tuning::single_copy_min_bytes, 0, kNoLimit, 1},
};

// Units are powers of 1024. "KB" is refused, because some users would read it as 1000 bytes.
constexpr std::pair<std::string_view, int> kUnits[] = {{"", 0},   {"b", 0},    {"k", 10}, {"kib", 10},
                                                       {"m", 20}, {"mib", 20}, {"g", 30}, {"gib", 30}};

std::string known_keys() {
  return joined(kKeys, ", ", [](const Key& key) {
    return std::string(key.name) + " (" + std::to_string(key.least) + " to " + std::to_string(key.most) +
           (key.unit > 1 ? ", a multiple of " + std::to_string(key.unit) + ")" : ")");
  });
}

[[noreturn]] void refuse(std::string_view item, const char* reason) {
  fail(DSC_ERR_CONFIG, "DSC_TUNING: '%.60s' %s; expected KEY=BYTES,... with the keys %s",
       std::string(item).c_str(), reason, known_keys().c_str());
}

const Key* find_key(std::string_view name) noexcept {
  const auto found =
      std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : found;
}

// Parses "65536", "64KiB" or "64k", in upper or lower case; nullopt for anything else.
std::optional<size_t> parse_bytes(std::string_view text) {
  size_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  std::string unit(stop, text.data() + text.size());
  for (char& letter : unit)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  for (const auto& [name, shift] : kUnits)
    if (unit == name) return number <= kNoLimit >> shift ? std::optional(number << shift) : std::nullopt;
  return std::nullopt;
}

std::pair<std::string, size_t> parse_item(std::string_view item) {
  const size_t equals = item.find('=');
  if (equals == std::string_view::npos) refuse(item, "has no '='");
  const Key* key = find_key(item.substr(0, equals));
  if (!key) refuse(item, "has no known key");
  const std::optional<size_t> value = parse_bytes(item.substr(equals + 1));
  if (!value)
    refuse(item, "has no valid size such as 65536, 64KiB, 64k or 1MiB, at most 4611686018427387904");
  if (*value < key->least || *value > key->most || *value % key->unit != 0)
    refuse(item, "is out of range or not a multiple of the unit");
  return {key->name, *value};
}

// Returns the size of the last-level cache, at most kMost. Data beyond this size has left the cache before it
// is read again.
size_t last_level_cache() noexcept {
  constexpr size_t kMost = 32 * kMiB;
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return cache > 0 ? std::min(static_cast<size_t>(cache), kMost) : kMost;
}

}  // namespace

TuningOverrides parse_tuning(const std::string& text) {
  std::map<std::string, size_t> found;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    if (!found.insert(parse_item(item)).second) refuse(item, "repeats a key");
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
  }
  return {found.begin(), found.end()};
}

Tuning choose_tuning(int members, bool oversubscribed, bool kernel_copies, const TuningOverrides& overrides) {
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& one) {
    return members <= one.members && (!oversubscribed || one.oversubscribed);
  });
  Tuning tuning = row->tuning;
  if (members > 1 && kernel_copies) tuning.single_copy_min_bytes = 16 * kKiB;
  if (tuning.streaming_bytes == kCache) tuning.streaming_bytes = last_level_cache();
  if (tuning.divided_bytes == kAlone) tuning.divided_bytes = oversubscribed ? 0 : kNoLimit;
  for (const auto& [name, value] : overrides) tuning.*find_key(name)->value = value;
  return tuning;
}

std::string tuning_text(const Tuning& tuning) {
  TuningOverrides all;
  for (const Key& key : kKeys) all.emplace_back(key.name, tuning.*key.value);
  return tuning_text(all);
}

std::string tuning_text(const TuningOverrides& overrides) {
  return joined(overrides, ",",
                [](const auto& entry) { return entry.first + "=" + std::to_string(entry.second); });
}

}  // namespace dsc
