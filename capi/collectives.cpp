#include "dsc/collectives.h"

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm_call.hpp"

namespace {

using dsc::Call;
using dsc::CommCall;
using dsc::OpKind;

void execute(dsc::Comm& comm, const Call& call, dsc_work_t** work) {
  if (!work) {
    comm.run(call);
    return;
  }
  *work = dsc::open_handle<dsc_work_t, dsc::Work>(dsc::HandleKind::kWork, comm.start(call));
}

Call make_call(OpKind kind, const void* send, void* recv, size_t count, dsc_dtype_t dtype) {
  Call call;
  call.kind = kind;
  call.send = send;
  call.recv = recv;
  call.count = count;
  call.dtype = dtype;
  return call;
}

void clear(dsc_work_t** work) {
  if (work) *work = nullptr;
}

}  // namespace

dsc_result_t dsc_all_reduce(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                            dsc_op_t op, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    CommCall inside(comm);
    dsc::check_reduction(op, dtype);
    const size_t bytes = dsc::checked_bytes(count, dtype, 1);
    dsc::check_buffer("send", send, bytes);
    dsc::check_buffer("recv", recv, bytes);
    if (send != recv) dsc::check_overlap(send, bytes, recv, bytes, "recv == send");
    dsc::check_stream(stream);
    Call call = make_call(OpKind::kAllReduce, send, recv, count, dtype);
    call.op = op;
    execute(*inside, call, work);
  });
}

dsc_result_t dsc_broadcast(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                           int32_t root, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    CommCall inside(comm);
    dsc::check_dtype(dtype);
    dsc::check_rank("root", root, inside->size());
    const size_t bytes = dsc::checked_bytes(count, dtype, 1);
    if (inside->rank() == root) {
      dsc::check_buffer("send", send, bytes);
      if (send != recv) dsc::check_overlap(send, bytes, recv, bytes, "recv == send");
    }
    dsc::check_buffer("recv", recv, bytes);
    dsc::check_stream(stream);
    Call call = make_call(OpKind::kBroadcast, inside->rank() == root ? send : nullptr, recv, count, dtype);
    call.root = root;
    execute(*inside, call, work);
  });
}

dsc_result_t dsc_all_gather(dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
                            void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    CommCall inside(comm);
    dsc::check_dtype(dtype);
    const size_t part = dsc::checked_bytes(count, dtype, 1);
    const size_t all = dsc::checked_bytes(count, dtype, static_cast<size_t>(inside->size()));
    dsc::check_buffer("send", send, part);
    dsc::check_buffer("recv", recv, all);
    if (part > 0 && send != static_cast<std::byte*>(recv) + static_cast<size_t>(inside->rank()) * part)
      dsc::check_overlap(send, part, recv, all, "send == recv + rank x count");
    dsc::check_stream(stream);
    execute(*inside, make_call(OpKind::kAllGather, send, recv, count, dtype), work);
  });
}

dsc_result_t dsc_reduce_scatter(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                dsc_dtype_t dtype, dsc_op_t op, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    CommCall inside(comm);
    dsc::check_reduction(op, dtype);
    const size_t part = dsc::checked_bytes(count, dtype, 1);
    const size_t all = dsc::checked_bytes(count, dtype, static_cast<size_t>(inside->size()));
    dsc::check_buffer("send", send, all);
    dsc::check_buffer("recv", recv, part);
    if (part > 0 && recv != static_cast<const std::byte*>(send) + static_cast<size_t>(inside->rank()) * part)
      dsc::check_overlap(send, all, recv, part, "recv == send + rank x count");
    dsc::check_stream(stream);
    Call call = make_call(OpKind::kReduceScatter, send, recv, count, dtype);
    call.op = op;
    execute(*inside, call, work);
  });
}

dsc_result_t dsc_barrier(dsc_comm_t* comm, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    clear(work);
    CommCall inside(comm);
    dsc::check_stream(stream);
    execute(*inside, make_call(OpKind::kBarrier, nullptr, nullptr, 0, 0), work);
  });
}

namespace {

void message(OpKind kind, dsc_comm_t* comm, const void* send, void* recv, size_t count, dsc_dtype_t dtype,
             int32_t peer, void* stream, dsc_work_t** work) {
  clear(work);
  CommCall inside(comm);
  dsc::check_dtype(dtype);
  dsc::check_rank("peer", peer, inside->size());
  if (peer == inside->rank()) dsc::fail(DSC_ERR_INVALID_ARG, "peer is %d, which is this rank", peer);
  const size_t bytes = dsc::checked_bytes(count, dtype, 1);
  if (kind == OpKind::kSend) dsc::check_buffer("send", send, bytes);
  if (kind == OpKind::kRecv) dsc::check_buffer("recv", recv, bytes);
  dsc::check_stream(stream);
  Call call = make_call(kind, send, recv, count, dtype);
  call.root = peer;
  execute(*inside, call, work);
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
