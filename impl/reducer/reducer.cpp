#include "reducer/reducer.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/joined.hpp"
#include "base/log.hpp"
#include "comm/verify.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "tensor_list/coalesced.hpp"

namespace dsc {
namespace {

constexpr int kWaitIdleMs = 2000;

bool on_device(std::span<const Tensor> params) { return !params.empty() && params[0].device >= 0; }

// Returns the settings that must be equal on all ranks. Differences are reported in this order.
std::vector<Setting> settings(const ReducerOptions& options, std::span<const Tensor> params,
                              const std::optional<TensorProblem>& problem) {
  const size_t buckets = options.bucket_starts.empty() ? 0 : options.bucket_starts.size() - 1;
  std::vector<Setting> list{
      {"bucket_bytes", std::to_string(options.bucket_bytes)},
      {"first_bucket_bytes", std::to_string(options.first_bucket_bytes)},
      {"average", std::to_string(options.average)},
      {"sync", std::to_string(options.sync)},
      {"single_first_bucket", std::to_string(options.single_first_bucket)},
      {"find_unused", std::to_string(options.find_unused)},
      {"static_graph", std::to_string(options.static_graph)},
      {"rebuild", std::to_string(options.rebuild)},
      {"small_bucket_first", std::to_string(options.small_bucket_first)},
      {"grad_dtype", std::to_string(options.grad_dtype)},
      {"keep_sparse_rows", std::to_string(options.keep_sparse_rows)},
      {"the memory of the parameters", on_device(params) ? "device memory" : "host memory"},
      {"the first unusable parameter", problem ? problem->text : "none"},
      {"n_buckets", std::to_string(buckets)}};
  for (size_t b = 0; b < buckets; ++b) {
    const size_t start = options.bucket_starts[b];
    const std::span params_of(options.bucket_indices + start, options.bucket_starts[b + 1] - start);
    list.push_back({"bucket " + std::to_string(b), joined(params_of, " ")});
  }
  return list;
}

void check_flag(int32_t value, const char* name) {
  if (value != 0 && value != 1) fail(DSC_ERR_INVALID_ARG, "options->%s is %d, expected 0 or 1", name, value);
}

bool is_small_float(int32_t dtype) { return is_floating(dtype) && dtype_bytes(dtype) < sizeof(float); }

// Checks grad_dtype. Gradients can be kept in another type than that of their parameter if one of the two
// types is f32 and the other has fewer bits.
void check_grad_dtype(int32_t grad_dtype, int32_t dtype, const std::string& who) {
  if (grad_dtype == dtype || (grad_dtype == DSC_DTYPE_F32 && is_small_float(dtype)) ||
      (dtype == DSC_DTYPE_F32 && is_small_float(grad_dtype)))
    return;
  fail(DSC_ERR_UNSUPPORTED,
       "%s: gradients of %s cannot be kept as options->grad_dtype %s: one of the two must be f32, the other "
       "f16, bf16, f8e4m3 or f8e5m2",
       who.c_str(), dtype_name(dtype), dtype_name(grad_dtype));
}

void check_param(const ReducerOptions& options, const Tensor& param, const std::string& who) {
  const int32_t dtype = options.grad_dtype == 0 ? param.dtype : options.grad_dtype;
  if (param.expect_sparse == 1 && param.shape.empty())
    fail(DSC_ERR_INVALID_ARG,
         "%s expects sparse gradients, but has no shape; expected a shape, which gives the number of rows",
         who.c_str());
  if (param.expect_sparse == 1 && param.device >= 0)
    fail(DSC_ERR_UNSUPPORTED, "%s is on device %d, expected host memory for sparse gradients", who.c_str(),
         param.device);
  if (param.expect_sparse == 1 && dtype != param.dtype)
    fail(DSC_ERR_UNSUPPORTED,
         "%s has sparse gradients of %s, which cannot be kept as options->grad_dtype %s; expected the same "
         "type or 0",
         who.c_str(), dtype_name(param.dtype), dtype_name(dtype));
  if (options.grad_dtype != 0) check_grad_dtype(options.grad_dtype, param.dtype, who);
  // Unless `average` is "none", the type must support averages even if the ranks only compute sums, because
  // the reducer then multiplies or divides.
  const int32_t op = options.average == DSC_AVERAGE_NONE ? DSC_OP_SUM : DSC_OP_AVG;
  if (const char* reason = op_unsupported_reason(op, dtype))
    fail(DSC_ERR_UNSUPPORTED, "%s: %s of %s is not supported: %s", who.c_str(), op_name(op),
         dtype_name(dtype), reason);
}

void check_options(const ReducerOptions& options, std::span<const Tensor> params) {
  if (params.empty()) fail(DSC_ERR_INVALID_ARG, "n_params is 0, expected 1 or more");
  if (options.average < DSC_AVERAGE_PRE || options.average > DSC_AVERAGE_PYTORCH)
    fail(DSC_ERR_INVALID_ARG, "options->average is %d, expected 1 (pre), 2 (post), 3 (none) or 4 (pytorch)",
         options.average);
  if (options.rebuild < DSC_REBUILD_NEVER || options.rebuild > DSC_REBUILD_REPEATED)
    fail(DSC_ERR_INVALID_ARG, "options->rebuild is %d, expected 1 (never), 2 (once) or 3 (repeated)",
         options.rebuild);
  check_flag(options.sync, "sync");
  check_flag(options.single_first_bucket, "single_first_bucket");
  check_flag(options.find_unused, "find_unused");
  check_flag(options.static_graph, "static_graph");
  check_flag(options.small_bucket_first, "small_bucket_first");
  check_flag(options.keep_sparse_rows, "keep_sparse_rows");
  if (options.grad_dtype != 0 && !is_dtype(options.grad_dtype))
    fail(DSC_ERR_INVALID_ARG,
         "options->grad_dtype is %d, expected 1 (i8) to 13 (bool), or 0 for that of the parameters",
         options.grad_dtype);
  for (size_t i = 0; i < params.size(); ++i) check_param(options, params[i], label(params[i].name, i));
}

BucketLayoutOptions layout_options(const ReducerOptions& options, bool device) {
  BucketLayoutOptions result;
  result.part_alignment = part_alignment(device);
  result.bucket_bytes = options.bucket_bytes;
  result.first_bucket_bytes = options.first_bucket_bytes;
  result.single_first_bucket = options.single_first_bucket == 1;
  result.starts = options.bucket_starts;
  if (!options.bucket_starts.empty()) result.indices = {options.bucket_indices, options.bucket_starts.back()};
  return result;
}

Rebuilder rebuilder(const ReducerOptions& options) {
  const RebuildOptions how{options.rebuild, options.bucket_bytes, options.first_bucket_bytes,
                           options.small_bucket_first == 1};
  return {how, options.bucket_starts.empty() && (options.find_unused == 0 || options.static_graph == 1)};
}

// Removes the caller's lists of buckets, because they are valid only during the call.
ReducerOptions kept(ReducerOptions options) {
  options.bucket_indices = nullptr;
  options.bucket_starts = {};
  return options;
}

}  // namespace

std::shared_ptr<Reducer> Reducer::create(Comm& comm, std::span<const Tensor> params,
                                         const ReducerOptions& options) {
  check_starts(options.bucket_starts);
  verify_params(comm, params);
  const auto problem = first_problem(comm, params, options.sync != 0);
  verify_settings(comm, settings(options, params, problem));
  // Parameters and settings are equal on all ranks from here on, so all ranks throw the same errors.
  if (problem) fail(problem->code, "%s", problem->text.c_str());
  check_options(options, params);
  const ParamList list(params, options.grad_dtype);
  static_cast<void>(make_bucket_layout(list.tensors, layout_options(options, on_device(params))));
  const auto group = comm.split(0, comm.rank(), {"reducer", 0});
  group->share_nonfinite(comm);
  auto reducer = std::make_shared<Reducer>(group, params, options);
  if (options.sync == 1) broadcast_coalesced(*group, params, 0, 0);
  return reducer;
}

Reducer::Reducer(std::shared_ptr<Comm> group, std::span<const Tensor> params, const ReducerOptions& options)
    : group_(std::move(group)),
      params_(params, options.grad_dtype),
      options_(kept(options)),
      sets_(std::make_shared<BucketSet>(
                *group_, params_,
                make_bucket_layout(params_.tensors, layout_options(options, on_device(params))),
                options.average),
            rebuilder(options)),
      runner_(*group_, params_),
      sparse_(params_, options.average, options.keep_sparse_rows == 0),
      gradients_(params_, options.static_graph == 1),
      intake_(gradients_, runner_, [this] { launch_ready(true); }) {
  const MutexLock lock(gradients_.mutex);
  use_current_buckets();
}

Reducer::~Reducer() {
  close();
  const Deadline deadline = Deadline::after_ms(kWaitIdleMs);
  const bool idle = runner_.wait_idle(deadline);
  const auto set = current_set();
  if (set->storage->wait_idle(deadline) && idle) return;
  runner_.keep_hook();
  // The engine may still write to the buckets. Leaking their memory is better than freeing it.
  log(DSC_LOG_LEVEL_WARN,
      "%s: %zu bytes of gradient buckets are not freed, because reductions did not end within %d ms",
      group_->name().c_str(), set->layout.bytes, kWaitIdleMs);
  set->storage->keep();
}

void Reducer::expect_idle() const {
  check_alive();
  const MutexLock lock(gradients_.mutex);
  require_idle();
}

// A reducer that has failed inside an iteration never becomes idle. Its failure is reported instead.
void Reducer::require_idle() const {
  if (!gradients_.marks().is_idle()) check_alive();
  gradients_.marks().require_idle();
}

void Reducer::set_sync(bool sync) {
  const MutexLock lock(gradients_.mutex);
  require_idle();
  sync_ = sync;
}

void Reducer::set_hook(std::shared_ptr<BucketHook> hook) {
  const MutexLock lock(gradients_.mutex);
  require_idle();
  runner_.set_hook(std::move(hook));
}

BucketHook& Reducer::hook() {
  const MutexLock lock(gradients_.mutex);
  require_idle();
  if (!runner_.hook()) fail(DSC_ERR_STATE, "the reducer has no hook");
  return *runner_.hook();
}

void Reducer::begin(void* stream) {
  check_alive();
  current_set()->storage->check(nullptr, stream, {});
  gradients_.expect_finished(group_->rank());
  runner_.expect_capturable(current_set()->storage->space(), stream);
  const auto participants = announce(JoinStep::kIteration);
  begin_iteration(stream, participants ? participants->divisor : group_->size(), false);
}

// Waits until the device no longer uses the buckets that are about to be replaced. They will be freed, and
// the new buckets are not ordered after their stream. The lock is not held meanwhile, because close() in
// another thread must be able to interrupt the wait.
void Reducer::await_replaced_buckets() const {
  const auto set = current_set();
  if (!sets_.has_next() || set->storage->wait_idle(Deadline::after_ms(group_->timeout_ms()))) return;
  check_alive();
  fail(DSC_ERR_TIMEOUT, "the previous iteration did not finish on the device of rank %d within %d ms",
       group_->rank(), group_->timeout_ms());
}

void Reducer::use_current_buckets() {
  BucketSet& set = *sets_.current();
  intake_.use(set);
  gradients_.set_buckets({set.storage->arena(), set.layout.bytes});
}

// `shadows` is set on a rank that has run out of batches. Its iteration takes part in the reductions of the
// other ranks, even after set_sync(false).
void Reducer::begin_iteration(void* stream, int divisor, bool shadows) {
  await_replaced_buckets();
  const MutexLock lock(gradients_.mutex);
  gradients_.marks().require_idle();
  sets_.advance();
  use_current_buckets();
  storage().begin(stream);  // comes before all other changes, because it may throw
  gradients_.begin(!sync_ && !shadows);
  if (!gradients_.marks().carries()) sparse_.clear();
  divisor_ = divisor;
  has_results_ = false;
  runner_.begin(set(), divisor);
}

// The failure is checked after the wait. A communicator that fails first records the failure and then
// unblocks its streams, so a failure that ended the wait is already known.
bool Reducer::synchronize(Deadline deadline) {
  const bool over = current_set()->storage->wait_idle(deadline);
  check_alive();
  return over;
}

std::shared_ptr<BucketSet> Reducer::current_set() const {
  const MutexLock lock(gradients_.mutex);
  return sets_.current();
}

void* Reducer::grad_view(size_t index) {
  check_index(index);
  sparse_.expect(index, false);
  const MutexLock lock(gradients_.mutex);
  return sets_.view(index);
}

BucketPlan Reducer::plan() const { return current_set()->layout.plan; }

std::vector<size_t> Reducer::unused() const {
  const MutexLock lock(gradients_.mutex);
  return unused_;
}

void Reducer::close() noexcept {
  if (closed_.load()) return;
  bool idle = false;
  bool finishing = false;
  std::shared_ptr<JoinGate> gate;
  {
    const MutexLock lock(gradients_.mutex);
    idle = gradients_.marks().is_idle();
    finishing = gradients_.marks().is_finishing();
    gate = join_.lock();
  }
  if (gate) gate->interrupt();
  const auto set = current_set();
  // On a device, iterations may still be running after finish().
  if (idle)
    set->storage->wait_idle(Deadline::after_ms(group_->revoked() ? kWaitIdleMs : group_->timeout_ms()));
  // A thread that starts an operation may be waiting for other ranks while it holds the runner's lock. Only
  // abort() can end this wait.
  if (finishing || runner_.is_starting()) abort();
  if (closed_.exchange(true)) return;
  if (group_->revoked() && is_on_device() && !reported_.exchange(true))
    log(DSC_LOG_LEVEL_WARN, "%s was closed before any call reported its failure: %s", group_->name().c_str(),
        group_->failure().text.c_str());
  if (finishing || runner_.is_running()) {
    abort();
  } else {
    group_->leave();
  }
}

void Reducer::abort() noexcept {
  group_->abort();
  const auto hook = [&] {
    const MutexLock lock(gradients_.mutex);
    return runner_.hook();
  }();
  if (hook) hook->abort();
}

void Reducer::load_hook(std::span<const std::byte> state) {
  hook();
  BucketSet& next = [&]() -> BucketSet& {
    const MutexLock lock(gradients_.mutex);
    return sets_.next();
  }();
  runner_.load_hook(next, state);
}

// Throws if the group has failed. The first call that detects a failure of the whole group throws that
// failure; later calls throw REVOKED.
void Reducer::check_alive() const {
  runner_.refuse_inside_hook();
  if (!group_->revoked()) return;
  const Failure failure = group_->failure();
  const bool is_shared = is_on_device() || is_group_fatal(failure.code);
  if (is_shared && !reported_.exchange(true)) throw Error(failure);
  fail_because_of(failure, DSC_ERR_REVOKED, "the reducer was revoked: %s", failure.text.c_str());
}

void Reducer::check_index(size_t index) const {
  if (index >= params_.size())
    fail(DSC_ERR_INVALID_ARG, "index is %zu, expected 0 to %zu, the index of a parameter", index,
         params_.size() - 1);
}

}  // namespace dsc
