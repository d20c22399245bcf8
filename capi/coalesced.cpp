#include "dsc/coalesced.h"

#include "base/guard.hpp"
#include "comm/verify.hpp"
#include "comm_call.hpp"
#include "tensor_list/coalesced.hpp"
#include "tensors.hpp"

dsc_result_t dsc_comm_verify_params(dsc_comm_t* comm, const dsc_tensor_t* params, size_t n_params) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    dsc::verify_params(*inside, dsc::read_tensors(params, n_params, "params"));
  });
}

dsc_result_t dsc_broadcast_coalesced(dsc_comm_t* comm, const dsc_tensor_t* tensors, size_t n_tensors,
                                     int32_t root, size_t buffer_bytes) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    dsc::broadcast_coalesced(*inside, dsc::read_tensors(tensors, n_tensors, "tensors"), root, buffer_bytes);
  });
}

dsc_result_t dsc_all_reduce_coalesced(dsc_comm_t* comm, const dsc_tensor_t* tensors, size_t n_tensors,
                                      dsc_op_t op, size_t buffer_bytes) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    dsc::all_reduce_coalesced(*inside, dsc::read_tensors(tensors, n_tensors, "tensors"), op, buffer_bytes);
  });
}
