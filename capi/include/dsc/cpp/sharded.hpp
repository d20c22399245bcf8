// Sharded data parallelism: each rank keeps one shard of the gradients, optimizer state and parameters.
#ifndef DSC_CPP_SHARDED_HPP
#define DSC_CPP_SHARDED_HPP

#include <cstddef>
#include <dsc/cpp/tensor.hpp>
#include <type_traits>
#include <vector>

namespace dsc {
inline namespace v0 {

// This rank's shard of a bucket.
class shard : public dsc_sharded_shard_t {
 public:
  explicit shard(const dsc_sharded_shard_t& raw) : dsc_sharded_shard_t(raw) {}

  // The parameters, which the optimizer writes, and the gradients, which it reads, between finish() and
  // step_done().
  template <class T>
  span<T> param_elements() const {
    return typed<T>(params, dtype);
  }
  template <class T>
  span<const T> grad_elements() const {
    return typed<T>(grads, grad_dtype);
  }

 private:
  template <class T>
  span<T> typed(void* address, dsc_dtype_t type) const {
    if (detail::value(dtype_of_v<T>) != type)
      detail::wrong(std::string("the shard has elements of ") + dsc_dtype_name(type) + ", not of " +
                    name(dtype_of_v<T>));
    return {static_cast<T*>(address), count};
  }
};

// Parameters that are divided among the ranks. An iteration is begin(), mark_ready() or mark_unused() for
// every parameter, finish(), an optimizer that updates shards(), and step_done(). `stream` is for memory of a
// GPU. Views and shards are valid until the object is destroyed.
class sharded {
 public:
  // Collective. The values are copied into buffers of the object.
  sharded(const comm_view& comm, const tensors& params, const sharded_options& options = {})
      : params_(params, options.grad_dtype),
        handle_(detail::query<dsc_sharded_t*>(dsc_sharded_create, comm.get(), params.data(), params.size(),
                                              &options)) {}

  dsc_sharded_t* get() const noexcept { return handle_.get(); }
  std::size_t n_params() const noexcept { return params_.size(); }

  // With `accumulate` the result is added to the gradient shards, for several micro-batches per step.
  void begin(bool accumulate = false, void* stream = nullptr) {
    check(dsc_sharded_begin(get(), accumulate ? 1 : 0, stream));
  }

  // The gradient is in the parameter's view, or in memory of the program, from which it is copied.
  void mark_ready(std::size_t index, void* stream = nullptr) const {
    check(dsc_sharded_mark_ready(get(), index, nullptr, 0, stream));
  }
  template <class Buffer, detail::if_buffer<Buffer> = 0>
  void mark_ready(std::size_t index, Buffer&& gradient, void* stream = nullptr) const {
    pass_gradient(dsc_sharded_mark_ready, "mark_ready", index, detail::view(gradient), stream);
  }
  // A pointer to elements would be taken for a stream; pass a span.
  template <class Pointer, detail::if_pointer_to_elements<Pointer> = 0>
  void mark_ready(std::size_t index, Pointer&& gradient, void* stream = nullptr) const = delete;

  void mark_unused(std::size_t index) const { check(dsc_sharded_mark_unused(get(), index)); }

  // Adds a gradient to this rank's sum. mark_ready() completes the sum.
  template <class Buffer>
  void accumulate(std::size_t index, Buffer&& gradient, void* stream = nullptr) const {
    pass_gradient(dsc_sharded_accumulate, "accumulate", index, detail::view(gradient), stream);
  }

  // Waits until all units are reduced; the gradient shards then hold the averages.
  void finish(void* stream = nullptr) { check(dsc_sharded_finish(get(), stream)); }

  // Scales the gradients and limits their norm. Returns the norm before it is limited.
  double clip(const clip_options& options = {}, void* stream = nullptr) {
    double norm = 0;
    check(dsc_sharded_clip(get(), &options, &norm, stream));
    return norm;
  }

  // Ends a step. `changed`: the optimizer has written the parameter shards.
  void step_done(bool changed = true, void* stream = nullptr) {
    check(dsc_sharded_step_done(get(), changed ? 1 : 0, stream));
  }

  // Gathers a unit's full parameters, waits for them, and releases them.
  void unshard(std::size_t unit) { check(dsc_sharded_unshard(get(), unit)); }
  void wait(std::size_t unit, void* stream = nullptr) { check(dsc_sharded_wait(get(), unit, stream)); }
  void reshard(std::size_t unit, void* stream = nullptr) { check(dsc_sharded_reshard(get(), unit, stream)); }

  // A full parameter, between wait() and step_done() or reshard(); a full gradient, between begin() and its
  // mark.
  template <class T>
  span<const T> param_view(std::size_t index) const {
    return params_.param_view<T>(index, detail::query<void*>(dsc_sharded_param_view, get(), index));
  }
  template <class T>
  span<T> grad_view(std::size_t index) const {
    return params_.grad_view<T>(index, detail::query<void*>(dsc_sharded_grad_view, get(), index));
  }

  // This rank's shards, one per bucket, and the parts of parameters that they hold.
  std::vector<shard> shards() const {
    const auto read = [&](dsc_sharded_shard_t* list, std::size_t capacity, std::size_t* needed) {
      return dsc_sharded_shards(get(), list, capacity, needed);
    };
    const auto list = read_list(read, detail::sized<dsc_sharded_shard_t>());
    return std::vector<shard>(list.begin(), list.end());
  }
  std::vector<dsc_sharded_range_t> ranges() const {
    const auto read = [&](dsc_sharded_range_t* list, std::size_t capacity, std::size_t* needed) {
      return dsc_sharded_ranges(get(), list, capacity, needed);
    };
    return read_list(read, detail::sized<dsc_sharded_range_t>());
  }

  // The number of units.
  std::size_t n_units() const { return place().n_units; }

  // The unit of each parameter.
  std::vector<std::size_t> units() const { return place().units; }

  // Ends this rank's participation. Views stay readable until the object is destroyed.
  void close() { check(dsc_sharded_close(get())); }

 private:
  template <class Call, class T>
  void pass_gradient(Call call, const char* name, std::size_t index, span<T> gradient, void* stream) const {
    params_.expect_gradient(name, index, gradient, true);
    check(call(get(), index, gradient.data(), detail::value(dtype_of_v<T>), stream));
  }

  struct locations {
    std::vector<std::size_t> units, buckets, starts;
    std::size_t n_units = 0, shard = 0, shards = 0;
  };

  locations place() const {
    const std::vector<std::size_t> room(n_params());
    locations made{room, room, room};
    check(dsc_sharded_locations(get(), made.units.data(), made.buckets.data(), made.starts.data(),
                                &made.n_units, &made.shard, &made.shards));
    return made;
  }

  detail::param_list params_;
  handle<dsc_sharded_t, dsc_sharded_destroy> handle_;
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_SHARDED_HPP
