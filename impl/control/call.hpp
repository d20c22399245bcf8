// The arguments of an operation on one rank, and the subset of them on which all ranks must agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fixed_text.hpp"
#include "dsc/types.h"

namespace dsc {

// Kinds of operations. Kinds from kFinalize on are internal.
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
  kSplit,          // all-gather of the colors and keys of a split
  kCreateGroup,    // all-gather of hashes of the list of ranks of a new group
  kMemAlloc,       // all-gather of the size and the result of each rank's allocation
  kVerify,         // all-gather of small data that the ranks compare, such as their settings
  kReducerFinish,  // barrier of ranks whose iteration is incomplete; never matches the all-reduce of a bucket
  kReady,          // barrier after all ranks of a world have mapped its memory, and before they use it
  kPipeRun,        // all-gather of the signatures of schedules, before stages run them
  kBind,        // all-gather of the results of binding to devices, before the group is returned to the user
  kMemRegister  // all-gather of the size and the result of each rank's registration of its memory
};

const char* op_kind_name(OpKind kind) noexcept;

// Returns whether the operation belongs to the start-up of a group. Such operations are not counted, because
// the user does not see them.
constexpr bool has_no_sequence(OpKind kind) noexcept {
  return kind == OpKind::kReady || kind == OpKind::kBind;
}

// Messages have separate sequence numbers for each peer and direction. Collectives have one sequence per
// group.
constexpr bool is_message(OpKind kind) noexcept { return kind == OpKind::kSend || kind == OpKind::kRecv; }

// Returns "collective 13 (all_reduce)" or "send number 3". All collectives of a group are numbered in one
// sequence, whatever their kind.
FixedText<64> numbered(std::string_view operation, uint64_t sequence) noexcept;

struct UserOp;
class DeviceSteps;

inline constexpr int32_t kUserOp = 1000;  // code of user-defined operations

// Selects the reaction to NaN or infinite inputs of a reduction.
enum class NonFiniteCheck : uint8_t { kOff = 0, kCount = 1, kFail = 2 };

// Blocks of different lengths, one for each member in the order of ranks. They are consecutive unless
// `starts` is given.
struct BlockList {
  explicit BlockList(std::vector<size_t> lengths);  // lengths in elements
  BlockList(std::vector<size_t> lengths_in, std::vector<size_t> starts_in)
      : lengths(std::move(lengths_in)), starts(std::move(starts_in)) {}
  size_t total() const noexcept { return starts.back(); }

  std::vector<size_t> lengths;
  std::vector<size_t> starts;  // one entry more than `lengths`; the last entry is the total
};

uint64_t hash_of(const BlockList& blocks) noexcept;

// Describes a buffer with blocks of all members as a matrix in row-major order. Each member's block is a
// range of columns, and the ranges are in the order of the members. The elements of a block are ordered row
// by row.
struct Columns {
  size_t width = 0;                         // number of columns of each member, if equal for all
  std::shared_ptr<const BlockList> widths;  // number of columns of each member, if they differ

  explicit operator bool() const noexcept { return width != 0 || widths; }
  size_t width_of(size_t member) const noexcept { return widths ? widths->lengths[member] : width; }
  size_t start_of(size_t member) const noexcept { return widths ? widths->starts[member] : member * width; }
  size_t all(size_t members) const noexcept { return widths ? widths->total() : members * width; }
};

// Selects which buffers of a call contain their blocks as columns of a matrix.
struct ColumnBlocks {
  Columns send, recv;
  // Number of rows of every send buffer, if the ranks have different numbers of columns; otherwise 0.
  size_t rows = 0;
};

// One operation of one rank, with all its arguments.
struct Call {
  OpKind kind = OpKind::kNone;
  int32_t dtype = 0;
  int32_t op = 0;     // reduction operation; 0 if there is none
  int32_t root = -1;  // root, or the peer of a message; -1 if there is none
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;        // in elements; per rank if the buffer has one block for each rank
  double prescale = 1;     // factor that multiplies every input when it is read
  uint64_t tag = 0;        // additional value that must be equal on all ranks; 0 if there is none
  int32_t timeout_ms = 0;  // 0 means the communicator's time-out
  void* stream = nullptr;  // stream of a device; null for the default stream, or without a device
  NonFiniteCheck nonfinite = NonFiniteCheck::kOff;
  std::shared_ptr<const UserOp> user;  // set if `op` is kUserOp
  uint64_t op_id = 0;                  // chosen by the caller to identify the user-defined operation
  std::shared_ptr<const BlockList> send_blocks;  // set if the blocks of the operation differ in length
  std::shared_ptr<const BlockList> recv_blocks;
  std::shared_ptr<const ColumnBlocks> columns;  // set if blocks are columns of a matrix
  std::shared_ptr<const void> owner;            // keeps alive the library's memory that contains the buffers
  std::shared_ptr<const DeviceSteps> steps;  // steps on a device before and after the operation; null: none
  char note[40] = {};                        // shown in the text of a mismatch, but not compared
};

// Returns a call that moves bytes without an element type.
inline Call call_of_bytes(OpKind kind, int32_t root, const void* send, void* recv, size_t bytes) {
  Call call;
  call.kind = kind;
  call.dtype = DSC_DTYPE_U8;
  call.root = root;
  call.send = send;
  call.recv = recv;
  call.count = bytes;
  return call;
}

}  // namespace dsc
