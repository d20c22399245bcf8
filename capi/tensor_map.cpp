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
using dsc::MapStep;
using dsc::TensorMap;

MapStep checked_step(dsc_tensor_mapping_t mapping, dsc_map_direction_t direction) {
  if (mapping < DSC_MAP_COPY || mapping > DSC_MAP_HIDDEN_TO_SEQUENCE)
    dsc::fail(DSC_ERR_INVALID_ARG, "mapping is %d, expected 1 (copy) to 9 (hidden_to_sequence)", mapping);
  if (direction != DSC_MAP_FORWARD && direction != DSC_MAP_BACKWARD)
    dsc::fail(DSC_ERR_INVALID_ARG, "direction is %d, expected 1 (forward) or 2 (backward)", direction);
  return dsc::map_step(mapping, direction);
}

bool exchanges_dimensions(MapStep step) {
  return step == MapStep::kSequenceToHidden || step == MapStep::kHiddenToSequence;
}

void check_divides(const char* name, size_t size, int ranks) {
  if (size % static_cast<size_t>(ranks) != 0)
    dsc::fail(
        DSC_ERR_INVALID_ARG,
        "%s is %zu, which %d ranks do not divide; expected a multiple of %d, or dsc_tensor_map_v() with "
        "the size of each part",
        name, size, ranks, ranks);
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
void check_buffers(const TensorMap& map, const void* send, const void* recv, dsc_dtype_t dtype) {
  const size_t bytes = dsc::dtype_bytes(dtype);
  const size_t send_bytes = map.in_count() * bytes, recv_bytes = map.out_count() * bytes;
  dsc::check_buffer("send", send, send_bytes);
  dsc::check_buffer("recv", recv, recv_bytes);
  const bool keeps_size = map.step == MapStep::kIdentity || map.step == MapStep::kAllReduce;
  const bool has_own_part = map.outer.total() == 1 && map.has_chunks() && !keeps_size;
  const char* in_place = keeps_size                        ? "recv == send"
                         : !has_own_part                   ? nullptr
                         : map.step == MapStep::kAllGather ? "send == recv + own part"
                                                           : "recv == send + own part";
  const size_t start = map.dim.start(map.rank) * map.inner * bytes;
  const auto is_own_part = [&](const void* part, const void* whole) {
    return reinterpret_cast<uintptr_t>(part) == reinterpret_cast<uintptr_t>(whole) + start;
  };
  if (send == recv && (keeps_size || map.size == 1)) return;
  if (has_own_part && (map.step == MapStep::kAllGather ? is_own_part(send, recv) : is_own_part(recv, send)))
    return;
  dsc::check_overlap(send, send_bytes, recv, recv_bytes, in_place);
}

void set_sum(dsc::Comm& comm, const TensorMap& map, dsc::Call& call) {
  if (map.step != MapStep::kAllReduce && map.step != MapStep::kReduceScatter) return;
  dsc::set_reduction(call, DSC_OP_SUM);
  call.nonfinite = comm.nonfinite()->check_for(call.dtype);
}

dsc::Call make_call(const void* send, void* recv, dsc_dtype_t dtype) {
  dsc::Call call;
  call.send = send;
  call.recv = recv;
  call.dtype = dtype;
  return call;
}

// A step that needs no other rank is not an operation: nobody could wait for it in a batch, nor on a device
// for its end.
void copy(dsc::Comm& comm, const TensorMap& map, const void* send, void* recv, dsc_dtype_t dtype,
          void* stream, dsc_work_t** work) {
  dsc::check_work_of_batch(comm, work);
  if (comm.coalesced)
    dsc::fail(DSC_ERR_STATE, "a batch is open, and this step only copies: call it outside of the batch");
  const bool waits = work != nullptr;
  if (!dsc::copy_locally(comm, map, send, recv, dtype, stream, waits))
    dsc::fail(DSC_ERR_UNSUPPORTED,
              "work is not NULL for a step that only copies on a device: expected NULL, and the order of the "
              "stream");
  if (work) *work = dsc::give_out(comm, std::make_shared<dsc::WorkSet>(0));
}

// Runs a mapping whose arguments were checked.
void run_checked(dsc::Comm& comm, const TensorMap& map, const void* send, void* recv, dsc_dtype_t dtype,
                 void* stream, dsc_work_t** work) {
  if (map.is_local()) return copy(comm, map, send, recv, dtype, stream, work);
  dsc::Call call = make_call(send, recv, dtype);
  map.set_call(call);
  set_sum(comm, map, call);
  dsc::execute(comm, call, stream, work);
}

struct Buffers {
  const std::byte* send;
  std::byte* recv;
};

// If one buffer is empty, the other one says where the memory is: an empty part in place lies at the end of
// the whole, behind which may be memory of another kind.
Buffers placed(const TensorMap& map, const void* send, void* recv) {
  const bool sends = map.in_count() > 0, receives = map.out_count() > 0;
  return {sends || !receives ? static_cast<const std::byte*>(send) : nullptr,
          receives || !sends ? static_cast<std::byte*>(recv) : nullptr};
}

void run(dsc::Comm& comm, const TensorMap& map, const void* send, void* recv, dsc_dtype_t dtype, void* stream,
         dsc_work_t** work) {
  check_size(map, dtype);
  check_buffers(map, send, recv, dtype);
  dsc::check_stream(comm, stream);
  const Buffers buffers = placed(map, send, recv);
  run_checked(comm, map, buffers.send, buffers.recv, dtype, stream, work);
}

// A chunk of a mapping is some of the rows of `outer` or, if there is one row, some elements of each part.
struct Chunk {
  size_t number, of;

  dsc::Range range(size_t count) const { return dsc::split_range(count, of, number); }
};

// A buffer from an offset on. An empty chunk has its whole buffer's address, because what lies behind the end
// of a buffer may be memory of another kind.
template <typename Byte>
Byte* from_offset(Byte* buffer, size_t offset, bool is_empty) {
  return is_empty ? buffer : buffer + offset;
}

// Rows of `outer` are contiguous in both buffers.
void run_rows(dsc::Comm& comm, TensorMap map, const dsc::Range& rows, const std::byte* send, std::byte* recv,
              dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  const size_t row = map.inner * dsc::dtype_bytes(dtype), part = map.dim.part(map.rank) * row;
  const size_t whole = map.dim.total() * row;
  const bool is_empty = rows.count == 0 || whole == 0;
  const bool keeps_size = map.step == MapStep::kIdentity || map.step == MapStep::kAllReduce;
  const bool gathers = map.step == MapStep::kAllGather;
  map.outer = Division(rows.count, 1);
  run_checked(comm, map, from_offset(send, rows.begin * (gathers ? part : whole), is_empty),
              from_offset(recv, rows.begin * (gathers || keeps_size ? whole : part), is_empty), dtype, stream,
              work);
}

// Elements of every rank's part, or of the whole if the step does not divide it or there is one rank.
void run_elements(dsc::Comm& comm, TensorMap map, const Chunk& chunk, const std::byte* send, std::byte* recv,
                  dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  const bool keeps_size = map.step == MapStep::kIdentity || map.step == MapStep::kAllReduce || map.size == 1;
  const size_t row = map.inner * dsc::dtype_bytes(dtype), start = map.dim.start(map.rank) * row;
  const dsc::Range range = chunk.range(keeps_size ? map.dim.total() : map.dim.part(map.rank));
  const size_t offset = range.begin * row;
  const bool is_empty = range.count * row == 0;
  if (keeps_size || map.step == MapStep::kSlice) {
    if (map.step == MapStep::kSlice) map.step = MapStep::kIdentity;
    map.dim = Division(range.count, 1);
    return run_checked(comm, map, from_offset(send, offset + (keeps_size ? 0 : start), is_empty),
                       from_offset(recv, offset, is_empty), dtype, stream, work);
  }
  const bool gathers = map.step == MapStep::kAllGather;
  dsc::Call call = make_call(from_offset(send, offset, is_empty || !gathers),
                             from_offset(recv, offset, is_empty || gathers), dtype);
  map.set_chunk(call, range.begin, range.count);
  set_sum(comm, map, call);
  dsc::execute(comm, call, stream, work);
}

void run_chunk(dsc::Comm& comm, TensorMap map, const Chunk& chunk, const void* send, void* recv,
               dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  check_size(map, dtype);
  check_buffers(map, send, recv, dtype);
  dsc::check_stream(comm, stream);
  map.chunk = {chunk.number, chunk.of, map.outer.total()};
  const auto [from, to] = placed(map, send, recv);
  if (map.outer.total() == 1) return run_elements(comm, map, chunk, from, to, dtype, stream, work);
  run_rows(comm, map, chunk.range(map.outer.total()), from, to, dtype, stream, work);
}

TensorMap even_map(const dsc::Comm& comm, dsc_tensor_mapping_t mapping, dsc_map_direction_t direction,
                   size_t outer, size_t dim, size_t inner, dsc_dtype_t dtype) {
  const MapStep step = checked_step(mapping, direction);
  dsc::check_dtype(dtype);
  const int ranks = comm.size();
  if (mapping != DSC_MAP_COPY && mapping != DSC_MAP_REDUCE) check_divides("dim", dim, ranks);
  const bool divides_outer = exchanges_dimensions(step);
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
              "parts[%zu] is %zu and other_parts[%zu] is %zu; expected the same: it is this rank's part for "
              "itself",
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
    run(*inside, map, send, recv, dtype, stream, work);
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
    run_chunk(*inside, map, {chunk, chunks}, send, recv, dtype, stream, work);
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
    const bool needs_other = exchanges_dimensions(step) || step == MapStep::kAllToAll;
    if (!needs_other && other_parts)
      dsc::fail(DSC_ERR_INVALID_ARG, "other_parts is not NULL; expected NULL for mapping %d", mapping);
    const Division dim = listed("parts", parts, 1, ranks, dtype);
    TensorMap map{step, inside->rank(), ranks, Division(outer, 1), dim, inner};
    if (exchanges_dimensions(step)) map.outer = listed("other_parts", other_parts, outer, ranks, dtype);
    if (step == MapStep::kAllToAll)
      map = uneven_all_to_all(std::move(map), listed("other_parts", other_parts, 1, ranks, dtype),
                              direction == DSC_MAP_FORWARD);
    run(*inside, map, send, recv, dtype, stream, work);
  });
}

dsc_result_t dsc_split_range(size_t count, size_t parts, size_t part, size_t* begin, size_t* length) {
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
