// Post-local SGD (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", 2018; PyTorch's
// post_localSGD_hook). After some iterations, gradients are averaged only within a host, or not at all. The
// caller then has to average the parameters from time to time.
#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "hooks/builtin.hpp"
#include "hooks/state.hpp"
#include "hooks/wire.hpp"

namespace dsc {
namespace {

constexpr std::array kLocalSgdOptions{
    HookOption{"start_iteration", nullptr, 0, 1e12, true,
               "iterations that are averaged over all ranks first"},
    HookOption{"within_host", "1", 0, 1, true,
               "afterwards 1: the mean of the ranks of each host, 0: of none"},
};

// Collective. Returns a group of the ranks on this host. Its color is the lowest of these ranks.
std::shared_ptr<Comm> split_by_host(Comm& group) {
  return group.split(std::ranges::min(group.local_ranks()), group.rank(), {"host", 0});
}

class LocalSgdHook final : public BucketHook {
 public:
  LocalSgdHook(const HookMaking& making, const HookOptions& options)
      : name_(making.name),
        wire_dtype_(making.wire_dtype == 0 ? DSC_DTYPE_F32 : making.wire_dtype),
        start_iteration_(static_cast<uint64_t>(options.integer("start_iteration"))),
        host_(options.flag("within_host") ? split_by_host(making.group) : nullptr) {}

  const std::string& name() const noexcept override { return name_; }

  void prepare(std::span<const Tensor> params) override {
    expect_f32(name_, params);
    sums_.clear();
  }

  std::shared_ptr<Work> step(const HookBucket& bucket, int step) override {
    if (sums_.size() <= bucket.index) sums_.resize(bucket.index + 1);
    if (step > 0) sums_[bucket.index].finish();
    const bool is_local = iteration_ >= start_iteration_;
    if (step > 0 || (is_local && !host_)) {
      if (bucket.is_last) ++iteration_;
      return nullptr;
    }
    Comm& group = is_local ? *host_ : bucket.group;
    sums_[bucket.index].start({group, bucket.space, bucket.stream, bucket.elements(), wire_dtype_,
                               is_local ? host_->size() : bucket.divisor},
                              "local_sgd");
    return sums_[bucket.index].work();
  }

  void abort() noexcept override {
    if (host_) host_->abort();
  }

  bool makes_equal() const noexcept override { return iteration_ <= start_iteration_; }

  std::string save() const override {
    StateWriter writer(name_);
    writer.number(iteration_);
    return writer.take();
  }

  void load(std::span<const std::byte> state, std::span<const HookBucket>) override {
    StateReader reader(state, name_);
    const uint64_t iteration = reader.number();
    reader.end();
    iteration_ = iteration;
  }

 private:
  const std::string name_;
  const int32_t wire_dtype_;
  const uint64_t start_iteration_;
  const std::shared_ptr<Comm> host_;  // null if gradients are not averaged within a host
  uint64_t iteration_ = 0;
  std::vector<WireSum> sums_;
};

}  // namespace

std::span<const HookOption> local_sgd_options() { return kLocalSgdOptions; }

std::shared_ptr<BucketHook> make_local_sgd_hook(const HookMaking& making, const HookOptions& options) {
  return std::make_shared<LocalSgdHook>(making, options);
}

}  // namespace dsc
