#include "dsc/collectives.h"

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm/note_writer.hpp"
#include "comm/reduce_ops.hpp"
#include "comm/work_set.hpp"
#include "comm_call.hpp"
#include "execute.hpp"
#include "give.hpp"
#include "tensor_list/broadcast_shapes.hpp"

namespace {

using dsc::Call;
using dsc::clear;
using dsc::execute;
using dsc::OperationCall;
using dsc::OpKind;

Call make_call(OpKind kind, const void* send, void* recv, size_t count, dsc_dtype_t dtype) {
  Call call;
  call.kind = kind;
  call.send = send;
  call.recv = recv;
  call.count = count;
  call.dtype = dtype;
  return call;
}

void set_buffers(Call& call, const void* send, void* recv, size_t count) {
  call.send = send;
  call.recv = recv;
  call.count = count;
}

// Returns the call of a reduction without its buffers. Throws if the operation is not supported for the type.
Call make_reduction(const dsc::Comm& comm, OpKind kind, dsc_op_t op, dsc_dtype_t dtype) {
  dsc::check_dtype(dtype);
  Call call = make_call(kind, nullptr, nullptr, 0, dtype);
  dsc::set_reduction(call, op);
  call.nonfinite = comm.nonfinite()->check_for(dtype);
  return call;
}

// Checks that the buffers do not overlap. The only exception is in place: a rank's own block may be at its
// position in the buffer of all blocks.
void check_in_place(const void* block, size_t block_bytes, const void* all, size_t all_bytes, size_t offset,
                    const char* in_place) {
  if (block_bytes > 0 && block != static_cast<const std::byte*>(all) + offset)
    dsc::check_overlap(block, block_bytes, all, all_bytes, in_place);
}

struct NamedBuffer {
  const char* name;
  const void* data;
};

// Checks the buffers of gather and scatter: `block` is the block of this rank, and `all` is the buffer of all
// blocks, which only the root has. Returns whether this rank is the root.
bool check_rooted(const dsc::Comm& comm, const NamedBuffer& block, const NamedBuffer& all, size_t count,
                  dsc_dtype_t dtype, int32_t root, const char* in_place) {
  dsc::check_dtype(dtype);
  comm.check_rank("root", root);
  const size_t bytes = dsc::checked_bytes(count, dtype, 1);
  const size_t all_bytes = dsc::checked_bytes(count, dtype, static_cast<size_t>(comm.size()));
  dsc::check_buffer(block.name, block.data, bytes);
  if (comm.rank() != root) return false;
  dsc::check_buffer(all.name, all.data, all_bytes);
  check_in_place(block.data, bytes, all.data, all_bytes, static_cast<size_t>(root) * bytes, in_place);
  return true;
}

// Adds the counts to what all ranks must agree on. They become part of the fingerprint, and an error shows
// them if they differ.
void agree_on_counts(Call& call, const dsc::BlockList& blocks) {
  call.count = blocks.total();
  call.tag = dsc::hash_of(blocks);
  dsc::NoteWriter note(call);
  note.add("counts");
  for (const size_t length : blocks.lengths) {
    note.add(" ");
    note.add(length);
  }
}

dsc::ArrayShape read_shape(dsc_dtype_t dtype, const int64_t* sizes, size_t ndim) {
  dsc::check_dtype(dtype);
  if (ndim > dsc::ArrayShape::kMostDims)
    dsc::fail(DSC_ERR_INVALID_ARG, "*ndim is %zu, expected at most %zu", ndim, dsc::ArrayShape::kMostDims);
  if (ndim > 0) dsc::require(sizes, "shape");
  dsc::ArrayShape shape{dtype, static_cast<int64_t>(ndim)};
  size_t count = 1;
  for (size_t i = 0; i < ndim; ++i) {
    if (sizes[i] < 0)
      dsc::fail(DSC_ERR_INVALID_ARG, "shape[%zu] is %lld, expected 0 or more", i,
                static_cast<long long>(sizes[i]));
    if (__builtin_mul_overflow(count, static_cast<size_t>(sizes[i]), &count))
      dsc::fail(DSC_ERR_OVERFLOW, "the number of elements does not fit %zu bits", 8 * sizeof count);
    shape.sizes[i] = sizes[i];
  }
  dsc::checked_bytes(count, dtype, 1);
  return shape;
}

}  // namespace

dsc_result_t dsc_all_reduce(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                            dsc_op_t op, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    Call call = make_reduction(*inside, OpKind::kAllReduce, op, dtype);
    const size_t bytes = dsc::checked_bytes(count, dtype, 1);
    dsc::check_buffer("send", send, bytes);
    dsc::check_buffer("recv", recv, bytes);
    if (send != recv) dsc::check_overlap(send, bytes, recv, bytes, "recv == send");
    dsc::check_stream(*inside, stream);
    set_buffers(call, send, recv, count);
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_broadcast(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                           int32_t root, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    dsc::check_dtype(dtype);
    inside->check_rank("root", root);
    const size_t bytes = dsc::checked_bytes(count, dtype, 1);
    if (inside->rank() == root) {
      dsc::check_buffer("send", send, bytes);
      if (send != recv) dsc::check_overlap(send, bytes, recv, bytes, "recv == send");
    }
    dsc::check_buffer("recv", recv, bytes);
    dsc::check_stream(*inside, stream);
    Call call = make_call(OpKind::kBroadcast, inside->rank() == root ? send : nullptr, recv, count, dtype);
    call.root = root;
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_broadcast_shape(dsc_comm_t* comm, dsc_dtype_t* dtype, int64_t* shape, size_t capacity,
                                 size_t* ndim, int32_t root) {
  return dsc::guard(__func__, [&] {
    OperationCall inside(comm);
    inside->check_rank("root", root);
    dsc::require(dtype, "dtype");
    dsc::require(ndim, "ndim");
    if (capacity > 0) dsc::require(shape, "shape");
    if (inside->coalesced)
      dsc::fail(DSC_ERR_STATE, "a batch is open, and this call blocks: expected dsc_batch_end() first");
    const bool is_root = inside->rank() == root;
    auto given = is_root ? read_shape(*dtype, shape, *ndim) : dsc::ArrayShape{};
    dsc::broadcast_shape(*inside, given, root);
    *dtype = static_cast<dsc_dtype_t>(given.dtype);
    return is_root ? DSC_OK
                   : dsc::give_list("shape", static_cast<size_t>(given.ndim), shape, capacity, ndim,
                                    [&](size_t i) { return given.sizes[i]; });
  });
}

dsc_result_t dsc_all_gather(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                            void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    dsc::check_dtype(dtype);
    const size_t part = dsc::checked_bytes(count, dtype, 1);
    const size_t all = dsc::checked_bytes(count, dtype, static_cast<size_t>(inside->size()));
    dsc::check_buffer("send", send, part);
    dsc::check_buffer("recv", recv, all);
    check_in_place(send, part, recv, all, static_cast<size_t>(inside->rank()) * part,
                   "send == recv + rank x count");
    dsc::check_stream(*inside, stream);
    execute(*inside, make_call(OpKind::kAllGather, send, recv, count, dtype), stream, work);
  });
}

dsc_result_t dsc_reduce_scatter(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                dsc_dtype_t dtype, dsc_op_t op, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    Call call = make_reduction(*inside, OpKind::kReduceScatter, op, dtype);
    const size_t part = dsc::checked_bytes(count, dtype, 1);
    const size_t all = dsc::checked_bytes(count, dtype, static_cast<size_t>(inside->size()));
    dsc::check_buffer("send", send, all);
    dsc::check_buffer("recv", recv, part);
    check_in_place(recv, part, send, all, static_cast<size_t>(inside->rank()) * part,
                   "recv == send + rank x count");
    dsc::check_stream(*inside, stream);
    set_buffers(call, send, recv, count);
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_reduce(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                        dsc_op_t op, int32_t root, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    Call call = make_reduction(*inside, OpKind::kReduce, op, dtype);
    inside->check_rank("root", root);
    const size_t bytes = dsc::checked_bytes(count, dtype, 1);
    const bool is_root = inside->rank() == root;
    dsc::check_buffer("send", send, bytes);
    if (is_root) {
      dsc::check_buffer("recv", recv, bytes);
      if (send != recv) dsc::check_overlap(send, bytes, recv, bytes, "recv == send");
    }
    dsc::check_stream(*inside, stream);
    set_buffers(call, send, is_root ? recv : nullptr, count);
    call.root = root;
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_gather(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                        int32_t root, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    const bool is_root = check_rooted(*inside, {"send", send}, {"recv", recv}, count, dtype, root,
                                      "send == recv + root x count");
    dsc::check_stream(*inside, stream);
    Call call = make_call(OpKind::kGather, send, is_root ? recv : nullptr, count, dtype);
    call.root = root;
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_scatter(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                         int32_t root, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    const bool is_root = check_rooted(*inside, {"recv", recv}, {"send", send}, count, dtype, root,
                                      "recv == send + root x count");
    dsc::check_stream(*inside, stream);
    Call call = make_call(OpKind::kScatter, is_root ? send : nullptr, recv, count, dtype);
    call.root = root;
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_all_to_all(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                            void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    dsc::check_dtype(dtype);
    const size_t all = dsc::checked_bytes(count, dtype, static_cast<size_t>(inside->size()));
    dsc::check_buffer("send", send, all);
    dsc::check_buffer("recv", recv, all);
    if (send != recv) dsc::check_overlap(send, all, recv, all, "recv == send");
    dsc::check_stream(*inside, stream);
    execute(*inside, make_call(OpKind::kAllToAll, send, recv, count, dtype), stream, work);
  });
}

dsc_result_t dsc_all_gather_v(dsc_comm_t* comm, const void* send, void* recv, const size_t* counts,
                              dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    dsc::check_dtype(dtype);
    const auto blocks = dsc::read_counts("counts", counts, inside->size(), dtype);
    const auto rank = static_cast<size_t>(inside->rank());
    const size_t bytes = dsc::dtype_bytes(dtype);
    const size_t part = blocks->lengths[rank] * bytes;
    const size_t all = blocks->total() * bytes;
    dsc::check_buffer("send", send, part);
    dsc::check_buffer("recv", recv, all);
    check_in_place(send, part, recv, all, blocks->starts[rank] * bytes,
                   "send == recv + the counts of the ranks before");
    dsc::check_stream(*inside, stream);
    Call call = make_call(OpKind::kAllGatherV, send, recv, 0, dtype);
    agree_on_counts(call, *blocks);
    call.recv_blocks = blocks;
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_reduce_scatter_v(dsc_comm_t* comm, const void* send, void* recv, const size_t* counts,
                                  dsc_dtype_t dtype, dsc_op_t op, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    Call call = make_reduction(*inside, OpKind::kReduceScatterV, op, dtype);
    const auto blocks = dsc::read_counts("counts", counts, inside->size(), dtype);
    const auto rank = static_cast<size_t>(inside->rank());
    const size_t bytes = dsc::dtype_bytes(dtype);
    const size_t part = blocks->lengths[rank] * bytes;
    const size_t all = blocks->total() * bytes;
    dsc::check_buffer("send", send, all);
    dsc::check_buffer("recv", recv, part);
    check_in_place(recv, part, send, all, blocks->starts[rank] * bytes,
                   "recv == send + the counts of the ranks before");
    dsc::check_stream(*inside, stream);
    set_buffers(call, send, recv, 0);
    agree_on_counts(call, *blocks);
    call.send_blocks = blocks;
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_all_to_all_v(dsc_comm_t* comm, const void* send, const size_t* send_counts, void* recv,
                              const size_t* recv_counts, dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    dsc::check_dtype(dtype);
    const auto sent = dsc::read_counts("send_counts", send_counts, inside->size(), dtype);
    const auto received = dsc::read_counts("recv_counts", recv_counts, inside->size(), dtype);
    const auto rank = static_cast<size_t>(inside->rank());
    if (sent->lengths[rank] != received->lengths[rank])
      dsc::fail(DSC_ERR_INVALID_ARG,
                "send_counts[%zu] is %zu and recv_counts[%zu] is %zu, expected the same count: both are of "
                "the block that this rank sends to itself",
                rank, sent->lengths[rank], rank, received->lengths[rank]);
    const size_t bytes = dsc::dtype_bytes(dtype);
    dsc::check_buffer("send", send, sent->total() * bytes);
    dsc::check_buffer("recv", recv, received->total() * bytes);
    dsc::check_overlap(send, sent->total() * bytes, recv, received->total() * bytes, nullptr);
    dsc::check_stream(*inside, stream);
    Call call = make_call(OpKind::kAllToAllV, send, recv, 0, dtype);
    call.send_blocks = sent;
    call.recv_blocks = received;
    execute(*inside, call, stream, work);
  });
}

dsc_result_t dsc_monitored_barrier(dsc_comm_t* comm, int32_t timeout_ms) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    if (timeout_ms < 1) dsc::fail(DSC_ERR_INVALID_ARG, "timeout_ms is %d, expected 1 or more", timeout_ms);
    Call call = make_call(OpKind::kMonitoredBarrier, nullptr, nullptr, 0, 0);
    call.timeout_ms = timeout_ms;
    inside->run(call);
  });
}

dsc_result_t dsc_barrier(dsc_comm_t* comm, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    dsc::check_stream(*inside, stream);
    execute(*inside, make_call(OpKind::kBarrier, nullptr, nullptr, 0, 0), stream, work);
  });
}

namespace {

void message(OpKind kind, dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
             int32_t peer, void* stream, dsc_work_t** work) {
  clear(work);
  OperationCall inside(comm);
  dsc::check_dtype(dtype);
  inside->check_rank("peer", peer);
  if (peer == inside->rank())
    dsc::fail(DSC_ERR_INVALID_ARG, "peer is %d, which is this rank; expected another rank", peer);
  const size_t bytes = dsc::checked_bytes(count, dtype, 1);
  if (kind == OpKind::kSend) dsc::check_buffer("send", send, bytes);
  if (kind == OpKind::kRecv) dsc::check_buffer("recv", recv, bytes);
  dsc::check_stream(*inside, stream);
  Call call = make_call(kind, send, recv, count, dtype);
  call.root = peer;
  execute(*inside, call, stream, work);
}

}  // namespace

dsc_result_t dsc_send(dsc_comm_t* comm, const void* send, size_t count, dsc_dtype_t dtype, int32_t peer,
                      void* stream, dsc_work_t** work) {
  return dsc::guard(__func__,
                    [&] { message(OpKind::kSend, comm, send, nullptr, count, dtype, peer, stream, work); });
}

dsc_result_t dsc_recv(dsc_comm_t* comm, void* recv, size_t count, dsc_dtype_t dtype, int32_t peer,
                      void* stream, dsc_work_t** work) {
  return dsc::guard(__func__,
                    [&] { message(OpKind::kRecv, comm, nullptr, recv, count, dtype, peer, stream, work); });
}

dsc_result_t dsc_batch_begin(dsc_comm_t* comm) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    inside->coalesced = std::make_unique<std::vector<Call>>();
  });
}

dsc_result_t dsc_batch_end(dsc_comm_t* comm, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    OperationCall inside(comm);
    dsc::check_stream(*inside, stream);
    if (!inside->coalesced) dsc::fail(DSC_ERR_STATE, "no batch is open: expected dsc_batch_begin()");
    const auto calls = std::move(inside->coalesced);  // the batch is closed even if this call fails
    for (Call& call : *calls) {
      if (call.stream && call.stream != stream)
        dsc::fail(DSC_ERR_INVALID_ARG,
                  "a call in the batch has another stream than dsc_batch_end(), expected the same stream");
      call.stream = stream;
    }
    if (!work) return inside->run_batch(*calls);
    *work = dsc::give_out(*inside, inside->start_batch(*calls));
  });
}
