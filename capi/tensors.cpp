#include "tensors.hpp"

#include <cstdio>
#include <cstring>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"

namespace dsc {
namespace {

Tensor read_tensor(const void* given, const char* name, size_t index, size_t struct_size) {
  size_t own_size = 0;
  std::memcpy(&own_size, given, sizeof own_size);
  if (own_size != struct_size) {  // checked before the rest of the struct is read
    fail(DSC_ERR_INVALID_ARG, "%s[%zu].struct_size is %zu, expected %zu as in %s[0]", name, index, own_size,
         struct_size, name);
  }
  char element[96];
  std::snprintf(element, sizeof element, "%s[%zu]", name, index);
  const auto tensor = read_sized(static_cast<const dsc_tensor_t*>(given), dsc_tensor_t{}, element);
  if (tensor.ndim < 0) fail(DSC_ERR_INVALID_ARG, "%s.ndim is %d, expected 0 or more", element, tensor.ndim);
  Tensor result;
  result.data = tensor.data;
  result.count = tensor.count;
  result.has_shape = tensor.shape != nullptr;
  if (tensor.shape) result.shape = {tensor.shape, static_cast<size_t>(tensor.ndim)};
  result.name = tensor.name;
  result.dtype = tensor.dtype;
  result.device = tensor.device;
  result.expect_sparse = tensor.expect_sparse;
  return result;
}

}  // namespace

// The distance between entries of the caller's list is their struct_size, which may differ from the size in
// this release.
std::vector<Tensor> read_tensors(const dsc_tensor_t* tensors, size_t n, const char* name) {
  std::vector<Tensor> result;
  if (n == 0) return result;
  require(tensors, name);
  const size_t struct_size = tensors[0].struct_size;
  const auto* bytes = reinterpret_cast<const std::byte*>(tensors);
  for (size_t i = 0; i < n; ++i) result.push_back(read_tensor(bytes + i * struct_size, name, i, struct_size));
  return result;
}

}  // namespace dsc

dsc_result_t dsc_tensor_init(dsc_tensor_t* tensor, size_t struct_size) {
  return dsc::guard_pure(__func__, [&] {
    dsc_tensor_t on_host{};
    on_host.struct_size = sizeof on_host;
    on_host.device = -1;
    dsc::init_sized(tensor, struct_size, on_host, "tensor");
  });
}
