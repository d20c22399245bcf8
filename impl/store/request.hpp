// Requests to a store and their replies: one struct for all operations and all kinds of store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsc/types.h"

namespace dsc {

// Operations of a store, with their arguments and results.
enum class StoreOp : uint8_t {
  kSet = 1,     // key, value
  kGet,         // key -> value; waits for the key
  kAdd,         // key, number -> number
  kCompareSet,  // key, expected, value -> value
  kAppend,      // key, value -> number (size in bytes afterwards)
  kCheck,       // keys -> number (1: all exist)
  kWait,        // keys; waits for all of them
  kRemove,      // key -> number (1: it existed)
  kCount,       // () -> number of keys
  kFollow,      // key, number -> value from byte `number` on; waits until the value is longer than that
  kWill,        // value: a request that the server executes when this connection ends; empty: none
};
inline constexpr StoreOp kLastStoreOp = StoreOp::kWill;
inline constexpr size_t kMostWillBytes = 1024;

const char* store_op_name(StoreOp op) noexcept;

// Returns whether the operation may change its single key.
bool changes(StoreOp op) noexcept;
// Returns whether the operation waits for its keys.
bool waits(StoreOp op) noexcept;

inline constexpr size_t kMostRequestKeys = size_t{128} << 10;

// A request; unused members are empty or 0.
struct StoreRequest {
  StoreOp op = StoreOp::kCount;
  std::vector<std::string> keys;
  std::string value;
  std::string expected;
  int64_t number = 0;
};

// A reply: the result, or an error code with its text.
struct StoreReply {
  dsc_result_t code = DSC_OK;
  int64_t number = 0;
  std::string value;  // the text of the error if `code` is one
};

// Serialises requests and replies; numbers are little endian.
std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);
// Return nullopt if the bytes are malformed or a request has too many keys. Time and memory are bounded by
// the number of bytes.
std::optional<StoreRequest> decode_request(std::string_view bytes);
std::optional<StoreReply> decode_reply(std::string_view bytes);

}  // namespace dsc
