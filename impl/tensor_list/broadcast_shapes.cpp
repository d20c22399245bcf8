#include "tensor_list/broadcast_shapes.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/agreement.hpp"
#include "control/call.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr uint64_t kKeysTag = 0x6b657973;
constexpr size_t kShownBytes = 80;  // limit for a key in messages

std::string quoted(const char* name) {
  return name ? "'" + clipped(name, kShownBytes) + "'" : "without a name";
}

// Compares the lists of all ranks before anything is sent, because ranks with different lists cannot exchange
// shapes.
void verify_keys(Comm& comm, std::span<const Tensor> tensors, int32_t dtype, int root) {
  std::vector<std::string> lines{std::to_string(root), dtype_name(dtype)};
  for (const Tensor& tensor : tensors) lines.push_back(quoted(tensor.name));
  const auto found = find_disagreement(comm, kKeysTag, lines);
  if (!found) return;
  const auto shown = [](const std::string& line) { return line.empty() ? "missing" : line; };
  const std::string what = found->line == 0   ? "root"
                           : found->line == 1 ? "dtype"
                                              : "key " + std::to_string(found->line - 2);
  fail(DSC_ERR_MISMATCH, "expected the same list of keys on all ranks, but %s is %s on rank 0 and %s on %s",
       what.c_str(), shown(found->expected).c_str(), shown(found->found).c_str(),
       ranks_text(found->ranks).c_str());
}

void check_root_tensor(const Tensor& tensor, int32_t dtype) {
  const std::string key = quoted(tensor.name);
  if (tensor.dtype == 0)
    fail(DSC_ERR_INVALID_ARG, "key %s has no tensor, expected one of %s", key.c_str(), dtype_name(dtype));
  if (tensor.dtype != dtype)
    fail(DSC_ERR_INVALID_ARG, "key %s is %s, expected elements of %s", key.c_str(),
         clipped(describe(tensor), kShownBytes).c_str(), dtype_name(dtype));
  if (tensor.shape.size() > ShapeRow::kMostDims)
    fail(DSC_ERR_INVALID_ARG, "key %s has %zu dimensions, expected at most %zu", key.c_str(),
         tensor.shape.size(), ShapeRow::kMostDims);
}

// Checks the root's tensors. dsc_broadcast_coalesced() would detect the same errors only on the root; here
// they are reported to all ranks.
void check_root_tensors(const Comm& comm, std::span<const Tensor> tensors, int32_t dtype) {
  for (const Tensor& tensor : tensors) check_root_tensor(tensor, dtype);
  check_tensors(tensors);
  if (const auto problem = first_problem(comm, tensors, true))
    fail(problem->code, "%s", problem->text.c_str());
}

ShapeRow row_of(const Tensor& tensor) {
  ShapeRow row;
  if (!tensor.has_shape) {
    row.ndim = 1;
    row.sizes[0] = static_cast<int64_t>(tensor.count);
    return row;
  }
  row.ndim = static_cast<int64_t>(tensor.shape.size());
  std::ranges::copy(tensor.shape, row.sizes.begin());
  return row;
}

void broadcast_bytes(Comm& comm, int root, void* data, size_t bytes) {
  Call call = call_of_bytes(OpKind::kBroadcast, root, data, data, bytes);
  call.tag = kKeysTag;
  std::snprintf(call.note, sizeof call.note, "shapes of tensors");
  comm.run(call);
}

// Throws the root's failure on all ranks. It is sent separately, because it is large and rare.
[[noreturn]] void fail_alike(Comm& comm, int root, Failure failure) {
  broadcast_bytes(comm, root, &failure, sizeof failure);
  failure.bound();
  Failure told;
  told.code = failure.code == DSC_OK ? DSC_ERR_PROTOCOL : failure.code;
  told.ranks = {root};
  told.text.add("rank %d: %s", root, failure.text.c_str());
  throw Error(told);
}

void check_rows(std::span<const ShapeRow> rows) {
  for (const ShapeRow& row : rows) {
    if (row.ndim < 0 || row.ndim > static_cast<int64_t>(ShapeRow::kMostDims))
      fail(DSC_ERR_PROTOCOL, "the root sent %lld dimensions, expected at most %zu",
           static_cast<long long>(row.ndim), ShapeRow::kMostDims);
    size_t count = 1;
    for (size_t i = 0; i < static_cast<size_t>(row.ndim); ++i)
      if (row.sizes[i] < 0 || __builtin_mul_overflow(count, static_cast<size_t>(row.sizes[i]), &count))
        fail(DSC_ERR_PROTOCOL, "the root sent sizes that are negative or too large");
  }
}

}  // namespace

size_t ShapeRow::count() const noexcept {
  size_t product = 1;
  for (size_t i = 0; i < static_cast<size_t>(ndim); ++i) product *= static_cast<size_t>(sizes[i]);
  return product;
}

void broadcast_shape(Comm& comm, ArrayShape& shape, int root) {
  broadcast_bytes(comm, root, &shape, sizeof shape);
}

std::vector<ShapeRow> broadcast_shapes(Comm& comm, std::span<const Tensor> tensors, int32_t dtype, int root) {
  verify_keys(comm, tensors, dtype, root);
  Failure failure;
  std::vector<ShapeRow> rows(tensors.size() + 1);  // `ndim` of row 0 is the result of the root's check
  if (comm.rank() == root) {
    capture([&] { check_root_tensors(comm, tensors, dtype); },
            [&](const Error& error) { failure = error.failure(); });
    rows[0].ndim = failure.code;
    if (failure.code == DSC_OK) std::ranges::transform(tensors, rows.begin() + 1, row_of);
  }
  broadcast_bytes(comm, root, rows.data(), rows.size() * sizeof(ShapeRow));
  if (rows[0].ndim != DSC_OK) fail_alike(comm, root, failure);
  rows.erase(rows.begin());
  check_rows(rows);
  return rows;
}

}  // namespace dsc
