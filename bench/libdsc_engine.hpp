// libdsc as an engine, through its public header. As libdsc_zero_copy it uses buffers of dsc_mem_alloc(),
// otherwise ordinary buffers.
#pragma once

#include <dsc/dsc.h>

#include <stdexcept>
#include <string>

#include "harness.hpp"

namespace bench {

inline void ok(dsc_result_t result) {
  if (result != DSC_OK)
    throw std::runtime_error(std::string(dsc_result_name(result)) + ": " + dsc_last_error_message());
}

class LibdscEngine : public Engine {
 public:
  explicit LibdscEngine(const Job& job) : zero_copy_(job.engine == "libdsc_zero_copy") {
    ok(dsc_init_distributed(nullptr, &world_));
    ok(dsc_comm_rank(world_, &rank_));
  }

  int rank() const override { return rank_; }
  dsc_comm_t* world() const { return world_; }

  float* allocate(size_t count) override {
    if (!zero_copy_) return Engine::allocate(count);
    void* memory = nullptr;
    ok(dsc_mem_alloc(world_, count * sizeof(float), DSC_MEMORY_KIND_HOST, &memory));
    return static_cast<float*>(memory);
  }

  void release(float* buffer) override {
    if (zero_copy_)
      dsc_mem_free(buffer);  // may run while an exception propagates
    else
      Engine::release(buffer);
  }

  void call(const Call& c) override {
    const dsc_dtype_t f32 = DSC_DTYPE_F32;
    switch (c.op) {
      case Op::all_reduce:
        return ok(dsc_all_reduce(world_, c.in, c.out, c.count, f32, DSC_OP_SUM, nullptr, nullptr));
      case Op::broadcast:
        return ok(dsc_broadcast(world_, c.in, c.out, c.count, f32, root, nullptr, nullptr));
      case Op::all_gather:
        return ok(dsc_all_gather(world_, c.in, c.out, c.count, f32, nullptr, nullptr));
      case Op::reduce_scatter:
        return ok(dsc_reduce_scatter(world_, c.in, c.out, c.count, f32, DSC_OP_SUM, nullptr, nullptr));
      case Op::all_to_all:
        return ok(dsc_all_to_all(world_, c.in, c.out, c.count, f32, nullptr, nullptr));
      case Op::reduce:
        return ok(dsc_reduce(world_, c.in, c.out, c.count, f32, DSC_OP_SUM, root, nullptr, nullptr));
      case Op::gather:
        return ok(dsc_gather(world_, c.in, c.out, c.count, f32, root, nullptr, nullptr));
      case Op::scatter:
        return ok(dsc_scatter(world_, c.in, c.out, c.count, f32, root, nullptr, nullptr));
      case Op::barrier:
        return ok(dsc_barrier(world_, nullptr, nullptr));
      case Op::send_recv:
        return round_trip(c);
      case Op::gather_columns:
        return map(c, DSC_TENSOR_MAPPING_GATHER);
      case Op::reduce_scatter_columns:
        return map(c, DSC_TENSOR_MAPPING_REDUCE_SCATTER);
      case Op::sequence_to_hidden:
        return map(c, DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN);
      case Op::hidden_to_sequence:
        return map(c, DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE);
    }
  }

 private:
  void map(const Call& c, dsc_tensor_mapping_t mapping) {
    const Matrix m(c.count, c.ranks);
    dsc_tensor_map_options_t options;
    ok(dsc_tensor_map_options_init(&options, sizeof options));
    options.mapping = mapping;
    options.outer = m.rows;
    options.dim = m.columns;
    ok(dsc_tensor_map_forward(world_, &options, c.in, c.out, DSC_DTYPE_F32, nullptr, nullptr));
  }

  void round_trip(const Call& c) {
    const int32_t peer = rank_ ^ 1;
    if (rank_ % 2 == 0) {
      ok(dsc_send(world_, c.in, c.count, DSC_DTYPE_F32, peer, nullptr, nullptr));
      ok(dsc_recv(world_, c.out, c.count, DSC_DTYPE_F32, peer, nullptr, nullptr));
    } else {
      ok(dsc_recv(world_, c.out, c.count, DSC_DTYPE_F32, peer, nullptr, nullptr));
      ok(dsc_send(world_, c.out, c.count, DSC_DTYPE_F32, peer, nullptr, nullptr));
    }
  }

  dsc_comm_t* world_ = nullptr;
  int32_t rank_ = 0;
  bool zero_copy_;
};

}  // namespace bench
