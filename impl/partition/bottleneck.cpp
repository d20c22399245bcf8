// Finds the partition whose sorted list of part weights, heaviest first, is lexicographically smallest. If
// several partitions have the same list, it finds the one with the latest boundaries. Boundaries are compared
// from the last to the first.
//
// The method is dynamic programming over parts and layers. It is exact: adding the same weight to two sorted
// lists does not change which one is smaller, so the beginning of a best partition is a best partition of
// fewer layers.
//
// If all parts have the same limit, the best start of the last part never moves back when a layer is added.
// Starts that are too late can also be skipped: from some start on, the earlier parts alone are worse than
// the best list. Therefore each entry needs few comparisons of lists with at most `parts` numbers.
#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "partition/partition.hpp"

namespace dsc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A sorted list of part weights, heaviest first, and one more weight that is not sorted in yet.
struct Candidate {
  const double* sorted;
  double extra;
};

// Iterates over all weights of a candidate in sorted order, heaviest first.
class Merged {
 public:
  explicit Merged(const Candidate& candidate, size_t size)
      : next_(candidate.sorted), end_(candidate.sorted + size), extra_(candidate.extra) {}

  double take() {
    if (pending_ && (next_ == end_ || extra_ >= *next_)) {
      pending_ = false;
      return extra_;
    }
    return *next_++;
  }

 private:
  const double* next_;
  const double* end_;
  double extra_;
  bool pending_ = true;
};

// Returns a negative value if `a` is the better list. `size` does not count the extra weights.
int compare(const Candidate& a, const Candidate& b, size_t size) {
  Merged left(a, size);
  Merged right(b, size);
  for (size_t n = 0; n <= size; ++n) {
    const double x = left.take();
    const double y = right.take();
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

// Returns true if the sorted list alone is already worse than the candidate, without another part.
bool hopeless(const double* sorted, const Candidate& best, size_t size) {
  Merged list(best, size);
  for (size_t n = 0; n < size; ++n) {
    const double x = list.take();
    if (sorted[n] != x) return sorted[n] > x;
  }
  return false;
}

// One run of the dynamic program.
class Search {
 public:
  explicit Search(const PartitionRequest& request)
      : request_(request),
        n_(request.layers),
        parts_(request.parts),
        one_limit_(std::ranges::adjacent_find(request.limits, std::ranges::not_equal_to()) ==
                   request.limits.end()),
        sums_(n_ + 1, 0.0),
        bytes_(request.bytes.empty() ? 0 : n_ + 1, 0),
        before_((n_ + 1) * parts_, kInfinity),
        after_((n_ + 1) * parts_, kInfinity),
        from_((n_ + 1) * parts_) {
    for (size_t i = 0; i < n_; ++i) {
      sums_[i + 1] = sums_[i] + request.weights[i];
      if (!bytes_.empty()) bytes_[i + 1] = bytes_[i] + request.bytes[i];
    }
  }

  // Fills one row of the table per part. Then follows the recorded starts from the last part back to the
  // first.
  Boundaries run() {
    first_part();
    for (size_t part = 1; part < parts_; ++part) {
      std::swap(before_, after_);
      size_t start = part;
      for (size_t i = part + 1; i <= last_layer(part); ++i) {
        if (one_limit_)
          start = scan_on(part, start, i);
        else
          scan_back(part, i);
      }
    }
    if (!possible(after_, n_)) explain_limits(request_);
    Boundaries result(parts_ + 1, n_);
    for (size_t part = parts_; part > 0; --part)
      result[part - 1] = from_[(part - 1) * (n_ + 1) + result[part]];
    return result;
  }

 private:
  // Returns the last possible end of `part`. Each later part needs at least one layer.
  size_t last_layer(size_t part) const { return n_ - (parts_ - 1 - part); }
  const double* row(const std::vector<double>& rows, size_t i) const { return rows.data() + i * parts_; }
  bool possible(const std::vector<double>& rows, size_t i) const { return *row(rows, i) < kInfinity; }
  Candidate candidate(size_t start, size_t end) const {
    return {row(before_, start), sums_[end] - sums_[start]};
  }

  bool fits(size_t part, size_t start, size_t end) const {
    if (bytes_.empty()) return true;
    const uint64_t limit = request_.limits.size() == 1 ? request_.limits[0] : request_.limits[part];
    return bytes_[end] - bytes_[start] <= limit;
  }

  void first_part() {
    for (size_t i = 1; i <= last_layer(0); ++i)
      if (fits(0, 0, i)) after_[i * parts_] = sums_[i];
  }

  // Records the best partition of the first `end` layers. Its last part starts at layer `start`.
  void keep(size_t part, size_t start, size_t end) {
    Merged list(candidate(start, end), part);
    double* target = after_.data() + end * parts_;
    for (size_t n = 0; n <= part; ++n) target[n] = list.take();
    from_[part * (n_ + 1) + end] = static_cast<uint32_t>(start);
  }

  // Searches forward from the best start that was found for one layer less. Returns the best start.
  size_t scan_on(size_t part, size_t start, size_t end) {
    while (start < end && !fits(part, start, end)) ++start;
    if (start == end || !possible(before_, start)) return refuse(start, end);
    size_t best = start;
    for (size_t k = start + 1; k < end && possible(before_, k); ++k) {
      if (compare(candidate(k, end), candidate(best, end), part) <= 0)
        best = k;
      else if (hopeless(row(before_, k), candidate(best, end), part))
        break;
    }
    keep(part, best, end);
    return best;
  }

  // Tries all starts, beginning with the last one. Stops when the last part alone is heavier than the best
  // partition.
  void scan_back(size_t part, size_t end) {
    size_t best = end;
    double heaviest = kInfinity;
    for (size_t k = end; k-- > part && fits(part, k, end) && sums_[end] - sums_[k] <= heaviest;) {
      if (!possible(before_, k)) continue;
      if (best < end && compare(candidate(k, end), candidate(best, end), part) >= 0) continue;
      best = k;
      heaviest = std::max(*row(before_, k), sums_[end] - sums_[k]);
    }
    if (best == end)
      refuse(end, end);
    else
      keep(part, best, end);
  }

  size_t refuse(size_t start, size_t end) {
    after_[end * parts_] = kInfinity;
    return std::min(start, end - 1);
  }

  const PartitionRequest& request_;
  const size_t n_;
  const size_t parts_;
  const bool one_limit_;
  std::vector<double> sums_;     // sum of the weights before each layer
  std::vector<uint64_t> bytes_;  // empty if there are no limits
  // For each number of layers: the weights of the parts so far, heaviest first; infinity if there is no valid
  // partition.
  std::vector<double> before_;
  std::vector<double> after_;   // the same with one more part
  std::vector<uint32_t> from_;  // start of the last part, by part and number of layers
};

}  // namespace

Boundaries partition_bottleneck(const PartitionRequest& request) { return Search(request).run(); }

}  // namespace dsc
