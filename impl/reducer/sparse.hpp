// Gradients with only few nonzero rows, such as those of embeddings. Each rank contributes its rows, and all
// ranks gather them.
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
  std::vector<std::byte> values;  // one row per index
};

// Only one thread at a time may use an object, except for add().
class SparseGradients {
 public:
  // If `coalesce` is set, each index occurs once in a result, in ascending order, with the sum of its rows.
  SparseGradients(const ParamList& params, int32_t average, bool coalesce);

  bool any() const noexcept { return !gradients_.empty(); }
  bool has(size_t param) const { return gradients_.contains(param); }
  // Throws INVALID_ARG if the gradients of a parameter are dense although `sparse` is true, or sparse
  // although it is false.
  void expect(size_t param, bool sparse) const;

  // Adds rows to this rank's gradient of a parameter. Throws INVALID_ARG if an index is out of range.
  void add(size_t param, std::span<const int64_t> indices, const void* values);
  void clear();  // discards the rows that were added

  // Collective. Gathers the rows of all ranks in rank order and averages them over `divisor` ranks.
  void reduce(Comm& group, int divisor);
  // Returns the result of the latest reduce().
  const SparseRows& result(size_t param) const { return gradients_.at(param).result; }

 private:
  struct Gradient {
    SparseRows own;
    SparseRows result;
    int64_t rows = 0;  // number of rows of the parameter
    size_t row_elements = 0;
    int32_t dtype = 0;
  };

  void gather(Comm& group, Gradient& gradient, std::span<const uint64_t> counts) const;
  void coalesce(Gradient& gradient) const;

  const ParamList& params_;
  const int32_t average_;
  const bool coalesce_;
  std::map<size_t, Gradient> gradients_;
  Mutex mutex_;  // protects add()
};

}  // namespace dsc
