#include "tensor_parallel/tensor_map.hpp"

#include <utility>
#include <vector>

#include "comm/group_ids.hpp"
#include "comm/note_writer.hpp"
#include "dsc/types.h"

namespace dsc {

MapStep map_step(int32_t mapping, bool forward) noexcept {
  switch (mapping) {
    case DSC_TENSOR_MAPPING_COPY:
      return forward ? MapStep::kIdentity : MapStep::kAllReduce;
    case DSC_TENSOR_MAPPING_REDUCE:
      return forward ? MapStep::kAllReduce : MapStep::kIdentity;
    case DSC_TENSOR_MAPPING_SCATTER:
      return forward ? MapStep::kSlice : MapStep::kAllGather;
    case DSC_TENSOR_MAPPING_GATHER:
      return forward ? MapStep::kAllGather : MapStep::kSlice;
    case DSC_TENSOR_MAPPING_GATHER_REDUCE:
      return forward ? MapStep::kAllGather : MapStep::kReduceScatter;
    case DSC_TENSOR_MAPPING_REDUCE_SCATTER:
      return forward ? MapStep::kReduceScatter : MapStep::kAllGather;
    case DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN:
      return forward ? MapStep::kSequenceToHidden : MapStep::kHiddenToSequence;
    case DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE:
      return forward ? MapStep::kHiddenToSequence : MapStep::kSequenceToHidden;
    default:
      return MapStep::kAllToAll;
  }
}

size_t TensorMap::in_count() const noexcept {
  switch (step) {
    case MapStep::kAllGather:
      return outer.total() * dim.part(rank) * inner;
    case MapStep::kSequenceToHidden:
      return outer.part(rank) * dim.total() * inner;
    case MapStep::kHiddenToSequence:
      return outer.total() * dim.part(rank) * inner;
    default:
      return outer.total() * dim.total() * inner;
  }
}

size_t TensorMap::out_count() const noexcept {
  switch (step) {
    case MapStep::kSlice:
    case MapStep::kReduceScatter:
    case MapStep::kSequenceToHidden:
      return outer.total() * dim.part(rank) * inner;
    case MapStep::kHiddenToSequence:
      return outer.part(rank) * dim.total() * inner;
    case MapStep::kAllToAll:
      return outer.total() * (received ? received->total() : dim.total()) * inner;
    default:
      return outer.total() * dim.total() * inner;
  }
}

void TensorMap::take_chunk(size_t number, size_t of, size_t element_bytes, MapBuffers& buffers) {
  chunk = {number, of, outer.total()};
  const MapBuffers moved =
      outer.total() == 1 ? take_elements(element_bytes, buffers) : take_rows(element_bytes, buffers);
  // For an empty chunk, keep the addresses: an address after the end of a buffer may belong to another kind
  // of memory.
  const bool is_empty = chunk.elements ? chunk.elements->count * inner == 0 : in_count() + out_count() == 0;
  if (!is_empty) buffers = moved;
}

// Narrows the mapping to some rows of `outer`. They are contiguous in both buffers.
MapBuffers TensorMap::take_rows(size_t element_bytes, const MapBuffers& whole) {
  const Range rows = split_range(outer.total(), chunk.of, chunk.number);
  outer = Division(1, 1);
  const size_t sent = rows.begin * in_count(), received = rows.begin * out_count();
  outer = Division(rows.count, 1);
  return {whole.send + sent * element_bytes, whole.recv + received * element_bytes};
}

// Narrows the mapping to some elements of every rank's part. If the step does not divide the tensor, or if
// there is only one rank, these are elements of the whole tensor.
MapBuffers TensorMap::take_elements(size_t element_bytes, const MapBuffers& whole) {
  const bool divides = !keeps_size() && size > 1, gathers = step == MapStep::kAllGather;
  const Range range = split_range(divides ? dim.part(rank) : dim.total(), chunk.of, chunk.number);
  const size_t row = inner * element_bytes, offset = range.begin * row;
  if (divides && step != MapStep::kSlice) {
    chunk.elements = range;
    return {whole.send + (gathers ? offset : 0), whole.recv + (gathers ? 0 : offset)};
  }
  size_t sent = offset;
  if (step == MapStep::kSlice) {
    sent += dim.start(rank) * row;
    step = MapStep::kIdentity;
  }
  dim = Division(range.count, 1);
  return {whole.send + sent, whole.recv + offset};
}

void TensorMap::set_call(Call& call) const {
  set_shape(call);
  if (chunk.elements) return set_elements(call, *chunk.elements);
  switch (step) {
    case MapStep::kAllGather:
      return set_gather(call);
    case MapStep::kReduceScatter:
      return set_reduce_scatter(call);
    case MapStep::kAllToAll:
    case MapStep::kSequenceToHidden:
    case MapStep::kHiddenToSequence:
      return set_all_to_all(call);
    default:
      call.kind = OpKind::kAllReduce;
      call.count = in_count();
  }
}

void TensorMap::set_gather(Call& call) const {
  call.kind = dim.parts() ? OpKind::kAllGatherV : OpKind::kAllGather;
  call.count = dim.parts() ? out_count() : in_count();
  if (outer.total() > 1) set_columns(call, {{}, columns_of(dim, inner, size)});
  if (!dim.parts()) return;
  call.recv_blocks = list_of(size, [&](int r) { return outer.total() * dim.part(r) * inner; });
}

void TensorMap::set_reduce_scatter(Call& call) const {
  call.kind = dim.parts() ? OpKind::kReduceScatterV : OpKind::kReduceScatter;
  call.count = dim.parts() ? in_count() : out_count();
  if (outer.total() > 1) set_columns(call, {columns_of(dim, inner, size), {}});
  if (!dim.parts()) return;
  call.send_blocks = list_of(size, [&](int r) { return outer.total() * dim.part(r) * inner; });
}

// Sets up a call for some elements of every part. The buffer for this rank's part begins with these elements;
// the other buffer contains the whole tensor.
void TensorMap::set_elements(Call& call, const Range& elements) const {
  const bool gathers = step == MapStep::kAllGather;
  call.kind = gathers ? OpKind::kAllGatherV : OpKind::kReduceScatterV;
  const auto blocks = list_of(size, [&](int) { return elements.count * inner; });
  std::vector<size_t> starts;
  starts.reserve(static_cast<size_t>(size) + 1);
  for (int r = 0; r < size; ++r) starts.push_back((dim.start(r) + elements.begin) * inner);
  starts.push_back(dim.total() * inner);
  (gathers ? call.recv_blocks : call.send_blocks) = blocks;
  const Columns pieces{0, std::make_shared<const BlockList>(blocks->lengths, std::move(starts))};
  set_columns(call, {gathers ? Columns{} : pieces, gathers ? pieces : Columns{}});
  call.count = blocks->total();
}

// Sets up an all-to-all. If it changes the divided dimension between `outer` and `dim`, blocks are columns in
// the buffer that contains a part of `outer`.
void TensorMap::set_all_to_all(Call& call) const {
  const auto to_hidden = [&](int r) { return outer.part(rank) * dim.part(r) * inner; };
  const auto to_sequence = [&](int r) { return outer.part(r) * dim.part(rank) * inner; };
  const bool is_even = !outer.parts() && !dim.parts() && !received;
  call.kind = is_even ? OpKind::kAllToAll : OpKind::kAllToAllV;
  if (step == MapStep::kAllToAll) {
    const Division& back = received ? *received : dim;
    if (outer.total() > 1)
      set_columns(call,
                  {columns_of(dim, inner, size), columns_of(back, inner, size), is_even ? 0 : outer.total()});
    const auto elements = [&](const Division& parts) {
      return list_of(size, [&](int r) { return outer.total() * parts.part(r) * inner; });
    };
    if (is_even)
      call.count = outer.total() * dim.part(rank) * inner;
    else
      call.send_blocks = elements(dim), call.recv_blocks = elements(back);
    return;
  }
  const bool spreads = step == MapStep::kSequenceToHidden;
  const Columns columns = columns_of(dim, inner, size);
  set_columns(call, {spreads ? columns : Columns{}, spreads ? Columns{} : columns});
  if (is_even) {
    call.count = to_hidden(rank);
    return;
  }
  call.send_blocks = spreads ? list_of(size, to_hidden) : list_of(size, to_sequence);
  call.recv_blocks = spreads ? list_of(size, to_sequence) : list_of(size, to_hidden);
}

// Adds the tensor's shape to the note and the tag. In an all-to-all with unequal parts, shapes differ between
// ranks, so `dim` is left out; the engine compares the sizes of each pair of ranks.
void TensorMap::set_shape(Call& call) const noexcept {
  NoteWriter note(call);
  note.add("[");
  note.add(outer, size);
  note.add(", ");
  if (!received) {
    note.add(dim, size);
    note.add(", ");
  }
  note.add(inner);
  note.add("]");
  if (step == MapStep::kSequenceToHidden) note.add(", to hidden");
  if (step == MapStep::kHiddenToSequence) note.add(", to sequence");
  call.tag = hash_of(outer, mix_id(static_cast<uint64_t>(step), inner));
  if (!received) call.tag = hash_of(dim, call.tag);
  if (chunk.of == 0) return;
  note.add(", chunk ");
  note.add(chunk.number);
  note.add(" of ");
  note.add(chunk.of);
  call.tag = mix_id(mix_id(mix_id(call.tag, chunk.number), chunk.of), chunk.outer);
}

}  // namespace dsc
