// Requests to a store and their replies. One struct is used for all operations and all kinds of stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsc/types.h"

namespace dsc {

// Operations of a store. The comments list arguments -> result.
enum class StoreOp : uint8_t {
  kSet = 1,     // key, value
  kGet,         // key -> value; waits for the key
  kAdd,         // key, number -> sum
  kCompareSet,  // key, expected, value -> the new value, or the current one if nothing was changed
  kAppend,      // key, value -> size of the whole value in bytes
  kCheck,       // keys -> 1 if all keys exist, otherwise 0
  kWait,        // keys; waits until all of them exist
  kRemove,      // key -> 1 if it existed, otherwise 0
  kCount,       // () -> number of keys
  kFollow,  // key, number -> what follows the first `number` bytes of the value; waits until there is more
  kWill,    // value: the request that the server executes when this connection ends; empty: none
};
inline constexpr StoreOp kLastStoreOp = StoreOp::kWill;
inline constexpr size_t kMostWillBytes = 1024;

const char* store_op_name(StoreOp op) noexcept;

// Returns whether the operation may change its single key.
bool changes(StoreOp op) noexcept;
// Returns whether the operation waits for its keys.
bool waits(StoreOp op) noexcept;

inline constexpr size_t kMostRequestKeys = size_t{128} << 10;

// A request. Members that its operation does not use are empty or 0.
struct StoreRequest {
  StoreOp op = StoreOp::kCount;
  std::vector<std::string> keys;
  std::string value;
  std::string expected;
  int64_t number = 0;
};

// A reply. It contains the result, or an error code with its text.
struct StoreReply {
  dsc_result_t code = DSC_OK;
  int64_t number = 0;
  std::string value;  // the text of the error if `code` is an error
};

// Serialize requests and replies. Numbers are little endian.
std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);
// These return nullopt if the bytes are malformed or a request has too many keys. Time and memory are bounded
// by the number of bytes.
std::optional<StoreRequest> decode_request(std::string_view bytes);
std::optional<StoreReply> decode_reply(std::string_view bytes);

}  // namespace dsc
