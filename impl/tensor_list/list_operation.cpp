#include "tensor_list/list_operation.hpp"

#include <string>

#include "comm/group_ids.hpp"
#include "comm/note_writer.hpp"

namespace dsc {

void ListOperation::compare_list(std::span<const Tensor> tensors, const BucketPlan& plan) {
  uint64_t hash = mix_id(tensors.size(), plan.buckets());
  for (size_t b = 0; b < plan.buckets(); ++b) {
    hash = mix_id(hash, plan.bucket(b).size());
    for (const size_t index : plan.bucket(b))
      hash = mix_id(mix_id(hash, tensors[index].count), static_cast<uint64_t>(tensors[index].dtype));
  }
  call.tag = hash;
}

Call ListOperation::on_buffer(Comm& comm, std::span<const Tensor> tensors, std::span<const size_t> indices,
                              void* buffer, size_t count) const {
  Call packed = call;
  packed.dtype = tensors[indices[0]].dtype;
  packed.send = packed.recv = buffer;
  packed.count = count;
  if (is_callers) packed.nonfinite = comm.nonfinite()->check_for(packed.dtype);
  NoteWriter note(packed);
  note.add(std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor" : " tensors"));
  for (size_t i = 0; i < indices.size() && !note.is_full(); ++i)
    note.add(", [" + std::to_string(indices[i]) + "]: " + std::to_string(tensors[indices[i]].count));
  return packed;
}

Call ListOperation::on_nothing() const {
  Call empty = call;
  empty.dtype = DSC_DTYPE_U8;
  empty.op = call.kind == OpKind::kAllReduce ? DSC_OP_SUM : 0;
  empty.tag = mix_id(0, 0);
  NoteWriter(empty).add("0 tensors");
  return empty;
}

}  // namespace dsc
