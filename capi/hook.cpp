#include "dsc/hook.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/fixed_text.hpp"
#include "base/guard.hpp"
#include "checks.hpp"
#include "comm/comm.hpp"
#include "comm/verify.hpp"
#include "give.hpp"
#include "hooks/registry.hpp"
#include "reducer_handle.hpp"

namespace {

using PinnedComm = dsc::Pinned<dsc::Comm>;
using PinnedWork = dsc::Pinned<dsc::Work>;

// A hook that calls a function of the program. It owns a handle of the reducer's group, which the function
// may use.
class CallerHook final : public dsc::BucketHook {
 public:
  CallerHook(dsc_bucket_hook_fn function, void* context, std::string name, std::shared_ptr<dsc::Comm> group)
      : function_(function),
        context_(context),
        name_(std::move(name)),
        comm_(dsc::open_handle<dsc_comm_t>(dsc::HandleKind::kComm, std::move(group))) {}
  ~CallerHook() override {
    // Ignores errors, because the program may have destroyed the handle.
    dsc::capture([&] { PinnedComm(dsc::HandleKind::kComm, comm_).close(); }, [](const dsc::Error&) {});
  }
  CallerHook(const CallerHook&) = delete;
  CallerHook& operator=(const CallerHook&) = delete;

  const std::string& name() const noexcept override { return name_; }

  void prepare(std::span<const dsc::Tensor>) override {}

  std::shared_ptr<dsc::Work> step(const dsc::HookBucket& bucket, int step) override {
    show(bucket, step);
    dsc_work_t* handle = nullptr;
    const int32_t code = function_(context_, &shown_, &handle);
    std::shared_ptr<dsc::Work> work = handle ? take(handle) : nullptr;
    if (code == 0) return work;
    const std::string why = dsc::bounded_text(error_);
    dsc::fail(DSC_ERR_CALLBACK, "hook %s returned %d in step %d of bucket %zu%s%s", name_.c_str(), code, step,
              bucket.index, why.empty() ? "" : ": ", why.c_str());
  }

 private:
  void show(const dsc::HookBucket& bucket, int step) {
    offsets_.clear();
    counts_.clear();
    for (const size_t i : bucket.params) {
      const dsc::GradientSlot& slot = bucket.slots[i];
      offsets_.push_back(static_cast<size_t>(slot.view - bucket.buffer) / dsc::dtype_bytes(slot.dtype));
      counts_.push_back(slot.count);
    }
    shown_ = {.struct_size = sizeof(dsc_bucket_t),
              .comm = comm_,
              .buffer = bucket.buffer,
              .stream = bucket.stream,
              .params = bucket.params.data(),
              .offsets = offsets_.data(),
              .counts = counts_.data(),
              .error = error_,
              .n_params = bucket.params.size(),
              .index = bucket.index,
              .count = bucket.count,
              .error_capacity = sizeof error_,
              .dtype = bucket.dtype,
              .is_last = bucket.is_last ? 1 : 0,
              .divisor = bucket.divisor,
              .step = step};
    error_[0] = '\0';
  }

  static std::shared_ptr<dsc::Work> take(dsc_work_t* handle) {
    PinnedWork pinned(dsc::HandleKind::kWork, handle);
    pinned.close();
    return pinned.share();
  }

  const dsc_bucket_hook_fn function_;
  void* const context_;
  const std::string name_;
  dsc_comm_t* const comm_;
  dsc_bucket_t shown_{};
  char error_[256] = {};
  std::vector<size_t> offsets_, counts_;
};

}  // namespace

dsc_result_t dsc_bucket_reducer_set_hook(dsc_bucket_reducer_t* reducer, dsc_bucket_hook_fn hook,
                                         void* context, const char* name) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->expect_no_join();
    if (!hook) return pinned->set_hook(nullptr);
    pinned->set_hook(std::make_shared<CallerHook>(hook, context, name ? name : "hook", pinned->group()));
  });
}

dsc_result_t dsc_bucket_reducer_use_hook(dsc_bucket_reducer_t* reducer, const char* spec) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->expect_idle();
    pinned->expect_no_join();
    dsc::verify_settings(*pinned->group(), std::vector<dsc::Setting>{{"the hook", spec ? spec : "none"}});
    pinned->set_hook(spec ? dsc::make_hook(spec, *pinned->group()) : nullptr);
  });
}

dsc_result_t dsc_bucket_reducer_save_hook(dsc_bucket_reducer_t* reducer, void* state, size_t capacity,
                                          size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::check_room(static_cast<char*>(state), "state", capacity, needed);
    const std::string saved = pinned->hook().save();
    *needed = saved.size();
    std::copy_n(saved.data(), std::min(saved.size(), capacity), static_cast<char*>(state));
    return dsc::how_given(saved.size(), capacity);
  });
}

dsc_result_t dsc_bucket_reducer_load_hook(dsc_bucket_reducer_t* reducer, const void* state, size_t bytes) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::check_buffer("state", state, bytes);
    pinned->load_hook({static_cast<const std::byte*>(state), bytes});
  });
}

dsc_result_t dsc_bucket_hooks(char* text, size_t capacity, size_t* needed) {
  return dsc::guard_pure(__func__, [&] {
    std::string lines;
    for (const std::string& line : dsc::describe_hooks()) lines += line + "\n";
    return dsc::give_text(lines, text, capacity, needed);
  });
}
