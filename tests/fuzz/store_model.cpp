#include "store_model.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace dsc::fuzz {
namespace {

using Wide = __int128;

// Parses a number of digits with an optional minus. Returns nothing for other texts and for numbers that do
// not fit into 64 bits.
std::optional<Wide> number_in(const std::string& text) {
  const bool negative = text.starts_with('-');
  const std::string digits = text.substr(negative ? 1 : 0);
  if (digits.empty()) return std::nullopt;
  Wide number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  number = negative ? -number : number;
  const bool fits =
      number >= std::numeric_limits<int64_t>::min() && number <= std::numeric_limits<int64_t>::max();
  return fits ? std::optional(number) : std::nullopt;
}

StoreModel::Answer error(dsc_result_t code) { return {false, {code, 0, ""}}; }

std::string key_from(Input& input) {
  const uint8_t choice = input.byte();
  if (choice < 0xf0) return std::string(1, static_cast<char>('a' + choice % 6));
  return std::string(input.take(choice & 7));
}

int64_t number_from(Input& input) {
  const uint8_t choice = input.byte();
  if (choice < 0xf0) return static_cast<int8_t>(choice);
  return choice & 1 ? std::numeric_limits<int64_t>::max() - (choice & 14)
                    : std::numeric_limits<int64_t>::min() + (choice & 14);
}

// Returns a usual, an empty or a random text.
std::string will_from(Input& input) {
  const uint8_t choice = input.byte();
  if (choice < 0x20) return "";
  if (choice < 0x40) return std::string(input.take(choice & 15));
  const StoreOp op = choice < 0xa0 ? StoreOp::kAppend : StoreOp::kSet;
  return encode(StoreRequest{op, {key_from(input)}, std::string(input.take(choice & 7)), "", 0});
}

}  // namespace

StoreRequest request_from(Input& input) {
  StoreRequest request;
  request.op = static_cast<StoreOp>(1 + input.below(static_cast<size_t>(kLastStoreOp)));
  const bool many = request.op == StoreOp::kCheck || request.op == StoreOp::kWait;
  const uint8_t form = input.byte();
  const bool none = request.op == StoreOp::kCount || request.op == StoreOp::kWill;
  size_t keys = none ? 0 : many ? form & 3 : 1;
  if (form >= 0xf0) keys = form & 7;
  for (; keys > 0; --keys) request.keys.push_back(key_from(input));
  if (changes(request.op)) request.value = input.take(input.below(32));
  if (request.op == StoreOp::kCompareSet) request.expected = input.take(input.below(8));
  if (request.op == StoreOp::kAdd || request.op == StoreOp::kFollow) request.number = number_from(input);
  if (request.op == StoreOp::kWill) request.value = will_from(input);
  return request;
}

size_t StoreModel::bytes() const {
  size_t sum = 0;
  for (const auto& [key, value] : entries_) sum += key.size() + value.size();
  return sum;
}

dsc_result_t StoreModel::refusal(const StoreRequest& request) const {
  const bool many = request.op == StoreOp::kCheck || request.op == StoreOp::kWait;
  const size_t keys = request.keys.size();
  const bool none = request.op == StoreOp::kCount || request.op == StoreOp::kWill;
  const bool right_number = many ? keys <= kSmallLimits.keys : keys == (none ? 0 : 1);
  if (request.op == StoreOp::kFollow && request.number < 0) return DSC_ERR_INVALID_ARG;
  const bool right_keys = std::ranges::all_of(request.keys, [](const std::string& key) {
    return !key.empty() && key.size() <= kSmallLimits.key_bytes;
  });
  return right_number && right_keys ? DSC_OK : DSC_ERR_INVALID_ARG;
}

bool StoreModel::has_all(const StoreRequest& request) const {
  return std::ranges::all_of(request.keys, [this](const std::string& key) { return entries_.contains(key); });
}

StoreModel::Answer StoreModel::set(const std::string& key, const std::string& value, StoreReply reply) {
  if (value.size() > kSmallLimits.value_bytes) return error(DSC_ERR_INVALID_ARG);
  const auto [entry, is_new] = entries_.try_emplace(key);
  const std::string before = std::exchange(entry->second, value);
  if (bytes() <= kSmallLimits.total_bytes && entries_.size() <= kSmallLimits.keys)
    return {false, std::move(reply)};
  entry->second = before;
  if (is_new) entries_.erase(entry);
  return error(DSC_ERR_NOSPACE);
}

StoreModel::Answer StoreModel::add(const StoreRequest& request) {
  const std::string& key = request.keys[0];
  const auto before = entries_.contains(key) ? number_in(entries_[key]) : std::optional<Wide>(0);
  if (!before) return error(DSC_ERR_INVALID_ARG);
  const Wide sum = *before + request.number;
  const auto result = static_cast<int64_t>(sum);
  if (result != sum) return error(DSC_ERR_OVERFLOW);
  return set(key, std::to_string(result), {DSC_OK, result, ""});
}

StoreModel::Answer StoreModel::apply(const StoreRequest& request) {
  if (const dsc_result_t code = refusal(request); code != DSC_OK) return error(code);
  const std::string key = request.keys.empty() ? "" : request.keys[0];
  const bool there = entries_.contains(key);
  const std::string value = there ? entries_[key] : "";
  switch (request.op) {
    case StoreOp::kSet:
      return set(key, request.value, {});
    case StoreOp::kGet:
      return {!there, {DSC_OK, 0, value}};
    case StoreOp::kAdd:
      return add(request);
    case StoreOp::kCompareSet:
      if (value == request.expected) return set(key, request.value, {DSC_OK, 0, request.value});
      return {false, {DSC_OK, 0, there ? value : request.expected}};
    case StoreOp::kAppend:
      return set(key, value + request.value,
                 {DSC_OK, static_cast<int64_t>(value.size() + request.value.size()), ""});
    case StoreOp::kCheck:
      return {false, {DSC_OK, has_all(request), ""}};
    case StoreOp::kWait:
      return {!has_all(request), {}};
    case StoreOp::kRemove:
      return {false, {DSC_OK, static_cast<int64_t>(entries_.erase(key)), ""}};
    case StoreOp::kCount:
      return {false, {DSC_OK, static_cast<int64_t>(entries_.size()), ""}};
    case StoreOp::kFollow: {
      const auto from = static_cast<uint64_t>(request.number);
      if (value.size() <= from) return {true, {}};
      return {false, {DSC_OK, 0, value.substr(from)}};
    }
    case StoreOp::kWill:
      return error(DSC_ERR_UNSUPPORTED);
  }
  return error(DSC_ERR_INTERNAL);
}

}  // namespace dsc::fuzz
