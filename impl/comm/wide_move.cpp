#include "comm/wide_move.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "comm/wide_comm.hpp"
#include "dtype/dtype.hpp"
#include "host/transfer.hpp"

namespace dsc {
namespace {

constexpr int kGraceMs = 1000;
constexpr size_t kKeptBytes = size_t{8} << 20;  // of memory that passed data on
constexpr size_t kPieceBytes = size_t{4}
                               << 20;  // of a sum at a time: what stays behind in the leader's memory

size_t sum_of(const std::vector<size_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), size_t{0});
}

}  // namespace

void WideMove::check(const Call& call) {
  if (call.user)
    fail(DSC_ERR_UNSUPPORTED, "operations of the caller's do not run between hosts in this version");
  if (call.nonfinite != NonFiniteCheck::kOff)
    fail(DSC_ERR_UNSUPPORTED, "the non-finite check does not look at ranks of other hosts in this version");
  if (call.kind == OpKind::kAllToAllV)
    fail(DSC_ERR_UNSUPPORTED, "all_to_all_v does not go between hosts in this version");
}

void WideMove::run() {
  move();
  for (auto* memory : {&comm_.scratch_, &comm_.input_})
    if (memory->size() > kKeptBytes) std::vector<std::byte>().swap(*memory);
}

void WideMove::move() {
  switch (pattern_of(call_.kind)) {
    case Pattern::kNothing:
      return;  // all have met
    case Pattern::kAllReduce:
      return all_reduce();
    case Pattern::kReduce:
      return reduce();
    case Pattern::kReduceScatter:
      return reduce_scatter();
    case Pattern::kBroadcast:
      return broadcast();
    case Pattern::kScatter:
      return scatter();
    case Pattern::kGather:
      return gather();
    case Pattern::kAllGather:
      return all_gather();
    case Pattern::kAllToAll:
      return all_to_all();
  }
}

// ---- pieces
// --------------------------------------------------------------------------------------------------

void WideMove::run_local(Call call) {
  // All have met: whoever is late now waits for another host, and its leader says so first.
  call.timeout_ms =
      static_cast<int32_t>(std::min<int64_t>(deadline_.remaining_ms(), INT32_MAX / 2)) + kGraceMs;
  comm_.local_->run(call);
}

// Among all members of the host, since its messages are the caller's.
void WideMove::pass(int from, int to, void* data, size_t bytes) {
  if (from == to) return;
  const int place = comm_.layout_.own_place();
  std::vector<size_t> out(comm_.layout_.own_members().size(), 0), in(out);
  if (place == from) out[static_cast<size_t>(to)] = bytes;
  if (place == to) in[static_cast<size_t>(from)] = bytes;
  Call call;
  call.kind = OpKind::kAllToAllV;
  call.dtype = DSC_DTYPE_U8;
  call.send = data;
  call.recv = data;
  call.send_blocks = std::make_shared<const BlockList>(std::move(out));
  call.recv_blocks = std::make_shared<const BlockList>(std::move(in));
  run_local(call);
}

std::byte* WideMove::scratch(size_t bytes) {
  if (comm_.scratch_.size() < bytes) comm_.scratch_.resize(bytes);
  return comm_.scratch_.data();
}

std::byte* WideMove::input(size_t bytes) {
  if (comm_.input_.size() < bytes) comm_.input_.resize(bytes);
  return comm_.input_.data();
}

std::vector<size_t> WideMove::lengths() const {
  const size_t element = dtype_bytes(call_.dtype);
  const BlockList* blocks = call_.recv_blocks ? call_.recv_blocks.get() : call_.send_blocks.get();
  std::vector<size_t> bytes(static_cast<size_t>(comm_.size()), call_.count * element);
  if (blocks)
    for (size_t rank = 0; rank < bytes.size(); ++rank) bytes[rank] = blocks->lengths[rank] * element;
  return bytes;
}

bool WideMove::widens() const noexcept { return is_floating(call_.dtype) && dtype_bytes(call_.dtype) < 4; }

int32_t WideMove::work_type() const noexcept { return widens() ? DSC_DTYPE_F32 : call_.dtype; }

size_t WideMove::piece_elements() const noexcept { return kPieceBytes / dtype_bytes(work_type()); }

const void* WideMove::widened(const void* values, size_t count) {
  if (!widens()) return values;
  std::byte* const wide = input(count * sizeof(float));
  cast(DSC_DTYPE_F32, wide, call_.dtype, values, count);
  return wide;
}

// The sum of this host, at its leader.
void WideMove::combine_on_host(const void* values, void* sum, size_t count) {
  Call call;
  call.kind = OpKind::kReduce;
  call.dtype = work_type();
  call.op = call_.op == DSC_OP_AVG ? int32_t{DSC_OP_SUM} : call_.op;
  call.root = 0;
  call.send = widened(values, count);
  call.recv = sum;
  call.count = count;
  call.prescale = call_.prescale;
  run_local(call);
}

// From the sum of all hosts to the result; in place where the types are one.
void WideMove::finish(void* sum, void* result, size_t count) {
  if (call_.op == DSC_OP_AVG) divide(work_type(), sum, sum, count, comm_.size());
  if (widens())
    cast(call_.dtype, result, DSC_DTYPE_F32, sum, count);
  else if (sum != result)
    std::memcpy(result, sum, count * dtype_bytes(call_.dtype));
}

// ---- sums
// ----------------------------------------------------------------------------------------------------

void WideMove::all_reduce() {
  const WideLayout& layout = comm_.layout_;
  const size_t element = dtype_bytes(call_.dtype);
  ReduceSpec spec{work_type(), call_.op == DSC_OP_AVG ? int32_t{DSC_OP_SUM} : call_.op};
  for (size_t start = 0; start < call_.count; start += piece_elements()) {
    const size_t count = std::min(piece_elements(), call_.count - start);
    std::byte* const result = static_cast<std::byte*>(call_.recv) + start * element;
    void* const sum = widens() ? scratch(count * sizeof(float)) : result;
    combine_on_host(static_cast<const std::byte*>(call_.send) + start * element, sum, count);
    if (layout.leads()) {
      comm_.wire_->all_reduce(sum, count, spec, deadline_);
      finish(sum, result, count);
    }
    Call spread;
    spread.kind = OpKind::kBroadcast;
    spread.dtype = call_.dtype;
    spread.root = 0;
    spread.send = result;
    spread.recv = result;
    spread.count = count;
    run_local(spread);
  }
}

void WideMove::reduce() {
  const WideLayout& layout = comm_.layout_;
  const size_t element = dtype_bytes(call_.dtype);
  const int root_host = layout.host_of(call_.root);
  ReduceSpec spec{work_type(), call_.op == DSC_OP_AVG ? int32_t{DSC_OP_SUM} : call_.op};
  for (size_t start = 0; start < call_.count; start += piece_elements()) {
    const size_t count = std::min(piece_elements(), call_.count - start);
    std::byte* const sum = scratch(count * dtype_bytes(work_type()));
    combine_on_host(static_cast<const std::byte*>(call_.send) + start * element, sum, count);
    if (layout.leads()) comm_.wire_->reduce(sum, count, spec, root_host, deadline_);
    if (layout.own_host() != root_host) continue;
    const bool is_root = layout.rank() == call_.root;
    std::byte* const passed_on = widens() ? input(count * element) : sum;
    std::byte* const result = is_root ? static_cast<std::byte*>(call_.recv) + start * element : passed_on;
    if (layout.leads()) finish(sum, result, count);
    pass(0, layout.place_of(call_.root), result, count * element);
  }
}

void WideMove::reduce_scatter() {
  const WideLayout& layout = comm_.layout_;
  const size_t element = dtype_bytes(call_.dtype), work_bytes = dtype_bytes(work_type());
  std::vector<size_t> elements = lengths();
  for (size_t& length : elements) length /= element;
  const size_t total = sum_of(elements);
  std::byte* const sum = layout.leads() ? scratch(total * work_bytes) : nullptr;
  combine_on_host(call_.send, sum, total);
  const auto own = static_cast<size_t>(layout.rank());
  std::vector<size_t> to_members(static_cast<size_t>(comm_.local_->size()), 0), from_leader(to_members);
  from_leader[0] = elements[own];
  std::byte* part = sum;
  if (layout.leads()) {
    std::vector<size_t> work_lengths;
    work_lengths.reserve(elements.size());
    for (const size_t length : elements) work_lengths.push_back(length * work_bytes);
    std::byte* packed = sum;
    if (!layout.in_order()) layout.pack(packed = input(total * work_bytes), sum, work_lengths);
    std::vector<size_t> host_counts;
    for (int host = 0; host < layout.hosts(); ++host) {
      size_t count = 0;
      for (const int32_t rank : layout.members(host)) count += elements[static_cast<size_t>(rank)];
      host_counts.push_back(count);
    }
    const ReduceSpec spec{work_type(), call_.op == DSC_OP_AVG ? int32_t{DSC_OP_SUM} : call_.op};
    comm_.wire_->reduce_scatter(packed, host_counts, spec, deadline_);
    part = packed;
    for (int host = 0; host < layout.own_host(); ++host)
      part += host_counts[static_cast<size_t>(host)] * work_bytes;
    const size_t own_count = host_counts[static_cast<size_t>(layout.own_host())];
    std::byte* narrow = part;  // or where nothing is needed any more
    if (widens()) narrow = packed == sum ? input(own_count * element) : scratch(own_count * element);
    finish(part, narrow, own_count);
    part = narrow;
    for (size_t place = 0; place < to_members.size(); ++place)
      to_members[place] = elements[static_cast<size_t>(layout.own_members()[place])];
  }
  Call spread;
  spread.kind = OpKind::kAllToAllV;
  spread.dtype = call_.dtype;
  spread.send = part;
  spread.recv = call_.recv;
  spread.send_blocks = std::make_shared<const BlockList>(to_members);
  spread.recv_blocks = std::make_shared<const BlockList>(from_leader);
  run_local(spread);
}

// ---- bytes
// ---------------------------------------------------------------------------------------------------

void WideMove::broadcast() {
  const WideLayout& layout = comm_.layout_;
  const size_t bytes = call_.count * dtype_bytes(call_.dtype);
  const int root_host = layout.host_of(call_.root);
  Call spread;
  spread.kind = OpKind::kBroadcast;
  spread.dtype = DSC_DTYPE_U8;
  spread.root = layout.own_host() == root_host ? layout.place_of(call_.root) : 0;
  spread.send = layout.rank() == call_.root ? call_.send : call_.recv;
  spread.recv = call_.recv;
  spread.count = bytes;
  if (layout.own_host() == root_host) run_local(spread);
  if (layout.leads()) comm_.wire_->broadcast(call_.recv, bytes, root_host, deadline_);
  if (layout.own_host() != root_host) run_local(spread);
}

// Blocks of one length or of several: first those of this host, then those of the others, then all to all
// members.
void WideMove::all_gather() {
  const WideLayout& layout = comm_.layout_;
  const std::vector<size_t> bytes = lengths();
  const size_t total = sum_of(bytes);
  std::byte* const all = layout.in_order() ? static_cast<std::byte*>(call_.recv) : scratch(total);
  std::vector<WireBlock> blocks;
  std::vector<size_t> own_lengths;
  for (int host = 0; host < layout.hosts(); ++host) {
    size_t length = 0;
    for (const int32_t rank : layout.members(host)) length += bytes[static_cast<size_t>(rank)];
    blocks.push_back(
        {blocks.empty() ? all : static_cast<std::byte*>(blocks.back().data) + blocks.back().bytes, length});
  }
  for (const int32_t rank : layout.own_members()) own_lengths.push_back(bytes[static_cast<size_t>(rank)]);
  const WireBlock own = blocks[static_cast<size_t>(layout.own_host())];
  // The block may lie where all of this host's blocks go to.
  std::byte* const mine = input(bytes[static_cast<size_t>(layout.rank())]);
  if (bytes[static_cast<size_t>(layout.rank())] > 0)
    std::memcpy(mine, call_.send, bytes[static_cast<size_t>(layout.rank())]);
  Call here;
  here.kind = OpKind::kAllGatherV;
  here.dtype = DSC_DTYPE_U8;
  here.send = mine;
  here.recv = own.data;
  here.count = own_lengths[static_cast<size_t>(layout.own_place())];
  here.recv_blocks = std::make_shared<const BlockList>(own_lengths);
  run_local(here);
  if (layout.leads()) comm_.wire_->all_gather(blocks, deadline_);
  Call spread;
  spread.kind = OpKind::kBroadcast;
  spread.dtype = DSC_DTYPE_U8;
  spread.root = 0;
  spread.send = all;
  spread.recv = all;
  spread.count = total;
  run_local(spread);
  if (!layout.in_order()) layout.unpack(static_cast<std::byte*>(call_.recv), all, bytes);
}

void WideMove::gather() {
  const WideLayout& layout = comm_.layout_;
  const std::vector<size_t> bytes = lengths();
  const size_t block = bytes[0], members = layout.own_members().size();
  const int root_host = layout.host_of(call_.root);
  const bool is_root = layout.rank() == call_.root;
  const bool passes_on = layout.leads() && layout.own_host() == root_host;
  std::byte* const own = layout.leads() ? input(block * members) : nullptr;
  std::byte* const all = passes_on || is_root ? scratch(block * bytes.size()) : nullptr;
  Call here;
  here.kind = OpKind::kGather;
  here.dtype = DSC_DTYPE_U8;
  here.root = 0;
  here.send = call_.send;
  here.recv = own;
  here.count = block;
  run_local(here);
  if (layout.leads()) {
    std::vector<WireBlock> sends(static_cast<size_t>(layout.hosts())), receives(sends);
    sends[static_cast<size_t>(root_host)] = {own, block * members};
    std::byte* at = all;
    if (layout.own_host() == root_host)
      for (int host = 0; host < layout.hosts(); ++host) {
        const size_t length = block * layout.members(host).size();
        receives[static_cast<size_t>(host)] = {at, length};
        at += length;
      }
    comm_.wire_->exchange(sends, receives, deadline_);
  }
  if (layout.own_host() != root_host) return;
  pass(0, layout.place_of(call_.root), all, block * bytes.size());
  if (is_root) layout.unpack(static_cast<std::byte*>(call_.recv), all, bytes);
}

void WideMove::scatter() {
  const WideLayout& layout = comm_.layout_;
  const std::vector<size_t> bytes = lengths();
  const size_t block = bytes[0], members = layout.own_members().size();
  const int root_host = layout.host_of(call_.root);
  const bool passes_on = layout.leads() && layout.own_host() == root_host;
  std::byte* const own = layout.leads() ? input(block * members) : nullptr;
  std::byte* const all = passes_on || layout.rank() == call_.root ? scratch(block * bytes.size()) : nullptr;
  if (layout.rank() == call_.root) layout.pack(all, static_cast<const std::byte*>(call_.send), bytes);
  if (layout.own_host() == root_host) pass(layout.place_of(call_.root), 0, all, block * bytes.size());
  if (layout.leads()) {
    std::vector<WireBlock> sends(static_cast<size_t>(layout.hosts())), receives(sends);
    receives[static_cast<size_t>(root_host)] = {own, block * members};
    std::byte* at = all;
    if (layout.own_host() == root_host)
      for (int host = 0; host < layout.hosts(); ++host) {
        const size_t length = block * layout.members(host).size();
        sends[static_cast<size_t>(host)] = {at, length};
        at += length;
      }
    comm_.wire_->exchange(sends, receives, deadline_);
  }
  Call spread;
  spread.kind = OpKind::kScatter;
  spread.dtype = DSC_DTYPE_U8;
  spread.root = 0;
  spread.send = own;
  spread.recv = call_.recv;
  spread.count = block;
  run_local(spread);
}

// At the leader: [member][receiver] from this host; [receiver][member] to every host; [sender] to each
// member.
void WideMove::all_to_all() {
  const WideLayout& layout = comm_.layout_;
  const size_t block = call_.count * dtype_bytes(call_.dtype), ranks = static_cast<size_t>(comm_.size());
  const size_t members = layout.own_members().size(), bytes = block * ranks;
  std::byte* const rows = layout.leads() ? input(bytes * members) : nullptr;
  std::byte* const packed = layout.leads() ? scratch(2 * bytes * members) : nullptr;
  std::byte* const came = layout.leads() ? packed + bytes * members : nullptr;
  Call here;
  here.kind = OpKind::kGather;
  here.dtype = DSC_DTYPE_U8;
  here.root = 0;
  here.send = call_.send;
  here.recv = rows;
  here.count = bytes;
  run_local(here);
  if (layout.leads() && block > 0) {
    std::vector<WireBlock> sends, receives;
    std::byte *to = packed, *from = came;
    for (int host = 0; host < layout.hosts(); ++host) {
      const size_t length = block * members * layout.members(host).size();
      sends.push_back({to, length});
      receives.push_back({from, length});
      from += length;
      for (const int32_t receiver : layout.members(host))
        for (size_t member = 0; member < members; ++member, to += block)
          std::memcpy(to, rows + member * bytes + static_cast<size_t>(receiver) * block, block);
    }
    comm_.wire_->exchange(sends, receives, deadline_);
    for (int host = 0; host < layout.hosts(); ++host) {
      const std::byte* at = static_cast<const std::byte*>(receives[static_cast<size_t>(host)].data);
      for (size_t member = 0; member < members; ++member)
        for (const int32_t sender : layout.members(host)) {
          std::memcpy(rows + member * bytes + static_cast<size_t>(sender) * block, at, block);
          at += block;
        }
    }
  }
  Call spread;
  spread.kind = OpKind::kScatter;
  spread.dtype = DSC_DTYPE_U8;
  spread.root = 0;
  spread.send = rows;
  spread.recv = call_.recv;
  spread.count = bytes;
  run_local(spread);
}

}  // namespace dsc
