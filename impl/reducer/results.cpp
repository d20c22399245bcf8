// Functions of a reducer for use between iterations: clipping, copies of gradients, and reports.
#include <cstring>

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

double Reducer::clip(const ClipRequest& request) {
  check_clip_request(request, params_);
  check_alive();
  std::vector<void*> copies;
  // If `alone` is true, this rank reads all gradients itself. Under a join, ranks that have run out of
  // batches would not read their share. With some hooks, the ranks have different gradients.
  bool alone = false;
  {
    const MutexLock lock(gradients_.mutex);
    require_idle();
    if (!has_results_)
      fail(DSC_ERR_STATE,
           "there are no gradients to clip, expected a finished iteration whose gradients were reduced");
    alone = !join_.expired() || (runner_.hook() && !runner_.hook()->makes_equal());
    for (size_t i = 0; i < params_.size(); ++i) copies.push_back(gradients_.marks().gradient(i).data);
  }
  return clip_gradients(alone ? nullptr : group_.get(), set(), copies, request);
}

void Reducer::read_gradient(size_t index, void* gradient) const {
  check_index(index);
  if (is_on_device()) fail(DSC_ERR_UNSUPPORTED, "the gradients are in device memory, expected host memory");
  check_alive();
  const MutexLock lock(gradients_.mutex);
  require_idle();
  const GradientSlot& slot = this->slot(index);
  if (!gradient && slot.bytes > 0)
    fail(DSC_ERR_INVALID_ARG, "gradient is NULL, expected %zu bytes", slot.bytes);
  copy_bytes(gradient, slot.view, slot.bytes);
}

const SparseRows& Reducer::sparse_rows(size_t index) const {
  check_index(index);
  sparse_.expect(index, true);
  const MutexLock lock(gradients_.mutex);
  require_idle();
  return sparse_.result(index);
}

ReducerReport Reducer::report(const BucketLayout& layout) const {
  ReducerReport report{};
  report.group = group_.get();
  report.params = &params_;
  report.first_layout = &sets_.first_layout();
  report.layout = &layout;
  report.bucket_bytes = options_.bucket_bytes;
  report.first_bucket_bytes = options_.first_bucket_bytes;
  report.find_unused = options_.find_unused == 1;
  report.static_graph = options_.static_graph == 1;
  report.joined = !join_.expired();
  report.has_buffers = buffers.any();
  report.iterations = iterations_;
  report.rebuilds = sets_.rebuilds();
  if (runner_.hook()) report.hook = runner_.hook()->name();
  const Usage& usage = gradients_.marks().usage();
  report.ready_order.assign(usage.order().begin(), usage.order().end());
  for (size_t i = 0; i < params_.size(); ++i)
    if (iterations_ > 0 && usage.used()[i] == 0) report.unused.push_back(i);
  report.unused_everywhere = unused_;
  report.times = runner_.timeline->read();
  report.phases = phases_;
  if (group_->revoked()) report.failure = group_->failure().text.str();
  return report;
}

std::string Reducer::report_json() const {
  const MutexLock lock(gradients_.mutex);
  // After a failure, a report is possible even inside an iteration, because it contains the cause of the
  // failure.
  if (!group_->revoked()) gradients_.marks().require_idle();
  return to_json(report(sets_.next_layout()));
}

std::string Reducer::picture() const {
  const MutexLock lock(gradients_.mutex);
  require_idle();
  return to_svg(report(sets_.current()->layout));
}

}  // namespace dsc
