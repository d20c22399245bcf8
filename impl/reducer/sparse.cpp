#include "reducer/sparse.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr uint64_t kCountsTag = 0x73706172;
constexpr size_t kRowsAtOnce = 64;  // number of rows that are added by one call

// Collective. Gathers one block per rank. `counts` are the numbers of rows, and `unit` is the number of
// elements in a row.
void gather_blocks(Comm& group, int32_t dtype, const void* mine, std::span<const uint64_t> counts,
                   size_t unit, void* all) {
  std::vector<size_t> lengths;
  for (const uint64_t count : counts) lengths.push_back(count * unit);
  Call call;
  call.kind = OpKind::kAllGatherV;
  call.dtype = dtype;
  call.send = mine;
  call.recv = all;
  call.recv_blocks = std::make_shared<const BlockList>(std::move(lengths));
  call.tag = hash_of(*call.recv_blocks);
  std::snprintf(call.note, sizeof call.note, "sparse gradient");
  group.run(call);
}

}  // namespace

SparseGradients::SparseGradients(const ParamList& params, int32_t average, bool coalesce)
    : params_(params), average_(average), coalesce_(coalesce) {
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& param = params.tensors[i];
    if (param.expect_sparse == 0) continue;
    Gradient& gradient = gradients_[i];
    gradient.rows = param.shape[0];
    gradient.row_elements =
        std::accumulate(param.shape.begin() + 1, param.shape.end(), size_t{1},
                        [](size_t all, int64_t size) { return all * static_cast<size_t>(size); });
    gradient.dtype = param.dtype;
  }
}

void SparseGradients::expect(size_t param, bool sparse) const {
  if (has(param) == sparse) return;
  fail(DSC_ERR_INVALID_ARG,
       sparse ? "%s has no sparse gradients: expect_sparse was 0 at creation"
              : "%s has sparse gradients, expected dsc_bucket_reducer_mark_sparse()",
       params_.labels[param].c_str());
}

void SparseGradients::add(size_t param, std::span<const int64_t> indices, const void* values) {
  Gradient& gradient = gradients_.at(param);
  for (size_t k = 0; k < indices.size(); ++k)
    if (indices[k] < 0 || indices[k] >= gradient.rows)
      fail(DSC_ERR_INVALID_ARG, "%s: indices[%zu] is %lld, expected 0 to %lld", params_.labels[param].c_str(),
           k, static_cast<long long>(indices[k]), static_cast<long long>(gradient.rows - 1));
  const MutexLock lock(mutex_);
  const auto* bytes = static_cast<const std::byte*>(values);
  const size_t size = indices.size() * gradient.row_elements * dtype_bytes(gradient.dtype);
  gradient.own.indices.insert(gradient.own.indices.end(), indices.begin(), indices.end());
  if (size > 0) gradient.own.values.insert(gradient.own.values.end(), bytes, bytes + size);
}

void SparseGradients::clear() {
  for (auto& [param, gradient] : gradients_) gradient.own = {};
}

void SparseGradients::reduce(Comm& group, int divisor) {
  const size_t n = gradients_.size();
  std::vector<uint64_t> mine;
  for (auto& [param, gradient] : gradients_) {
    mine.push_back(gradient.own.indices.size());
    const size_t elements = gradient.own.indices.size() * gradient.row_elements;
    std::byte* const values = gradient.own.values.data();
    if (average_ == DSC_AVERAGE_PRE) multiply(gradient.dtype, values, values, elements, 1.0 / divisor);
    if (average_ == DSC_AVERAGE_PYTORCH) divide(gradient.dtype, values, values, elements, divisor);
  }
  std::vector<uint64_t> all(n * static_cast<size_t>(group.size()));
  Call call = call_of_bytes(OpKind::kAllGather, -1, mine.data(), all.data(), n * sizeof mine[0]);
  call.tag = kCountsTag;
  std::snprintf(call.note, sizeof call.note, "rows of sparse gradients");
  group.run(call);
  size_t number = 0;
  for (auto& [param, gradient] : gradients_) {
    std::vector<uint64_t> counts;
    counts.reserve(static_cast<size_t>(group.size()));
    for (int rank = 0; rank < group.size(); ++rank)
      counts.push_back(all[static_cast<size_t>(rank) * n + number]);
    gather(group, gradient, counts);
    if (coalesce_) coalesce(gradient);
    std::byte* const values = gradient.result.values.data();
    if (average_ == DSC_AVERAGE_POST)
      divide(gradient.dtype, values, values, gradient.result.indices.size() * gradient.row_elements, divisor);
    ++number;
  }
  clear();
}

void SparseGradients::gather(Comm& group, Gradient& gradient, std::span<const uint64_t> counts) const {
  const size_t rows = std::accumulate(counts.begin(), counts.end(), size_t{0});
  gradient.result.indices.resize(rows);
  gradient.result.values.resize(rows * gradient.row_elements * dtype_bytes(gradient.dtype));
  if (rows == 0) return;
  gather_blocks(group, DSC_DTYPE_I64, gradient.own.indices.data(), counts, 1, gradient.result.indices.data());
  gather_blocks(group, gradient.dtype, gradient.own.values.data(), counts, gradient.row_elements,
                gradient.result.values.data());
}

// Adds the rows that have the same index, in rank order. Rows of 8-bit and 16-bit types are added in f32 and
// rounded once for every 64 rows.
void SparseGradients::coalesce(Gradient& gradient) const {
  SparseRows& all = gradient.result;
  const size_t row_bytes = gradient.row_elements * dtype_bytes(gradient.dtype);
  std::vector<size_t> order(all.indices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t k) { return all.indices[k]; });
  SparseRows sums;
  for (size_t at = 0; at < order.size();) {
    const int64_t index = all.indices[order[at]];
    const size_t to = sums.values.size();
    sums.indices.push_back(index);
    sums.values.resize(to + row_bytes);
    void* target = sums.values.data() + to;
    std::vector<const void*> rows;
    rows.reserve(kRowsAtOnce);
    for (; at < order.size() && all.indices[order[at]] == index; ++at) {
      rows.push_back(all.values.data() + order[at] * row_bytes);
      if (rows.size() < kRowsAtOnce) continue;
      dsc::reduce({.dtype = gradient.dtype, .op = DSC_OP_SUM}, rows.data(), static_cast<int>(rows.size()),
                  &target, 1, gradient.row_elements);
      rows.assign(1, target);
    }
    dsc::reduce({.dtype = gradient.dtype, .op = DSC_OP_SUM}, rows.data(), static_cast<int>(rows.size()),
                &target, 1, gradient.row_elements);
  }
  all = std::move(sums);
}

}  // namespace dsc
