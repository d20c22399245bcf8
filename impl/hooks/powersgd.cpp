// PowerSGD (Vogels, Karimireddy and Jaggi 2019; steps and defaults as in PyTorch's powerSGD_hook). Every
// gradient that is a matrix is approximated by the product of two thin matrices. The ranks sum these matrices
// instead of the gradient.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "compress/error_feedback.hpp"
#include "compress/powersgd.hpp"
#include "dtype/reduce.hpp"
#include "hooks/builtin.hpp"
#include "hooks/state.hpp"
#include "hooks/wire.hpp"

namespace dsc {
namespace {

constexpr std::array kPowerSgdOptions{
    HookOption{"rank", "1", 1, 1024, true, "rank of the low-rank matrices, which is their number of columns"},
    HookOption{"start_iteration", "1000", 0, 1e12, true,
               "number of iterations at the start that are not compressed"},
    HookOption{"min_compression_rate", "2", 0, 1e6, false,
               "a matrix is compressed only if its size decreases by this factor or more"},
    HookOption{"error_feedback", "1", 0, 1, true,
               "1: the error of the approximation is added in the next iteration"},
    HookOption{"warm_start", "1", 0, 1, true, "1: each iteration starts from the previous approximation"},
    HookOption{"epsilon", "0", 0, 1, false, "added to norms when columns are orthogonalized"},
    HookOption{"seed", "0", 0, 9e15, true, "random seed of the first approximation, the same on all ranks"},
};

constexpr size_t kElementsAtOnce = 65536;  // 256 KiB of f32; two such arrays fit into a core's cache

// A gradient of the bucket that is compressed as a matrix.
struct Matrix {
  size_t at;  // index of its first element in the bucket
  size_t rows;
  size_t columns;
  size_t rank;
};

// A gradient that is summed without compression.
struct Rest {
  size_t at;
  size_t count;
};

class PowerSgdHook final : public BucketHook {
 public:
  PowerSgdHook(const HookMaking& making, const HookOptions& options)
      : name_(making.name),
        wire_dtype_(making.wire_dtype == 0 ? DSC_DTYPE_F32 : making.wire_dtype),
        rank_(static_cast<size_t>(options.integer("rank"))),
        start_iteration_(static_cast<uint64_t>(options.integer("start_iteration"))),
        min_rate_(options.number("min_compression_rate")),
        error_feedback_(options.flag("error_feedback")),
        warm_start_(options.flag("warm_start")),
        epsilon_(static_cast<float>(options.number("epsilon"))),
        seed_(static_cast<uint64_t>(options.integer("seed"))) {}

  const std::string& name() const noexcept override { return name_; }

  void prepare(std::span<const Tensor> params) override {
    expect_f32(name_, params);
    buckets_.clear();
  }

  std::shared_ptr<Work> step(const HookBucket& bucket, int step) override;
  std::string save() const override;
  void load(std::span<const std::byte> state, std::span<const HookBucket> buckets) override;

 private:
  struct Bucket {
    uint64_t layout = 0;      // the value of layout_of() for this bucket
    bool compressed = false;  // true if compressed in this iteration
    std::vector<Matrix> matrices;
    std::vector<Rest> rests;
    std::vector<float> error;  // error of the approximation; during a reduction, gradients plus error
    std::vector<float> p;      // P of all matrices, followed by the uncompressed gradients
    std::vector<float> q;
    WireSum sum;
  };

  void set_up(const HookBucket& bucket, Bucket& own) const;
  void start_q(const HookBucket& bucket, Bucket& own) const;
  // Returns the values to approximate: the gradients, plus the error of the previous iteration if error
  // feedback is on.
  const float* input(const HookBucket& bucket, const Bucket& own) const {
    return error_feedback_ ? own.error.data() : elements(bucket);
  }
  std::shared_ptr<Work> send(Bucket& own, const HookBucket& bucket, std::vector<float>& values,
                             const char* what) const;
  std::shared_ptr<Work> multiply_by_q(const HookBucket& bucket, Bucket& own);
  std::shared_ptr<Work> multiply_by_p(const HookBucket& bucket, Bucket& own) const;
  void expand(const HookBucket& bucket, Bucket& own);
  void replace(const HookBucket& bucket, Bucket& own, const Matrix& m, const float* p, const float* q) const;
  static void forget_nonfinite(Bucket& own);
  void end(const HookBucket& bucket);

  static float* elements(const HookBucket& bucket) { return reinterpret_cast<float*>(bucket.buffer); }

  const std::string name_;
  const int32_t wire_dtype_;
  const size_t rank_;
  const uint64_t start_iteration_;
  const double min_rate_;
  const bool error_feedback_;
  const bool warm_start_;
  const float epsilon_;
  const uint64_t seed_;
  uint64_t iteration_ = 0;
  std::vector<Bucket> buckets_;
};

std::shared_ptr<Work> PowerSgdHook::step(const HookBucket& bucket, int step) {
  if (buckets_.size() <= bucket.index) buckets_.resize(bucket.index + 1);
  Bucket& own = buckets_[bucket.index];
  if (own.layout == 0) own.layout = layout_of(bucket);
  if (step == 0) {
    own.compressed = iteration_ >= start_iteration_;
    if (own.compressed) return multiply_by_q(bucket, own);
    own.sum.start({bucket.group, bucket.space, bucket.stream, bucket.elements(), wire_dtype_, bucket.divisor},
                  "powersgd");
    return own.sum.work();
  }
  own.sum.finish();
  if (own.compressed && step == 1) return multiply_by_p(bucket, own);
  if (own.compressed) expand(bucket, own);
  end(bucket);
  return nullptr;
}

void PowerSgdHook::end(const HookBucket& bucket) {
  if (bucket.is_last) ++iteration_;
}

// Finds the matrices of a bucket. As in PyTorch, the first dimension of a gradient gives the rows, and all
// other dimensions together give the columns.
void PowerSgdHook::set_up(const HookBucket& bucket, Bucket& own) const {
  size_t p = 0;
  size_t q = 0;
  size_t at = 0;
  for (const size_t i : bucket.params) {
    const Tensor& param = bucket.tensors[i];
    at = static_cast<size_t>(bucket.slots[i].view - bucket.buffer) / sizeof(float);
    const size_t rows = param.shape.empty() ? param.count : static_cast<size_t>(param.shape[0]);
    const size_t columns = rows == 0 ? 0 : param.count / rows;
    const size_t rank = std::min({rank_, rows, columns});
    if (param.shape.size() > 1 && is_worth_compressing(rows, columns, rank, min_rate_)) {
      own.matrices.push_back({at, rows, columns, rank});
      p += rows * rank;
      q += columns * rank;
    } else {
      own.rests.push_back({at, param.count});
      p += param.count;
    }
  }
  own.p.resize(p);
  if (own.q.empty()) own.q.resize(q);
  if (error_feedback_ && own.error.empty()) own.error.resize(bucket.count);
  if (own.q.size() != q || (error_feedback_ && own.error.size() != bucket.count))
    fail(DSC_ERR_INVALID_ARG,
         "the loaded state of hook %s does not fit bucket %zu: it was saved with other parameters or other "
         "buckets",
         name_.c_str(), bucket.index);
}

// Sets Q to orthogonal columns. The columns start from random numbers in three cases: without a warm start,
// in the first iteration, and for a matrix whose gradient was zero, because Q would otherwise stay zero
// forever. All ranks draw the same random numbers.
void PowerSgdHook::start_q(const HookBucket& bucket, Bucket& own) const {
  const auto is_zero = [](float value) { return value == 0; };
  std::vector<float> random;
  std::span<float> rest = own.q;
  for (const Matrix& matrix : own.matrices) {
    const auto q = rest.first(matrix.columns * matrix.rank);
    if (!warm_start_ || std::ranges::all_of(q, is_zero)) {
      if (random.empty()) {
        random.resize(own.q.size());
        fill_normal(seed_ + iteration_ * 1'000'003 + bucket.index, random);
      }
      std::copy_n(random.data() + (own.q.size() - rest.size()), q.size(), q.data());
    }
    orthogonalise(q.data(), matrix.columns, matrix.rank, epsilon_);
    rest = rest.subspan(q.size());
  }
}

std::shared_ptr<Work> PowerSgdHook::send(Bucket& own, const HookBucket& bucket, std::vector<float>& values,
                                         const char* what) const {
  char note[40];
  std::snprintf(note, sizeof note, "bucket %zu, powersgd %s", bucket.index, what);
  own.sum.start({bucket.group,
                 bucket.space,
                 bucket.stream,
                 {values.data(), values.size(), DSC_DTYPE_F32},
                 wire_dtype_,
                 1},
                note);
  return own.sum.work();
}

std::shared_ptr<Work> PowerSgdHook::multiply_by_q(const HookBucket& bucket, Bucket& own) {
  if (own.matrices.empty() && own.rests.empty()) set_up(bucket, own);
  if (error_feedback_) add(DSC_DTYPE_F32, own.error.data(), bucket.buffer, bucket.count);
  start_q(bucket, own);
  float* p = own.p.data();
  const float* q = own.q.data();
  for (const Matrix& m : own.matrices) {
    multiply(input(bucket, own) + m.at, q, p, m.rows, m.columns, m.rank);
    p += m.rows * m.rank;
    q += m.columns * m.rank;
  }
  for (const Rest& rest : own.rests) p = std::copy_n(input(bucket, own) + rest.at, rest.count, p);
  return send(own, bucket, own.p, "P");
}

std::shared_ptr<Work> PowerSgdHook::multiply_by_p(const HookBucket& bucket, Bucket& own) const {
  float* p = own.p.data();
  float* q = own.q.data();
  for (const Matrix& m : own.matrices) {
    orthogonalise(p, m.rows, m.rank, epsilon_);
    multiply_transposed(input(bucket, own) + m.at, p, q, m.rows, m.columns, m.rank);
    p += m.rows * m.rank;
    q += m.columns * m.rank;
  }
  return send(own, bucket, own.q, "Q");
}

void PowerSgdHook::expand(const HookBucket& bucket, Bucket& own) {
  divide(DSC_DTYPE_F32, own.q.data(), own.q.data(), own.q.size(), bucket.divisor);
  const float* p = own.p.data();
  const float* q = own.q.data();
  for (const Matrix& m : own.matrices) {
    replace(bucket, own, m, p, q);
    p += m.rows * m.rank;
    q += m.columns * m.rank;
  }
  for (const Rest& rest : own.rests) {
    divide(DSC_DTYPE_F32, elements(bucket) + rest.at, p, rest.count, bucket.divisor);
    if (error_feedback_) keep_error(own.error.data() + rest.at, elements(bucket) + rest.at, rest.count);
    p += rest.count;
  }
  forget_nonfinite(own);
}

// Writes the approximation a few rows at a time. They are then still in the cache when the error is computed.
void PowerSgdHook::replace(const HookBucket& bucket, Bucket& own, const Matrix& m, const float* p,
                           const float* q) const {
  const size_t rows_at_once = std::max<size_t>(4, kElementsAtOnce / m.columns);
  for (size_t row = 0; row < m.rows; row += rows_at_once) {
    const size_t rows = std::min(rows_at_once, m.rows - row);
    const size_t at = m.at + row * m.columns;
    approximate(p + row * m.rank, q, elements(bucket) + at, rows, m.columns, m.rank);
    if (error_feedback_) keep_error(own.error.data() + at, elements(bucket) + at, rows * m.columns);
  }
}

// Resets an approximation with a NaN or infinity, because it would make all later ones useless. All ranks
// have the same Q, so they all do this.
void PowerSgdHook::forget_nonfinite(Bucket& own) {
  if (!std::ranges::all_of(own.q, [](float value) { return std::isfinite(value); }))
    std::ranges::fill(own.q, 0.0F);
}

std::string PowerSgdHook::save() const {
  StateWriter writer(name_);
  writer.number(iteration_);
  writer.number(buckets_.size());
  for (const Bucket& bucket : buckets_) {
    writer.number(bucket.layout);
    writer.floats(bucket.error);
    writer.floats(bucket.q);
  }
  return writer.take();
}

void PowerSgdHook::load(std::span<const std::byte> state, std::span<const HookBucket> buckets) {
  StateReader reader(state, name_);
  const uint64_t iteration = reader.number();
  std::vector<Bucket> loaded(reader.items());
  for (Bucket& bucket : loaded) {
    bucket.layout = reader.number();
    bucket.error = reader.floats();
    bucket.q = reader.floats();
  }
  reader.end();
  expect_buckets(name_, loaded.size(), buckets.size());
  for (size_t b = 0; b < loaded.size(); ++b) expect_layout(name_, loaded[b].layout, buckets[b]);
  for (size_t b = 0; b < loaded.size(); ++b)
    if (!loaded[b].error.empty() || !loaded[b].q.empty()) set_up(buckets[b], loaded[b]);
  iteration_ = iteration;
  buckets_ = std::move(loaded);
}

}  // namespace

std::span<const HookOption> powersgd_options() { return kPowerSgdOptions; }

std::shared_ptr<BucketHook> make_powersgd_hook(const HookMaking& making, const HookOptions& options) {
  return std::make_shared<PowerSgdHook>(making, options);
}

}  // namespace dsc
