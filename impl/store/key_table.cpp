#include "store/key_table.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"

namespace dsc {
namespace {

bool takes_many_keys(StoreOp op) { return op == StoreOp::kCheck || op == StoreOp::kWait; }

}  // namespace

std::string shown(std::string_view key) {
  constexpr size_t kShownBytes = 64;
  std::string text = "\"" + std::string(key.substr(0, kShownBytes)) + "\"";
  if (key.size() > kShownBytes) text.insert(text.size() - 1, "...");
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return text;
}

void check_request(const StoreRequest& request, const StoreLimits& limits) {
  const char* const name = store_op_name(request.op);
  const size_t keys = request.keys.size();
  const bool takes_no_key = request.op == StoreOp::kCount || request.op == StoreOp::kWill;
  if (takes_no_key && keys != 0) fail(DSC_ERR_INVALID_ARG, "%s takes no key", name);
  if (request.op == StoreOp::kFollow && request.number < 0)
    fail(DSC_ERR_INVALID_ARG, "follow starts at byte %lld, expected 0 or more",
         static_cast<long long>(request.number));
  if (!takes_no_key && !takes_many_keys(request.op) && keys != 1)
    fail(DSC_ERR_INVALID_ARG, "%s has %zu keys, expected 1", name, keys);
  if (keys > limits.keys)
    fail(DSC_ERR_INVALID_ARG, "%s has %zu keys, expected at most %zu", name, keys, limits.keys);
  for (const std::string& key : request.keys) {
    if (key.empty()) fail(DSC_ERR_INVALID_ARG, "the key is empty");
    if (key.size() > limits.key_bytes)
      fail(DSC_ERR_INVALID_ARG, "key %s has %zu bytes, expected at most %zu", shown(key).c_str(), key.size(),
           limits.key_bytes);
  }
}

std::optional<StoreReply> KeyTable::apply(const StoreRequest& request) {
  check_request(request, limits_);
  StoreReply reply;
  switch (request.op) {
    case StoreOp::kSet:
      set(request.keys[0], request.value);
      break;
    case StoreOp::kGet: {
      const std::string* value = find(request.keys[0]);
      if (!value) return std::nullopt;
      reply.value = *value;
      break;
    }
    case StoreOp::kAdd:
      reply.number = add(request.keys[0], request.number);
      break;
    case StoreOp::kCompareSet:
      reply.value = compare_set(request);
      break;
    case StoreOp::kAppend:
      reply.number = static_cast<int64_t>(append(request.keys[0], request.value));
      break;
    case StoreOp::kCheck:
      reply.number = first_missing(request) ? 0 : 1;
      break;
    case StoreOp::kWait:
      if (first_missing(request)) return std::nullopt;
      break;
    case StoreOp::kRemove:
      reply.number = remove(request.keys[0]) ? 1 : 0;
      break;
    case StoreOp::kCount:
      reply.number = static_cast<int64_t>(size());
      break;
    case StoreOp::kFollow: {
      if (first_missing(request)) return std::nullopt;
      reply.value = find(request.keys[0])->substr(static_cast<size_t>(request.number));
      break;
    }
    case StoreOp::kWill:
      fail(DSC_ERR_UNSUPPORTED,
           "will: only a store over TCP supports it, because only its connections can end");
  }
  return reply;
}

std::optional<size_t> KeyTable::first_missing(const StoreRequest& request, size_t start) const {
  const size_t keys = request.keys.size();
  for (size_t i = 0; i < keys; ++i) {
    const size_t index = start + i < keys ? start + i : start + i - keys;
    if (lacks(request, request.keys[index])) return index;
  }
  return std::nullopt;
}

std::vector<std::string> KeyTable::missing(const StoreRequest& request) const {
  std::vector<std::string> keys;
  std::ranges::copy_if(request.keys, std::back_inserter(keys),
                       [&](const std::string& key) { return lacks(request, key); });
  return keys;
}

bool KeyTable::lacks(const StoreRequest& request, const std::string& key) const {
  const std::string* value = find(key);
  if (!value) return true;
  return request.op == StoreOp::kFollow && value->size() <= static_cast<size_t>(request.number);
}

const std::string* KeyTable::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void KeyTable::check_room(const std::string& key, size_t value_bytes, size_t total_bytes) const {
  if (value_bytes > limits_.value_bytes)
    fail(DSC_ERR_INVALID_ARG, "the value of %s has %zu bytes, expected at most %zu", shown(key).c_str(),
         value_bytes, limits_.value_bytes);
  if (total_bytes > limits_.total_bytes)
    fail(DSC_ERR_NOSPACE, "the store is full: keys and values would have %zu bytes, expected at most %zu",
         total_bytes, limits_.total_bytes);
}

void KeyTable::set(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  check_room(key, value.size(), after);
  if (found == values_.end() && values_.size() >= limits_.keys)
    fail(DSC_ERR_NOSPACE, "the store is full: it has %zu keys, expected at most %zu", values_.size(),
         limits_.keys);
  values_.insert_or_assign(key, std::move(value));
  bytes_ = after;
}

bool KeyTable::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return true;
}

void KeyTable::clear() {
  values_.clear();
  bytes_ = 0;
}

// Counters are stored as decimal text, as in PyTorch 2.7, so that get() returns a readable number.
int64_t KeyTable::add(const std::string& key, int64_t number) {
  int64_t sum = 0;
  if (const std::string* value = find(key)) {
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, sum);
    if (error != std::errc{} || stop != end)
      fail(DSC_ERR_INVALID_ARG, "the value of %s is %s, expected a whole number", shown(key).c_str(),
           shown(*value).c_str());
  }
  if (__builtin_add_overflow(sum, number, &sum))
    fail(DSC_ERR_OVERFLOW, "the sum at %s does not fit into 64 bits", shown(key).c_str());
  set(key, std::to_string(sum));
  return sum;
}

// Follows PyTorch 2.7. A missing key counts as empty. If the exchange fails for a missing key, the expected
// value is returned.
std::string KeyTable::compare_set(const StoreRequest& request) {
  const std::string* value = find(request.keys[0]);
  if (value ? *value != request.expected : !request.expected.empty())
    return value ? *value : request.expected;
  set(request.keys[0], request.value);
  return request.value;
}

// Appends in place, so that a long value is not copied each time.
size_t KeyTable::append(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, value), value.size();
  std::string& whole = found->second;
  check_room(key, whole.size() + value.size(), bytes_ + value.size());
  whole += value;
  bytes_ += value.size();
  return whole.size();
}

}  // namespace dsc
