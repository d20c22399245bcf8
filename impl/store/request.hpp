// What can be asked of a store, and the answer: one struct for every operation, whoever carries it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsc/types.h"

namespace dsc {

enum class StoreOp : uint8_t {
  kSet = 1,     // key, value
  kGet,         // key -> value; waits for it
  kAdd,         // key, number -> number
  kCompareSet,  // key, expected, value -> value
  kAppend,      // key, value -> number (bytes afterwards)
  kCheck,       // keys -> number (1: all are there)
  kWait,        // keys; waits for all
  kRemove,      // key -> number (1: it was there)
  kCount,       // -> number of keys
  kFollow,      // key, number -> value from byte `number` on; waits until there is more than that
  kWill,        // value: a request that the server carries out when this connection ends; empty: none
};
inline constexpr StoreOp kLastStoreOp = StoreOp::kWill;
inline constexpr size_t kMostWillBytes = 1024;

const char* store_op_name(StoreOp op) noexcept;

// The operations that may change the one key that they have.
bool changes(StoreOp op) noexcept;
// The operations that wait for their keys.
bool waits(StoreOp op) noexcept;

inline constexpr size_t kMostRequestKeys = size_t{128} << 10;

struct StoreRequest {
  StoreOp op = StoreOp::kCount;
  std::vector<std::string> keys;
  std::string value;
  std::string expected;
  int64_t number = 0;
};

struct StoreReply {
  dsc_result_t code = DSC_OK;
  int64_t number = 0;
  std::string value;  // the text of the error if there is one
};

// Bytes in which requests and replies travel; numbers are little endian.
std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);
// Nothing if the bytes are no request (or one with too many keys) or reply. Work and memory are bounded by
// the number of bytes.
std::optional<StoreRequest> decode_request(std::string_view bytes);
std::optional<StoreReply> decode_reply(std::string_view bytes);

}  // namespace dsc
