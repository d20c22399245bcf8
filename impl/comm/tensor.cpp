#include "comm/tensor.hpp"

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/joined.hpp"
#include "comm/comm.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kShownBytes = 100;  // limit for a name or shape in messages

std::optional<uint64_t> product(std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  return elements;
}

void check_tensor(const Tensor& tensor, size_t index) {
  const std::string name = label(tensor.name, index);
  if (!is_dtype(tensor.dtype))
    fail(DSC_ERR_INVALID_ARG, "%s: dtype is %d, expected 1 (i8) to 13 (bool)", name.c_str(), tensor.dtype);
  if (tensor.has_shape && product(tensor.shape) != tensor.count)
    fail(DSC_ERR_INVALID_ARG, "%s: %s do not fit the shape", name.c_str(),
         clipped(describe(tensor), kShownBytes).c_str());
  size_t bytes = 0;
  if (__builtin_mul_overflow(tensor.count, dtype_bytes(tensor.dtype), &bytes))
    fail(DSC_ERR_OVERFLOW, "%s: %zu elements are larger than any memory", name.c_str(), tensor.count);
}

std::string memory_text(int32_t device) {
  return device < 0 ? "host memory" : "memory of device " + std::to_string(device);
}

// Returns why the tensor's memory is not where `device` says. A failure of the device's driver is also
// returned, not thrown.
std::optional<TensorProblem> memory_problem(const Comm& comm, const Tensor& tensor) {
  int found = tensor.device;
  std::optional<TensorProblem> problem;
  capture([&] { found = comm.device_of(tensor.data); },
          [&](dsc_result_t code, const char* text) {
            problem = TensorProblem{code, text};
          });
  if (problem || found == tensor.device) return problem;
  return TensorProblem{DSC_ERR_INVALID_ARG, "device is " + std::to_string(tensor.device) + ", expected " +
                                                std::to_string(found) + ": data is " + memory_text(found)};
}

std::optional<TensorProblem> device_problem(const Comm& comm, const Tensor& tensor, const Tensor& first) {
  const std::string given = "device is " + std::to_string(tensor.device) + ", expected ";
  if (tensor.device != -1 && tensor.device != comm.device()) {
    const std::string own = comm.device() < 0
                                ? "-1: the communicator is not bound to a device"
                                : "-1 or " + std::to_string(comm.device()) + ", the communicator's";
    return TensorProblem{DSC_ERR_UNSUPPORTED, given + own};
  }
  if (tensor.device != first.device)
    return TensorProblem{DSC_ERR_UNSUPPORTED, given + std::to_string(first.device) + " as for the first one"};
  return std::nullopt;
}

}  // namespace

size_t Tensor::bytes() const noexcept { return count * dtype_bytes(dtype); }

std::string label(const char* name, size_t index) {
  if (!name) return "parameter " + std::to_string(index);
  return clipped(name, kShownBytes) + " (index " + std::to_string(index) + ")";
}

std::string describe(const Tensor& tensor) {
  const std::string dtype =
      is_dtype(tensor.dtype) ? dtype_name(tensor.dtype) : "dtype " + std::to_string(tensor.dtype);
  const std::string elements =
      ", " + std::to_string(tensor.count) + " elements" + (tensor.expect_sparse == 1 ? ", sparse" : "");
  if (!tensor.has_shape) return dtype + elements;
  const bool fits = product(tensor.shape) == tensor.count;
  return dtype + " [" + joined(tensor.shape, ", ") + "]" +
         (fits ? (tensor.expect_sparse == 1 ? " sparse" : "") : elements);
}

std::string listed_labels(std::span<const std::string> labels, std::span<const size_t> indices) {
  constexpr size_t kMostBytes = 200;
  std::string text;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::string& label = labels[indices[i]];
    if (i > 0 && text.size() + label.size() > kMostBytes)
      return text + " and " + std::to_string(indices.size() - i) + " more";
    text += (i == 0 ? "" : ", ") + label;
  }
  return text;
}

void check_tensors(std::span<const Tensor> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) check_tensor(tensors[i], i);
}

std::optional<TensorProblem> first_problem(const Comm& comm, std::span<const Tensor> tensors,
                                           bool needs_data) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const std::string name = label(tensor.name, i);
    if (tensor.expect_sparse != 0 && tensor.expect_sparse != 1)
      return TensorProblem{
          DSC_ERR_INVALID_ARG,
          name + ": expect_sparse is " + std::to_string(tensor.expect_sparse) + ", expected 0 or 1"};
    if (auto problem = device_problem(comm, tensor, tensors[0])) {
      problem->text = name + ": " + problem->text;
      return problem;
    }
    if (!needs_data || tensor.count == 0) continue;
    if (!tensor.data) return TensorProblem{DSC_ERR_INVALID_ARG, name + ": data is NULL"};
    if (comm.device() < 0) continue;
    if (auto problem = memory_problem(comm, tensor)) {
      problem->text = name + ": " + problem->text;
      return problem;
    }
  }
  return std::nullopt;
}

void expect_gradient_on(const Comm& comm, int32_t device, const void* gradient, const std::string& who) {
  if (!gradient || comm.device() < 0) return;
  const int32_t found = comm.device_of(gradient);
  if (found != device)
    fail(DSC_ERR_INVALID_ARG, "%s: gradient is in %s, expected %s as for the parameters", who.c_str(),
         memory_text(found).c_str(), memory_text(device).c_str());
}

std::string clipped(std::string text, size_t most) {
  if (text.size() > most) text.replace(most - 3, std::string::npos, "...");
  return text;
}

}  // namespace dsc
