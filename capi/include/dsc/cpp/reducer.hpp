// Reduces gradients in buckets while the backward pass computes them.
#ifndef DSC_CPP_REDUCER_HPP
#define DSC_CPP_REDUCER_HPP

#include <cstddef>
#include <cstdint>
#include <dsc/cpp/bucket.hpp>
#include <dsc/cpp/tensor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

// One iteration is begin(), mark_ready() or mark_unused() for every parameter, from any thread, and finish().
// `stream` is for memory of a GPU. Views are valid until the reducer is destroyed.
class bucket_reducer {
 public:
  // Collective. Verifies that the parameters agree on all ranks and copies rank 0's values to all.
  bucket_reducer(const comm_view& comm, const tensors& params, const reducer_options& options = {})
      : params_(params, options.grad_dtype),
        handle_(detail::query<dsc_bucket_reducer_t*>(dsc_bucket_reducer_create, comm.get(), params.data(),
                                                     params.size(), &options)) {}

  dsc_bucket_reducer_t* get() const noexcept { return handle_.get(); }
  std::size_t n_params() const noexcept { return params_.size(); }

  void begin(void* stream = nullptr) { expect(dsc_bucket_reducer_begin(get(), stream)); }

  // The gradient is in the parameter's view.
  void mark_ready(std::size_t index, void* stream = nullptr) const {
    expect(dsc_bucket_reducer_mark_ready(get(), index, nullptr, stream));
  }

  // The gradient is in memory of the program, which must stay valid until finish() has written the result to
  // it.
  template <class Buffer, detail::if_buffer<Buffer> = 0>
  void mark_ready(std::size_t index, Buffer&& gradient, void* stream = nullptr) const {
    const auto elements = detail::writable_view(std::forward<Buffer>(gradient));
    params_.expect_gradient("mark_ready", index, elements, false);
    expect(dsc_bucket_reducer_mark_ready(get(), index, elements.data(), stream));
  }

  // A pointer to elements would be taken for a stream; pass a span.
  template <class Pointer, detail::if_pointer_to_elements<Pointer> = 0>
  void mark_ready(std::size_t index, Pointer&& gradient, void* stream = nullptr) const = delete;

  // This rank has no gradient for the parameter.
  void mark_unused(std::size_t index) const { expect(dsc_bucket_reducer_mark_unused(get(), index)); }

  // Adds a gradient to this rank's sum, for several backward passes per step. mark_ready() completes the sum.
  template <class Buffer>
  void accumulate(std::size_t index, Buffer&& gradient, void* stream = nullptr) const {
    const auto elements = detail::view(gradient);
    params_.expect_gradient("accumulate", index, elements, false);
    expect(dsc_bucket_reducer_accumulate(get(), index, elements.data(), stream));
  }

  // Waits for all buckets and writes the results to the gradients.
  void finish(void* stream = nullptr) { expect(dsc_bucket_reducer_finish(get(), stream)); }

  // Waits for a device to complete all finished iterations.
  void synchronize() { expect(dsc_bucket_reducer_synchronize(get(), -1)); }

  // The gradient of a parameter in its bucket. What is computed there is never copied.
  template <class T>
  span<T> grad_view(std::size_t index) const {
    return params_.grad_view<T>(index, detail::query<void*>(dsc_bucket_reducer_grad_view, get(), index));
  }

  // Whether the following iterations are reduced. Gradients of iterations that are not are summed on this
  // rank.
  void set_sync(bool sync) { expect(dsc_bucket_reducer_set_sync(get(), sync ? 1 : 0)); }

  // Scales the gradients and limits their norm. Returns the norm before it is limited.
  double clip(const clip_options& options = {}) {
    double norm = 0;
    expect(dsc_bucket_reducer_clip(get(), &options, &norm));
    return norm;
  }

  // Makes tensors that are not parameters, such as running means, equal on all ranks.
  void set_buffers(const tensors& list) {
    expect(dsc_bucket_reducer_set_buffers(get(), list.data(), list.size()));
  }
  void sync_buffers(buffer_sync how) { expect(dsc_bucket_reducer_sync_buffers(get(), detail::value(how))); }

  // Sets a function that reduces buckets in place of the all-reduce. It runs on the threads that mark
  // gradients and finish iterations, one at a time. What it throws is thrown again by the call in which it
  // ran, and ends the reducer on all ranks.
  void set_hook(const std::string& name, std::function<void(bucket&)> function) {
    auto hook = std::make_unique<detail::bucket_hook>();
    hook->function = std::move(function);
    expect(dsc_bucket_reducer_set_hook(get(), detail::bucket_hook::run, hook.get(), name.c_str()));
    hook_ = std::move(hook);
  }

  // Chooses a built-in hook, such as "bf16"; an empty text: none.
  void use_hook(const std::string& spec) {
    expect(dsc_bucket_reducer_use_hook(get(), detail::text_or_null(spec)));
    hook_.reset();
  }

  // How often the buckets were rebuilt, the parameters that no rank used, and a description of the latest
  // iterations.
  std::uint64_t rebuilds() const { return detail::query<std::uint64_t>(dsc_bucket_reducer_rebuilds, get()); }
  std::vector<std::size_t> unused() const {
    return read_list<std::size_t>([&](std::size_t* list, std::size_t capacity, std::size_t* needed) {
      return dsc_bucket_reducer_unused(get(), list, capacity, needed);
    });
  }
  std::string stats_json() const {
    return read_text([&](char* text, std::size_t capacity, std::size_t* needed) {
      return dsc_bucket_reducer_stats_json(get(), text, capacity, needed);
    });
  }

  // Throws what the hook threw, if the failure is its consequence.
  void rethrow_cause(const error& failure) const {
    if (hook_) hook_->kept.rethrow_cause(failure);
  }

  // Ends this rank's participation. Views stay readable until the reducer is destroyed.
  void close() { check(dsc_bucket_reducer_close(get())); }

 private:
  void expect(dsc_result_t result) const {
    if (hook_)
      hook_->kept.check(result);
    else
      check(result);
  }

  detail::param_list params_;
  std::unique_ptr<detail::bucket_hook> hook_;  // before the handle, so that it outlives the reducer
  handle<dsc_bucket_reducer_t, dsc_bucket_reducer_destroy> handle_;
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_REDUCER_HPP
