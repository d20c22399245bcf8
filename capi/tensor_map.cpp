#include "dsc/tensor_map.h"

#include <algorithm>

#include "base/guard.hpp"
#include "base/split_range.hpp"
#include "checks.hpp"
#include "comm/reduce_ops.hpp"
#include "comm/work_set.hpp"
#include "comm_call.hpp"
#include "execute.hpp"
#include "tensor_parallel/local_copy.hpp"
#include "tensor_parallel/tensor_map.hpp"

namespace {

using dsc::Division;
using dsc::MapBuffers;
using dsc::MapStep;
using dsc::TensorMap;

MapStep checked_step(dsc_tensor_mapping_t mapping, dsc_map_direction_t direction) {
  if (mapping < DSC_TENSOR_MAPPING_COPY || mapping > DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE)
    dsc::fail(DSC_ERR_INVALID_ARG, "mapping is %d, expected 1 (copy) to 9 (hidden_to_sequence)", mapping);
  if (direction != DSC_MAP_FORWARD && direction != DSC_MAP_BACKWARD)
    dsc::fail(DSC_ERR_INVALID_ARG, "direction is %d, expected 1 (forward) or 2 (backward)", direction);
  return dsc::map_step(mapping, direction);
}

void check_divides(const char* name, size_t size, int ranks) {
  if (size % static_cast<size_t>(ranks) != 0)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "%s is %zu, expected a multiple of %d, the number of ranks, or dsc_tensor_map_v() with the "
              "size of each part",
              name, size, ranks);
}

// Counts are products of sizes that the caller gave, so the whole tensor is checked first.
void check_size(const TensorMap& map, dsc_dtype_t dtype) {
  const size_t dim = std::max(map.dim.total(), map.received ? map.received->total() : 0);
  size_t elements = 0;
  if (__builtin_mul_overflow(map.outer.total(), dim, &elements) ||
      __builtin_mul_overflow(elements, map.inner, &elements))
    dsc::fail(DSC_ERR_OVERFLOW, "%zu x %zu x %zu elements do not fit %zu bits", map.outer.total(), dim,
              map.inner, 8 * sizeof elements);
  dsc::checked_bytes(elements, dtype, 1);
}

// The allowed ways to give one memory for both buffers; the others must not overlap.
void check_buffers(const TensorMap& map, const MapBuffers& buffers, dsc_dtype_t dtype) {
  const auto [send, recv] = buffers;
  const size_t bytes = dsc::dtype_bytes(dtype);
  const size_t send_bytes = map.in_count() * bytes, recv_bytes = map.out_count() * bytes;
  dsc::check_buffer("send", send, send_bytes);
  dsc::check_buffer("recv", recv, recv_bytes);
  const bool has_own_part = map.outer.total() == 1 && map.has_chunks() && !map.keeps_size();
  const char* in_place = map.keeps_size()                  ? "recv == send"
                         : !has_own_part                   ? nullptr
                         : map.step == MapStep::kAllGather ? "send == recv + own part"
                                                           : "recv == send + own part";
  const size_t start = map.dim.start(map.rank) * map.inner * bytes;
  const auto is_own_part = [&](const void* part, const void* whole) {
    return reinterpret_cast<uintptr_t>(part) == reinterpret_cast<uintptr_t>(whole) + start;
  };
  if (send == recv && (map.keeps_size() || map.size == 1)) return;
  if (has_own_part && (map.step == MapStep::kAllGather ? is_own_part(send, recv) : is_own_part(recv, send)))
    return;
  dsc::check_overlap(send, send_bytes, recv, recv_bytes, in_place);
}

// A step that needs no other rank is not an operation: nobody could wait for it in a batch, nor on a device
// for its end.
void copy(dsc::Comm& comm, const TensorMap& map, const dsc::Call& call, dsc_work_t** work) {
  dsc::check_work_of_batch(comm, work);
  if (comm.coalesced)
    dsc::fail(DSC_ERR_STATE, "a batch is open, and this step only copies: call it outside the batch");
  if (!dsc::copy_locally(comm, map, call, work != nullptr))
    dsc::fail(
        DSC_ERR_UNSUPPORTED,
        "work is not NULL, expected NULL: this step only copies on a device, in the order of the stream");
  if (work) *work = dsc::give_out(comm, std::make_shared<dsc::WorkSet>(0));
}

// Runs a mapping, or a chunk of it if `chunks` is not 0.
void run(dsc::Comm& comm, TensorMap map, MapBuffers buffers, dsc_dtype_t dtype, void* stream,
         dsc_work_t** work, size_t chunk = 0, size_t chunks = 0) {
  check_size(map, dtype);
  check_buffers(map, buffers, dtype);
  dsc::check_stream(comm, stream);
  if (chunks > 0) map.take_chunk(chunk, chunks, dsc::dtype_bytes(dtype), buffers);
  dsc::Call call;
  dsc::set_buffers(call, buffers.send, map.in_count(), buffers.recv, map.out_count());
  call.dtype = dtype;
  call.stream = stream;
  if (map.is_local()) return copy(comm, map, call, work);
  map.set_call(call);
  if (map.step == MapStep::kAllReduce || map.step == MapStep::kReduceScatter) {
    dsc::set_reduction(call, DSC_OP_SUM);
    call.nonfinite = comm.nonfinite()->check_for(dtype);
  }
  dsc::execute(comm, call, stream, work);
}

TensorMap even_map(const dsc::Comm& comm, dsc_tensor_mapping_t mapping, dsc_map_direction_t direction,
                   size_t outer, size_t dim, size_t inner, dsc_dtype_t dtype) {
  const MapStep step = checked_step(mapping, direction);
  dsc::check_dtype(dtype);
  const int ranks = comm.size();
  if (mapping != DSC_TENSOR_MAPPING_COPY && mapping != DSC_TENSOR_MAPPING_REDUCE) check_divides("dim", dim, ranks);
  const bool divides_outer = dsc::exchanges_dimensions(step);
  if (divides_outer) check_divides("outer", outer, ranks);
  return {step, comm.rank(), ranks, Division(outer, divides_outer ? ranks : 1), Division(dim, ranks), inner};
}

Division listed(const char* name, const size_t* parts, size_t factor, int ranks, dsc_dtype_t dtype) {
  const auto list = dsc::read_counts(name, parts, ranks, dtype);
  if (factor == 1) return Division(list);
  std::vector<size_t> lengths = list->lengths;
  for (size_t& length : lengths)
    if (__builtin_mul_overflow(length, factor, &length) || length > SIZE_MAX / 2 / lengths.size())
      dsc::fail(DSC_ERR_OVERFLOW, "%s times outer (%zu) does not fit the address space", name, factor);
  return Division(std::make_shared<const dsc::BlockList>(std::move(lengths)));
}

// In an all-to-all the lists are those of the forward direction, so backward they change places.
TensorMap uneven_all_to_all(TensorMap map, Division received, bool forward) {
  const auto rank = static_cast<size_t>(map.rank);
  const size_t kept = map.dim.part(map.rank), back = received.part(map.rank);
  if (kept != back)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "parts[%zu] is %zu and other_parts[%zu] is %zu, expected the same size: both are of the part "
              "that this rank sends to itself",
              rank, kept, rank, back);
  map.received = std::move(received);
  if (!forward) std::swap(map.dim, *map.received);
  return map;
}

}  // namespace

dsc_result_t dsc_tensor_map(dsc_comm_t* comm, dsc_tensor_mapping_t mapping, dsc_map_direction_t direction,
                            const void* send, void* recv, size_t outer, size_t dim, size_t inner,
                            dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    dsc::clear(work);
    dsc::OperationCall inside(comm);
    const TensorMap map = even_map(*inside, mapping, direction, outer, dim, inner, dtype);
    run(*inside, map, {send, recv}, dtype, stream, work);
  });
}

dsc_result_t dsc_tensor_map_chunk(dsc_comm_t* comm, dsc_tensor_mapping_t mapping,
                                  dsc_map_direction_t direction, const void* send, void* recv, size_t outer,
                                  size_t dim, size_t inner, size_t chunk, size_t chunks, dsc_dtype_t dtype,
                                  void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    dsc::clear(work);
    dsc::OperationCall inside(comm);
    const TensorMap map = even_map(*inside, mapping, direction, outer, dim, inner, dtype);
    if (!map.has_chunks())
      dsc::fail(DSC_ERR_INVALID_ARG, "mapping %d exchanges parts between pairs of ranks and has no chunks",
                mapping);
    if (chunks == 0) dsc::fail(DSC_ERR_INVALID_ARG, "chunks is 0, expected 1 or more");
    if (chunk >= chunks) dsc::fail(DSC_ERR_INVALID_ARG, "chunk is %zu, expected 0 to %zu", chunk, chunks - 1);
    run(*inside, map, {send, recv}, dtype, stream, work, chunk, chunks);
  });
}

dsc_result_t dsc_tensor_map_v(dsc_comm_t* comm, dsc_tensor_mapping_t mapping, dsc_map_direction_t direction,
                              const void* send, void* recv, size_t outer, const size_t* parts,
                              const size_t* other_parts, size_t inner, dsc_dtype_t dtype, void* stream,
                              dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    dsc::clear(work);
    dsc::OperationCall inside(comm);
    const MapStep step = checked_step(mapping, direction);
    dsc::check_dtype(dtype);
    const int ranks = inside->size();
    const bool needs_other = dsc::exchanges_dimensions(step) || step == MapStep::kAllToAll;
    if (!needs_other && other_parts)
      dsc::fail(DSC_ERR_INVALID_ARG, "other_parts is not NULL; expected NULL for mapping %d", mapping);
    const Division dim = listed("parts", parts, 1, ranks, dtype);
    TensorMap map{step, inside->rank(), ranks, Division(outer, 1), dim, inner};
    if (dsc::exchanges_dimensions(step)) map.outer = listed("other_parts", other_parts, outer, ranks, dtype);
    if (step == MapStep::kAllToAll)
      map = uneven_all_to_all(std::move(map), listed("other_parts", other_parts, 1, ranks, dtype),
                              direction == DSC_MAP_FORWARD);
    run(*inside, map, {send, recv}, dtype, stream, work);
  });
}

dsc_result_t dsc_tensor_map_part(size_t count, size_t parts, size_t part, size_t* begin, size_t* length) {
  return dsc::guard_pure(__func__, [&] {
    if (parts == 0) dsc::fail(DSC_ERR_INVALID_ARG, "parts is 0, expected 1 or more");
    if (part >= parts) dsc::fail(DSC_ERR_INVALID_ARG, "part is %zu, expected 0 to %zu", part, parts - 1);
    dsc::require(begin, "begin");
    dsc::require(length, "length");
    const auto [first, count_of_part] = dsc::split_range(count, parts, part);
    *begin = first;
    *length = count_of_part;
  });
}
