#include "gradients/usage.hpp"

#include <algorithm>
#include <cstdio>

namespace dsc {

Usage::Usage(size_t params, bool static_graph)
    : static_graph_(static_graph), marks_(params), expected_(params, 1), used_(params) {
  order_.reserve(params);
}

void Usage::begin() {
  std::ranges::fill(marks_, 0);
  std::ranges::fill(used_, 0);
  order_.clear();
  empty_.clear();
}

bool Usage::count_mark(size_t index) {
  ++marks_[index];
  if (!is_counting()) return marks_[index] == expected_[index];
  if (marks_[index] == 1) order_.push_back(index);
  return false;
}

void Usage::take_back(size_t index) {
  --marks_[index];
  if (is_counting() && marks_[index] == 0) std::erase(order_, index);
}

// While marks are only counted, gradients are taken later. The order is then the order of the first marks,
// which count_mark() records.
void Usage::note_ready(size_t index, bool used) {
  if (!used) empty_.push_back(index);
  if (used && !is_counting()) order_.push_back(index);
  used_[index] = used ? 1 : 0;
}

void Usage::forget_ready(size_t index) {
  std::erase(order_, index);
  std::erase(empty_, index);
  used_[index] = 0;
}

std::vector<size_t> Usage::ready_order() const {
  std::vector<size_t> all = order_;
  all.insert(all.end(), empty_.begin(), empty_.end());
  return all;
}

void Usage::end() {
  if (!is_counting()) return;
  expected_ = marks_;
  counted_ = true;
}

std::vector<size_t> find_unused(Comm& group, std::vector<int32_t> used) {
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_I32;
  call.op = DSC_OP_MAX;
  call.send = used.data();
  call.recv = used.data();
  call.count = used.size();
  std::snprintf(call.note, sizeof call.note, "used parameters");
  group.run(call);
  std::vector<size_t> unused;
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i] == 0) unused.push_back(i);
  return unused;
}

}  // namespace dsc
