#include "pipeline_run/unwritten.hpp"

#include <algorithm>
#include <cstring>

#include "base/environment.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr int kUnwritten = 0xff;

// The tensors that a callback has to write.
struct Results {
  const char* name;
  void* const* data = nullptr;
  std::span<const Tensor> tensors;

  std::span<const unsigned char> bytes(size_t i) const {
    if (!data || !data[i] || tensors[i].device >= 0) return {};
    return {static_cast<const unsigned char*>(data[i]), tensors[i].count * dtype_bytes(tensors[i].dtype)};
  }
};

Results results_of(const Instruction& instruction, const PipeBuffers& buffers) {
  switch (instruction.op) {
    case PipeOp::kForward:
      return {"output", buffers.outputs, buffers.output_tensors};
    case PipeOp::kBackward:
    case PipeOp::kBackwardInput:
      return {"gradient of input", buffers.input_grads, buffers.input_tensors};
    default:
      return {"output", nullptr, {}};
  }
}

}  // namespace

bool checks_unwritten() { return process_environment()("DSC_PIPE_DEBUG") == "1"; }

void fill_unwritten(const Instruction& instruction, const PipeBuffers& buffers) {
  const Results results = results_of(instruction, buffers);
  for (size_t i = 0; i < results.tensors.size(); ++i)
    if (const auto bytes = results.bytes(i); !bytes.empty())
      std::memset(results.data[i], kUnwritten, bytes.size());
}

std::string find_unwritten(const Instruction& instruction, const PipeBuffers& buffers) {
  const Results results = results_of(instruction, buffers);
  for (size_t i = 0; i < results.tensors.size(); ++i) {
    const auto bytes = results.bytes(i);
    if (!bytes.empty() && std::ranges::all_of(bytes, [](unsigned char byte) { return byte == kUnwritten; }))
      return std::string("did not write ") + results.name + " " + std::to_string(i);
  }
  return {};
}

}  // namespace dsc
