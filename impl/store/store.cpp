#include "store/store.hpp"

#include "base/error.hpp"
#include "base/joined.hpp"
#include "store/key_table.hpp"

namespace dsc {
namespace {

StoreRequest request_for(StoreOp op, std::string_view key) {
  StoreRequest request;
  request.op = op;
  request.keys.emplace_back(key);
  return request;
}

StoreRequest request_for(StoreOp op, std::span<const std::string> keys) {
  StoreRequest request;
  request.op = op;
  request.keys.assign(keys.begin(), keys.end());
  return request;
}

}  // namespace

void Store::set(std::string_view key, std::string_view value, Deadline deadline) {
  StoreRequest request = request_for(StoreOp::kSet, key);
  request.value = value;
  perform(request, deadline);
}

std::string Store::get(std::string_view key, Deadline deadline) {
  return perform(request_for(StoreOp::kGet, key), deadline).value;
}

int64_t Store::add(std::string_view key, int64_t number, Deadline deadline) {
  StoreRequest request = request_for(StoreOp::kAdd, key);
  request.number = number;
  return perform(request, deadline).number;
}

std::string Store::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                               Deadline deadline) {
  StoreRequest request = request_for(StoreOp::kCompareSet, key);
  request.expected = expected;
  request.value = desired;
  return perform(request, deadline).value;
}

size_t Store::append(std::string_view key, std::string_view value, Deadline deadline) {
  StoreRequest request = request_for(StoreOp::kAppend, key);
  request.value = value;
  return static_cast<size_t>(perform(request, deadline).number);
}

bool Store::check(std::span<const std::string> keys, Deadline deadline) {
  return perform(request_for(StoreOp::kCheck, keys), deadline).number == 1;
}

void Store::wait(std::span<const std::string> keys, Deadline deadline) {
  perform(request_for(StoreOp::kWait, keys), deadline);
}

bool Store::remove(std::string_view key, Deadline deadline) {
  return perform(request_for(StoreOp::kRemove, key), deadline).number == 1;
}

size_t Store::count(Deadline deadline) {
  StoreRequest request;
  request.op = StoreOp::kCount;
  return static_cast<size_t>(perform(request, deadline).number);
}

std::string Store::follow(std::string_view key, size_t from, Deadline deadline) {
  StoreRequest request = request_for(StoreOp::kFollow, key);
  request.number = static_cast<int64_t>(from);
  return perform(request, deadline).value;
}

void Store::put(std::string_view key, std::string_view value, Deadline deadline) {
  set(key, value, deadline);
}

std::string Store::get(std::string_view key, int32_t, Deadline deadline) { return get(key, deadline); }

void fail_missing(const std::vector<std::string>& missing) {
  const auto name = [](const std::string& key) { return shown(key); };
  fail(DSC_ERR_TIMEOUT, "no process set %s in time", first_joined(missing, 8, name).c_str());
}

}  // namespace dsc
