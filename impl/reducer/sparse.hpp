// Gradients in which only some rows are nonzero, such as those of embeddings: the rows of all ranks are
// gathered.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "comm/comm.hpp"
#include "gradients/param_list.hpp"

namespace dsc {

// Rows of one gradient. An index can occur several times.
struct SparseRows {
  std::vector<int64_t> indices;
  std::vector<std::byte> values;  // a row for each index
};

// One thread at a time, except for add().
class SparseGradients {
 public:
  // coalesce: results have each index once, in ascending order, with the sum of its rows.
  SparseGradients(const ParamList& params, int32_t average, bool coalesce);

  bool any() const noexcept { return !gradients_.empty(); }
  bool has(size_t param) const { return gradients_.contains(param); }
  // Throws INVALID_ARG if the gradients of a parameter are not of the given kind, sparse or dense.
  void expect(size_t param, bool sparse) const;

  // Throws INVALID_ARG for an index that the parameter does not have.
  void add(size_t param, std::span<const int64_t> indices, const void* values);
  void clear();  // forgets what was added

  // Collective: gathers the rows of all ranks in rank order and averages over `divisor` ranks. Returns the
  // parameters without rows on any rank.
  void reduce(Comm& group, int divisor);
  // The latest result.
  const SparseRows& result(size_t param) const { return gradients_.at(param).result; }

 private:
  struct Gradient {
    SparseRows own;
    SparseRows result;
    int64_t rows = 0;  // of the parameter
    size_t row_elements = 0;
    int32_t dtype = 0;
  };

  void gather(Comm& group, Gradient& gradient, std::span<const uint64_t> counts) const;
  void coalesce(Gradient& gradient) const;

  const ParamList& params_;
  const int32_t average_;
  const bool coalesce_;
  std::map<size_t, Gradient> gradients_;
  Mutex mutex_;  // of add()
};

}  // namespace dsc
