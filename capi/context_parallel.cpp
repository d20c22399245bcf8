#include "dsc/context_parallel.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "context_parallel/head_exchange.hpp"
#include "context_parallel/ring.hpp"
#include "context_parallel/sequence_order.hpp"
#include "deadline.hpp"
#include "execute.hpp"
#include "host_array.hpp"

namespace {

using dsc::BlockRing;
using dsc::Division;
using dsc::HeadExchange;
using RingCall = dsc::ExclusiveCall<BlockRing, dsc::HandleKind::kRing>;

// ---- Exchange of sequence and heads ----

dsc_sequence_heads_options_t default_heads_options() {
  dsc_sequence_heads_options_t options{};
  options.struct_size = sizeof options;
  options.batch = 1;
  options.sequence = options.heads = options.head_dim = dsc::kUnset;
  return options;
}

Division divide(const char* name, size_t size, const size_t* parts, int ranks, int32_t dtype) {
  if (!parts) {
    if (size % static_cast<size_t>(ranks) != 0)
      dsc::fail(DSC_ERR_INVALID_ARG,
                "%s is %zu, expected a multiple of %d, the number of ranks, or the size of each part", name,
                size, ranks);
    return {size, ranks};
  }
  auto list = dsc::read_counts(name, parts, ranks, dtype);
  if (list->total() != size)
    dsc::fail(DSC_ERR_INVALID_ARG, "the parts of %s add up to %zu, expected %zu", name, list->total(), size);
  return Division(std::move(list));
}

// Checks the size of the whole tensor, because counts of elements are products of sizes that the caller gave.
// One part may contain the whole tensor.
void check_size(size_t batch, size_t sequence, size_t heads, size_t head_dim, int32_t dtype) {
  size_t elements = 0;
  if (__builtin_mul_overflow(batch, sequence, &elements) ||
      __builtin_mul_overflow(elements, heads, &elements) ||
      __builtin_mul_overflow(elements, head_dim, &elements) ||
      __builtin_mul_overflow(heads, head_dim, &heads) || __builtin_mul_overflow(sequence, heads, &sequence))
    dsc::fail(DSC_ERR_OVERFLOW, "%zu x %zu x %zu x %zu elements do not fit %zu bits", batch, sequence, heads,
              head_dim, 8 * sizeof elements);
  dsc::checked_bytes(elements, dtype, 1);
}

HeadExchange read_exchange(const dsc::Comm& comm, const dsc_sequence_heads_options_t& options, bool to_heads,
                           int32_t dtype) {
  dsc::check_dtype(dtype);
  dsc::check_set("options->sequence", options.sequence);
  dsc::check_set("options->heads", options.heads);
  dsc::check_set("options->head_dim", options.head_dim);
  check_size(options.batch, options.sequence, options.heads, options.head_dim, dtype);
  const int ranks = comm.size();
  return {comm.rank(),
          ranks,
          to_heads,
          options.batch,
          divide("options->sequence", options.sequence, options.sequence_parts, ranks, dtype),
          divide("options->heads", options.heads, options.head_parts, ranks, dtype),
          options.head_dim};
}

void exchange(dsc_comm_t* comm, const dsc_sequence_heads_options_t* options, bool to_heads, const void* send,
              void* recv, dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  dsc::clear(work);
  dsc::OperationCall inside(comm);
  dsc::require(options, "options");
  const auto given = dsc::read_sized(options, default_heads_options(), "options");
  const HeadExchange way = read_exchange(*inside, given, to_heads, dtype);
  const size_t bytes = dsc::dtype_bytes(dtype), sent = way.in_count(), received = way.out_count();
  dsc::check_buffer("send", send, sent * bytes);
  dsc::check_buffer("recv", recv, received * bytes);
  if (send != recv || way.size > 1) dsc::check_overlap(send, sent * bytes, recv, received * bytes, nullptr);
  dsc::check_stream(*inside, stream);
  dsc::Call call;
  dsc::set_buffers(call, send, sent, recv, received);
  call.dtype = dtype;
  way.set_call(call);
  dsc::execute(*inside, call, stream, work);
}

// ---- Ring ----

void check_capacity(const char* what, size_t count, int32_t dtype, size_t capacity, const char* given) {
  if (const size_t bytes = dsc::checked_bytes(count, dtype, 1); bytes > capacity)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "the longest %s has %zu bytes, expected at most %zu, which is %s of the ring", what, bytes,
              capacity, given);
}

Division read_blocks(const BlockRing& ring, size_t count, const size_t* counts, int32_t dtype) {
  const int ranks = ring.size();
  if (!counts) {
    dsc::checked_bytes(count, dtype, static_cast<size_t>(ranks));
    return {count * static_cast<size_t>(ranks), ranks};
  }
  auto list = dsc::read_counts("counts", counts, ranks, dtype);
  if (counts[ring.rank()] != count)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "count is %zu and counts[%d] is %zu, expected the same: both are of this rank's block", count,
              ring.rank(), counts[ring.rank()]);
  if (std::ranges::all_of(list->lengths, [&](size_t length) { return length == count; }))
    return {list->total(), ranks};
  return Division(std::move(list));
}

// Refuses memory of the ring: a block that was received from the ring would be overwritten while it is sent.
void check_part(const BlockRing& ring, const char* name, const void* buffer, size_t bytes) {
  dsc::check_buffer(name, buffer, bytes);
  if (ring.is_own_memory(buffer, bytes))
    dsc::fail(DSC_ERR_INVALID_ARG, "%s is memory of the ring, expected a copy of it", name);
}

dsc::RingPass read_pass(const BlockRing& ring, const void* block, size_t count, const size_t* counts,
                        int32_t dtype, void* grad, int32_t grad_dtype, void* stream) {
  dsc::check_dtype(dtype);
  if (grad_dtype != 0 && !dsc::is_dtype(grad_dtype))
    dsc::fail(DSC_ERR_INVALID_ARG, "grad_dtype is %d, expected 0 (no gradients) or 1 (i8) to 13 (bool)",
              grad_dtype);
  dsc::RingPass pass{block, read_blocks(ring, count, counts, dtype), dtype, grad, grad_dtype};
  size_t longest = 0;
  for (int rank = 0; rank < ring.size(); ++rank) longest = std::max(longest, pass.blocks.part(rank));
  check_capacity("block", longest, dtype, ring.sizes().block_bytes, "block_bytes");
  const size_t bytes = count * dsc::dtype_bytes(dtype);
  check_part(ring, "block", block, bytes);
  if (grad_dtype != 0) {
    check_capacity("gradient of a block", longest, grad_dtype, ring.sizes().grad_bytes, "grad_bytes");
    const size_t grad_bytes = count * dsc::dtype_bytes(grad_dtype);
    check_part(ring, "grad", grad, grad_bytes);
    if (dsc::overlap(block, bytes, grad, grad_bytes))
      dsc::fail(DSC_ERR_INVALID_ARG, "block and grad overlap; expected separate buffers");
  }
  dsc::check_stream(ring.channel(), stream);
  dsc::ArrayKind kind(ring.channel());
  kind.add({"block", block, bytes});
  if (grad_dtype != 0) kind.add({"grad", grad, bytes});
  pass.on_device = kind.is_on_device(stream);
  pass.stream = pass.on_device ? stream : nullptr;
  return pass;
}

// ---- Order of the sequence ----

dsc::SequenceOrder read_order(int32_t order, size_t count, int32_t ranks) {
  if (order != DSC_SEQUENCE_ORDER_CONTIGUOUS && order != DSC_SEQUENCE_ORDER_ZIGZAG)
    dsc::fail(DSC_ERR_INVALID_ARG, "order is %d, expected 1 (contiguous) or 2 (zig-zag)", order);
  if (ranks < 1) dsc::fail(DSC_ERR_INVALID_ARG, "ranks is %d, expected 1 or more", ranks);
  return {order == DSC_SEQUENCE_ORDER_ZIGZAG, count, ranks};
}

}  // namespace

dsc_result_t dsc_sequence_heads_options_init(dsc_sequence_heads_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_heads_options(), "options"); });
}

dsc_result_t dsc_sequence_to_heads(dsc_comm_t* comm, const dsc_sequence_heads_options_t* options,
                                   const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                   dsc_work_t** work) {
  return dsc::guard(__func__, [&] { exchange(comm, options, true, send, recv, dtype, stream, work); });
}

dsc_result_t dsc_heads_to_sequence(dsc_comm_t* comm, const dsc_sequence_heads_options_t* options,
                                   const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                   dsc_work_t** work) {
  return dsc::guard(__func__, [&] { exchange(comm, options, false, send, recv, dtype, stream, work); });
}

dsc_result_t dsc_ring_create(dsc_comm_t* comm, size_t block_bytes, size_t grad_bytes, dsc_ring_t** ring) {
  return dsc::guard(__func__, [&] {
    if (ring) *ring = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(ring, "ring");
    if (block_bytes == 0) dsc::fail(DSC_ERR_INVALID_ARG, "block_bytes is 0, expected 1 or more");
    dsc::checked_bytes(block_bytes, DSC_DTYPE_U8, 8);
    dsc::checked_bytes(grad_bytes, DSC_DTYPE_U8, 8);
    *ring = dsc::open_handle<dsc_ring_t>(dsc::HandleKind::kRing,
                                         BlockRing::create(*inside, {block_bytes, grad_bytes}));
  });
}

dsc_result_t dsc_ring_begin(dsc_ring_t* ring, const void* block, size_t count, const size_t* counts,
                            dsc_dtype_t dtype, void* grad, dsc_dtype_t grad_dtype, void* stream) {
  return dsc::guard(__func__, [&] {
    RingCall inside(ring);
    inside->begin(read_pass(*inside, block, count, counts, dtype, grad, grad_dtype, stream));
  });
}

dsc_result_t dsc_ring_next(dsc_ring_t* ring, int32_t timeout_ms, int32_t* source, const void** block,
                           size_t* count, void** grad) {
  return dsc::guard(__func__, [&] {
    RingCall inside(ring);
    const dsc::Deadline deadline = dsc::deadline_after(timeout_ms);
    dsc::require(source, "source");
    dsc::require(block, "block");
    dsc::require(count, "count");
    if (!grad && inside->sums())
      dsc::fail(DSC_ERR_INVALID_ARG, "grad is NULL, expected an address: the pass has gradients");
    const auto shown = inside->next(deadline);
    if (!shown) return DSC_IN_PROGRESS;
    *source = shown->source;
    *block = shown->data;
    *count = shown->count;
    if (grad) *grad = shown->grad;
    return DSC_OK;
  });
}

dsc_result_t dsc_ring_synchronize(dsc_ring_t* ring, int32_t timeout_ms) {
  return dsc::guard(__func__, [&] {
    RingCall inside(ring);
    const auto deadline = dsc::deadline_after(timeout_ms == -1 ? inside->channel().timeout_ms() : timeout_ms);
    return inside->synchronize(deadline) ? DSC_OK : DSC_IN_PROGRESS;
  });
}

dsc_result_t dsc_ring_destroy(dsc_ring_t* ring) {
  return dsc::guard(__func__, [&] {
    if (!ring) return;
    dsc::Pinned<BlockRing>(dsc::HandleKind::kRing, ring).close();
  });
}

dsc_result_t dsc_sequence_ranges(dsc_sequence_order_t order, size_t count, int32_t ranks, int32_t rank,
                                 size_t* begins, size_t* lengths) {
  return dsc::guard_pure(__func__, [&] {
    const dsc::SequenceOrder read = read_order(order, count, ranks);
    dsc::check_rank("rank", rank, ranks);
    dsc::require(begins, "begins");
    dsc::require(lengths, "lengths");
    const auto held = read.held_by(rank);
    for (size_t i = 0; i < held.size(); ++i) begins[i] = held[i].begin, lengths[i] = held[i].count;
  });
}

dsc_result_t dsc_sequence_causal_range(dsc_sequence_order_t order, size_t count, int32_t ranks, int32_t rank,
                                       int32_t source, dsc_sequence_causal_range_t* range) {
  return dsc::guard_pure(__func__, [&] {
    const dsc::SequenceOrder read = read_order(order, count, ranks);
    dsc::check_rank("rank", rank, ranks);
    dsc::check_rank("source", source, ranks);
    const dsc::CausalWork found = dsc::causal_work(read, rank, source);
    dsc_sequence_causal_range_t filled{};
    filled.query_begin = found.queries.begin;
    filled.query_count = found.queries.count;
    filled.key_begin = found.keys.begin;
    filled.key_count = found.keys.count;
    filled.is_diagonal = found.is_diagonal ? 1 : 0;
    dsc::write_sized(range, filled, "range");
  });
}
