#include "control/call.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "control/group.hpp"
#include "dtype/dtype.hpp"

namespace dsc {

const char* op_kind_name(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kNone:
      return "none";
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAllGather:
      return "all_gather";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kSend:
      return "send";
    case OpKind::kRecv:
      return "recv";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kGather:
      return "gather";
    case OpKind::kScatter:
      return "scatter";
    case OpKind::kAllToAll:
      return "all_to_all";
    case OpKind::kAllGatherV:
      return "all_gather_v";
    case OpKind::kReduceScatterV:
      return "reduce_scatter_v";
    case OpKind::kAllToAllV:
      return "all_to_all_v";
    case OpKind::kMonitoredBarrier:
      return "monitored_barrier";
    case OpKind::kFinalize:
      return "finalize";
    case OpKind::kSplit:
      return "split";
    case OpKind::kCreateGroup:
      return "create_group";
    case OpKind::kMemAlloc:
      return "mem_alloc";
    case OpKind::kVerify:
      return "verify_params";
    case OpKind::kReducerFinish:
      return "reducer_finish";
    case OpKind::kReady:
      return "ready";
    case OpKind::kPipeRun:
      return "pipe_run";
    case OpKind::kBind:
      return "bind_device";
    case OpKind::kMemRegister:
      return "mem_register";
  }
  return "unknown operation";
}

FixedText<64> numbered(std::string_view operation, uint64_t sequence) noexcept {
  const auto bytes = static_cast<int>(operation.size());
  FixedText<64> text;
  if (operation == op_kind_name(OpKind::kSend) || operation == op_kind_name(OpKind::kRecv))
    return text.add("%.*s number %" PRIu64, bytes, operation.data(), sequence);
  return text.add("collective %" PRIu64 " (%.*s)", sequence, bytes, operation.data());
}

BlockList::BlockList(std::vector<size_t> lengths_in) : lengths(std::move(lengths_in)) {
  starts.reserve(lengths.size() + 1);
  starts.push_back(0);
  for (const size_t length : lengths) starts.push_back(starts.back() + length);
}

CallFields fields_of(const Call& call) noexcept {
  CallFields fields{};
  fields.count = call.count;
  fields.tag = call.tag;
  fields.op_id = call.op_id;
  fields.prescale = call.prescale;
  fields.dtype = call.dtype;
  fields.op = call.op;
  fields.root = call.root;
  fields.kind = static_cast<uint8_t>(call.kind);
  fields.nonfinite = static_cast<uint8_t>(call.nonfinite);
  return fields;
}

namespace {

// One step of the finalizer of SplitMix64, in which every input bit affects every output bit.
uint64_t mix(uint64_t hash, uint64_t value) noexcept {
  hash = (hash ^ value) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 29);
}

}  // namespace

// Each field is hashed at a fixed position of one of three independent chains, so that two fields with
// exchanged values give another hash. A single chain would take as long as copying the data of a small
// operation.
uint64_t fingerprint(uint64_t group, uint64_t sequence, const CallFields& call) noexcept {
  uint64_t prescale = 0;
  std::memcpy(&prescale, &call.prescale, sizeof prescale);
  const uint64_t types =
      static_cast<uint64_t>(static_cast<uint32_t>(call.dtype)) << 32 | static_cast<uint32_t>(call.op);
  const uint64_t kind = static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 16 |
                        uint64_t{call.nonfinite} << 8 | call.kind;
  const uint64_t where = mix(mix(group + 0x9e3779b97f4a7c15u, sequence), call.count);
  const uint64_t what = mix(mix(mix(0xd1b54a32d192ed03u, types), kind), call.tag);
  const uint64_t how = mix(mix(0x8cb92ba72f3d8dd7u, call.op_id), prescale);
  return mix(mix(where, what), how);
}

uint64_t fingerprint_of_message(uint64_t group, uint64_t sequence, CallFields call) noexcept {
  call.kind = static_cast<uint8_t>(OpKind::kSend);
  call.root = -1;
  return fingerprint(group, sequence, call);
}

uint64_t hash_of(const BlockList& blocks) noexcept {
  uint64_t hash = blocks.lengths.size();
  for (const size_t length : blocks.lengths) hash = mix(hash, length);
  return hash;
}

std::string describe(const CallFields& call, const char* note) {
  std::string inside;
  const auto add = [&inside](const std::string& word) { inside += (inside.empty() ? "" : ", ") + word; };
  if (call.op != 0)
    add(call.op == kUserOp ? "user operation " + std::to_string(call.op_id) : op_name(call.op));
  if (call.root >= 0) {
    const auto kind = static_cast<OpKind>(call.kind);
    add((kind == OpKind::kSend   ? "to "
         : kind == OpKind::kRecv ? "from "
                                 : "root ") +
        std::to_string(call.root));
  }
  // Operations from kFinalize on are internal, and their element types would mean nothing to the user.
  if (call.dtype != 0 && call.kind < static_cast<uint8_t>(OpKind::kFinalize)) {
    add(dtype_name(call.dtype));
    if (call.kind != static_cast<uint8_t>(OpKind::kAllToAllV)) add(std::to_string(call.count));
  }
  if (call.prescale != 1) {
    char text[48];
    std::snprintf(text, sizeof text, "inputs times %.17g", call.prescale);
    add(text);
  }
  if (call.nonfinite != 0)
    add(call.nonfinite == static_cast<uint8_t>(NonFiniteCheck::kCount) ? "non-finite inputs are counted"
                                                                       : "non-finite inputs are errors");
  if (note && note[0] != 0) add(note);
  return std::string(op_kind_name(static_cast<OpKind>(call.kind))) + "(" + inside + ")";
}

}  // namespace dsc
