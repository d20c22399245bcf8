// What one rank asks for: the arguments of an operation, and the part of them that all ranks must agree on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dsc {

enum class OpKind : uint8_t {
  kNone,
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kBarrier,
  kSend,
  kRecv,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kAllGatherV,
  kReduceScatterV,
  kAllToAllV,
  kMonitoredBarrier,
  kFinalize,       // barrier that ends a communicator
  kSplit,          // all-gather of colors and keys
  kCreateGroup,    // all-gather of rank lists' hashes
  kMemAlloc,       // all-gather of sizes and outcomes
  kVerify,         // all-gather of descriptions
  kReducerFinish,  // barrier of ranks whose iteration is incomplete: never matches a bucket's all-reduce
  kReady,          // barrier of the ranks of a world that have mapped it, before they use it
  kPipeRun,        // all-gather of what stages are about to run
  kBind            // all-gather of what ranks make of their devices, before the group is the user's
};

const char* op_kind_name(OpKind kind) noexcept;

// Of a group's start-up: the numbers that users see begin behind it.
constexpr bool comes_before_numbers(OpKind kind) noexcept {
  return kind == OpKind::kReady || kind == OpKind::kBind;
}

struct UserOp;

inline constexpr int32_t kUserOp = 1000;  // code of the caller's

// What happens when an input of a reduction is a NaN or infinite.
enum class NonFiniteCheck : uint8_t { kOff = 0, kCount = 1, kFail = 2 };

// Blocks of different lengths, packed one after another in the order of the members.
struct BlockList {
  explicit BlockList(std::vector<size_t> lengths);  // elements
  size_t total() const noexcept { return starts.back(); }

  std::vector<size_t> lengths;
  std::vector<size_t> starts;  // one more than lengths
};

uint64_t hash_of(const BlockList& blocks) noexcept;

struct Call {
  OpKind kind = OpKind::kNone;
  int32_t dtype = 0;
  int32_t op = 0;     // reduce operation; 0 where there is none
  int32_t root = -1;  // root, or the peer of a message; -1 where there is none
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;        // elements, per rank where the operation has parts
  double prescale = 1;     // every input is multiplied by it as it is read
  uint64_t tag = 0;        // further value that must agree; 0 where there is none
  int32_t timeout_ms = 0;  // 0: the communicator's
  void* stream = nullptr;  // of a device; null: its default stream, or none
  NonFiniteCheck nonfinite = NonFiniteCheck::kOff;
  std::shared_ptr<const UserOp> user;            // with op kUserOp
  uint64_t op_id = 0;                            // the caller's number of it
  std::shared_ptr<const BlockList> send_blocks;  // of operations whose blocks differ in length
  std::shared_ptr<const BlockList> recv_blocks;
  char note[40] = {};  // shown in the text of a mismatch, not compared
};

}  // namespace dsc
