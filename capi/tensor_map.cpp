#include "dsc/tensor_map.h"

#include <algorithm>

#include "base/guard.hpp"
#include "base/options.hpp"
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

dsc_tensor_map_options_t default_map_options() {
  dsc_tensor_map_options_t options{};
  options.struct_size = sizeof options;
  options.outer = options.inner = options.chunks = 1;
  options.dim = dsc::kUnset;
  return options;
}

void check_divides(const char* name, size_t size, int ranks) {
  if (size % static_cast<size_t>(ranks) != 0)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "%s is %zu, expected a multiple of %d, the number of ranks, or the size of each part in "
              "options->parts",
              name, size, ranks);
}

// Checks the size of the whole tensor, because counts of elements are products of sizes that the caller gave.
void check_size(const TensorMap& map, dsc_dtype_t dtype) {
  const size_t dim = std::max(map.dim.total(), map.received ? map.received->total() : 0);
  size_t elements = 0;
  if (__builtin_mul_overflow(map.outer.total(), dim, &elements) ||
      __builtin_mul_overflow(elements, map.inner, &elements))
    dsc::fail(DSC_ERR_OVERFLOW, "%zu x %zu x %zu elements do not fit %zu bits", map.outer.total(), dim,
              map.inner, 8 * sizeof elements);
  dsc::checked_bytes(elements, dtype, 1);
}

// Checks that the buffers do not overlap, except in the allowed ways to run in place.
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

// Runs a step that needs no other rank. Such a step is not an operation. A batch cannot contain it, and on a
// device there is no work to wait for.
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

TensorMap even_map(const dsc::Comm& comm, const dsc_tensor_map_options_t& options, MapStep step) {
  const int ranks = comm.size();
  dsc::check_set("options->dim", options.dim);
  if (options.other_parts)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->other_parts is not NULL; expected NULL without options->parts");
  if (options.mapping != DSC_TENSOR_MAPPING_COPY && options.mapping != DSC_TENSOR_MAPPING_REDUCE)
    check_divides("options->dim", options.dim, ranks);
  const bool divides_outer = dsc::exchanges_dimensions(step);
  if (divides_outer) check_divides("options->outer", options.outer, ranks);
  return {step,
          comm.rank(),
          ranks,
          Division(options.outer, divides_outer ? ranks : 1),
          Division(options.dim, ranks),
          options.inner};
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

// In an all-to-all, the lists of parts describe the forward direction. In the backward direction they are
// exchanged.
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

TensorMap uneven_map(const dsc::Comm& comm, const dsc_tensor_map_options_t& options, MapStep step,
                     bool forward, dsc_dtype_t dtype) {
  const int ranks = comm.size();
  const bool needs_other = dsc::exchanges_dimensions(step) || step == MapStep::kAllToAll;
  if (!needs_other && options.other_parts)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->other_parts is not NULL; expected NULL for mapping %d",
              options.mapping);
  const Division dim = listed("options->parts", options.parts, 1, ranks, dtype);
  if (options.dim != dsc::kUnset && options.dim != dim.total())
    dsc::fail(DSC_ERR_INVALID_ARG, "options->dim is %zu, expected the sum of options->parts, %zu",
              options.dim, dim.total());
  const bool exchanges = dsc::exchanges_dimensions(step);
  TensorMap map{step, comm.rank(), ranks, Division(exchanges ? 1 : options.outer, 1), dim, options.inner};
  if (!needs_other) return map;
  const size_t factor = exchanges ? options.outer : 1;
  Division other = listed("options->other_parts", options.other_parts, factor, ranks, dtype);
  if (!exchanges) return uneven_all_to_all(std::move(map), std::move(other), forward);
  map.outer = std::move(other);
  return map;
}

void check_chunk(const dsc_tensor_map_options_t& options, const TensorMap& map) {
  if (options.chunks == 0) dsc::fail(DSC_ERR_INVALID_ARG, "options->chunks is 0, expected 1 or more");
  if (options.chunk >= options.chunks)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->chunk is %zu, expected 0 to %zu", options.chunk,
              options.chunks - 1);
  if (options.chunks > 1 && !map.has_chunks())
    dsc::fail(DSC_ERR_INVALID_ARG,
              "options->chunks is %zu, expected 1: mapping %d exchanges parts between pairs of ranks",
              options.chunks, options.mapping);
  if (options.chunks > 1 && options.parts)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->chunks is %zu, expected 1 with options->parts", options.chunks);
}

TensorMap read_map(const dsc::Comm& comm, const dsc_tensor_map_options_t& options, bool forward,
                   dsc_dtype_t dtype) {
  const dsc_tensor_mapping_t mapping = options.mapping;
  if (mapping < DSC_TENSOR_MAPPING_COPY || mapping > DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->mapping is %d, expected 1 (copy) to 9 (hidden_to_sequence)",
              mapping);
  dsc::check_dtype(dtype);
  const MapStep step = dsc::map_step(mapping, forward);
  TensorMap map =
      options.parts ? uneven_map(comm, options, step, forward, dtype) : even_map(comm, options, step);
  check_chunk(options, map);
  return map;
}

void run(dsc_comm_t* comm, const dsc_tensor_map_options_t* options, bool forward, MapBuffers buffers,
         dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  dsc::clear(work);
  dsc::OperationCall inside(comm);
  dsc::require(options, "options");
  const auto given = dsc::read_sized(options, default_map_options(), "options");
  TensorMap map = read_map(*inside, given, forward, dtype);
  check_size(map, dtype);
  check_buffers(map, buffers, dtype);
  dsc::check_stream(*inside, stream);
  if (given.chunks > 1) map.take_chunk(given.chunk, given.chunks, dsc::dtype_bytes(dtype), buffers);
  dsc::Call call;
  dsc::set_buffers(call, buffers.send, map.in_count(), buffers.recv, map.out_count());
  call.dtype = dtype;
  call.stream = stream;
  if (map.is_local()) return copy(*inside, map, call, work);
  map.set_call(call);
  if (map.step == MapStep::kAllReduce || map.step == MapStep::kReduceScatter) {
    dsc::set_reduction(call, DSC_OP_SUM);
    call.nonfinite = inside->nonfinite()->check_for(dtype);
  }
  dsc::execute(*inside, call, stream, work);
}

}  // namespace

dsc_result_t dsc_tensor_map_options_init(dsc_tensor_map_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_map_options(), "options"); });
}

dsc_result_t dsc_tensor_map_forward(dsc_comm_t* comm, const dsc_tensor_map_options_t* options,
                                    const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                    dsc_work_t** work) {
  return dsc::guard(__func__, [&] { run(comm, options, true, {send, recv}, dtype, stream, work); });
}

dsc_result_t dsc_tensor_map_backward(dsc_comm_t* comm, const dsc_tensor_map_options_t* options,
                                     const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                     dsc_work_t** work) {
  return dsc::guard(__func__, [&] { run(comm, options, false, {send, recv}, dtype, stream, work); });
}

dsc_result_t dsc_tensor_map_part(size_t count, size_t parts, size_t part, size_t* start, size_t* length) {
  return dsc::guard_pure(__func__, [&] {
    if (parts == 0) dsc::fail(DSC_ERR_INVALID_ARG, "parts is 0, expected 1 or more");
    if (part >= parts) dsc::fail(DSC_ERR_INVALID_ARG, "part is %zu, expected 0 to %zu", part, parts - 1);
    dsc::require(start, "start");
    dsc::require(length, "length");
    const auto [first, count_of_part] = dsc::split_range(count, parts, part);
    *start = first;
    *length = count_of_part;
  });
}
