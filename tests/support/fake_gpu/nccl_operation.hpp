// The work of communicators on streams.
#pragma once

#include <vector>

#include "nccl_comm.hpp"

namespace fake_gpu {

enum class Kind {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  recv
};

struct Operation {
  Kind kind{};
  const char* name = "";
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  NcclType type{};
  NcclOp op{};
  int root = 0;  // the root or the peer
  CudaStream* stream = nullptr;
  int number = 0;  // the number of the rank's operation in this process, from 1
  Scale scale{};
};

bool point_to_point(const Operation& operation);
size_t bytes_of(NcclType type);
double number_in(const void* memory, NcclType type);

// What an operation reads and writes on this rank.
struct Buffers {
  size_t send_bytes = 0, recv_bytes = 0;
};
Buffers buffers_of(const Comm& comm, const Operation& operation);

// Runs until all operations are done, or the communicator is stopped.
void execute(Comm& comm, const std::vector<Operation>& operations);

// Reduces in rank order with one rounding. `scales` has an element for each rank.
void reduce(const Operation& operation, const std::vector<const char*>& inputs,
            const std::vector<double>& scales, char* output, size_t count);

}  // namespace fake_gpu
