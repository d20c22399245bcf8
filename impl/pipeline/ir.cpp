#include "pipeline/ir.hpp"

#include <array>

namespace dsc {

const char* pipe_op_name(int32_t op) noexcept {
  static constexpr std::array names{
      "unknown",           "load_micro_batch", "forward",         "backward",  "backward_input",
      "backward_weight",   "send_activation",  "recv_activation", "send_grad", "recv_grad",
      "reduce_tied_grads", "reduce_grads",     "optimizer_step",  "overlap"};
  return op > 0 && op < static_cast<int32_t>(names.size()) ? names[static_cast<size_t>(op)] : names[0];
}

}  // namespace dsc
