// Communicators: queries, operations, groups, failure and recovery.
#ifndef DSC_CPP_COMM_HPP
#define DSC_CPP_COMM_HPP

#include <cstdint>
#include <dsc/cpp/handle.hpp>
#include <dsc/cpp/request.hpp>
#include <dsc/cpp/work.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

class comm;

// A communicator that something else owns, such as a dsc::comm, the world of another library, or a reducer.
// It is cheap to copy and valid as long as its owner. The rules of order and threads are those of C: all
// ranks call collective operations in the same order, and one thread at a time calls operations, while any
// thread may call the queries and abort().
class comm_view {
 public:
  comm_view() noexcept = default;
  explicit comm_view(dsc_comm_t* raw) : raw_(raw) {
    if (raw == nullptr) return;
    rank_ = detail::query<std::int32_t>(dsc_comm_rank, raw);
    size_ = detail::query<std::int32_t>(dsc_comm_size, raw);
  }

  dsc_comm_t* get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

  std::int32_t rank() const noexcept { return rank_; }
  std::int32_t size() const noexcept { return size_; }
  std::int32_t local_rank() const { return detail::query<std::int32_t>(dsc_comm_local_rank, raw_); }
  std::int32_t local_size() const { return detail::query<std::int32_t>(dsc_comm_local_size, raw_); }
  std::int32_t world_size() const { return detail::query<std::int32_t>(dsc_comm_world_size, raw_); }
  std::uint64_t id() const { return detail::query<std::uint64_t>(dsc_comm_id, raw_); }
  dsc::backend backend() const {
    return static_cast<dsc::backend>(detail::query<dsc_backend_t>(dsc_comm_backend, raw_));
  }

  // The number of the GPU that it is bound to; -1: none.
  std::int32_t device() const { return detail::query<std::int32_t>(dsc_comm_device, raw_); }

  // The name in errors; "world" for the world.
  std::string name() const {
    return read_text([&](char* text, std::size_t capacity, std::size_t* needed) {
      return dsc_comm_name(raw_, text, capacity, needed);
    });
  }

  // Translates ranks; -1: the world's rank is not a member.
  std::int32_t global_rank(std::int32_t group_rank) const {
    return detail::query<std::int32_t>(dsc_comm_global_rank, raw_, group_rank);
  }
  std::int32_t group_rank(std::int32_t global_rank) const {
    return detail::query<std::int32_t>(dsc_comm_group_rank, raw_, global_rank);
  }

  // Running totals per operation and size class.
  std::vector<dsc_op_stats_t> stats() const {
    const auto read = [&](dsc_op_stats_t* list, std::size_t capacity, std::size_t* needed) {
      return dsc_comm_stats(raw_, list, capacity, needed);
    };
    return read_list(read, detail::sized<dsc_op_stats_t>());
  }

  // Performs an operation and waits for it; for memory of a GPU it is only queued on the stream.
  void run(const operation& it) const {
    it.validate({rank_, size_});
    check_ops(it.launch(raw_, nullptr), &it, 1);
  }

  // Starts an operation. Its buffers must stay valid and untouched until the work has completed.
  work start(const operation& it) const {
    it.validate({rank_, size_});
    std::vector<reduce_op> ops = functions_of(&it, 1);  // before the operation runs, because this may throw
    dsc_work_t* made = nullptr;
    check_ops(it.launch(raw_, &made), &it, 1);
    return work(made, raw_, std::move(ops));
  }

  // Starts operations together and waits for all of them. They do not wait for each other, so two ranks may
  // send to each other in one batch. If the library refuses one, the others run, because other ranks may wait
  // for them.
  void batch(const std::vector<operation>& list, void* stream = nullptr) const {
    perform(list, stream, nullptr);
  }

  // Starts operations together. The work reports the first failure among them.
  work start_batch(const std::vector<operation>& list, void* stream = nullptr) const {
    std::vector<reduce_op> ops = functions_of(list.data(), list.size());
    dsc_work_t* made = nullptr;
    perform(list, stream, &made);
    return work(made, raw_, std::move(ops));
  }

  // The operations of dsc::request, performed at once: world.all_reduce(gradients, dsc::op::sum). They also
  // send temporaries.
  template <class... A>
  void all_reduce(A&&... a) const {
    run(request::all_reduce(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void broadcast(A&&... a) const {
    run(request::broadcast(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void all_gather(A&&... a) const {
    run(request::all_gather(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void reduce_scatter(A&&... a) const {
    run(request::reduce_scatter(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void reduce(A&&... a) const {
    run(request::reduce(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void gather(A&&... a) const {
    run(request::gather(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void scatter(A&&... a) const {
    run(request::scatter(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void all_to_all(A&&... a) const {
    run(request::all_to_all(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void all_gather_v(A&&... a) const {
    run(request::all_gather_v(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void reduce_scatter_v(A&&... a) const {
    run(request::reduce_scatter_v(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void all_to_all_v(A&&... a) const {
    run(request::all_to_all_v(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void send(A&&... a) const {
    run(request::send(detail::during_call(std::forward<A>(a))...));
  }
  template <class... A>
  void recv(A&&... a) const {
    run(request::recv(detail::during_call(std::forward<A>(a))...));
  }
  void barrier(void* stream = nullptr) const { run(request::barrier(stream)); }

  // A barrier with its own time-out, whose error names every missing rank.
  void monitored_barrier(milliseconds timeout) const {
    check(dsc_monitored_barrier(raw_, detail::timeout_ms(timeout)));
  }

  // The sum, or another reduction, of one number over all ranks.
  template <class T>
  T all_reduce_value(T one, const reduce_op& op) const {
    all_reduce(span<T>(&one, 1), op);
    return one;
  }

  // Groups. A rank that joins no group (color -1, or not listed) gets an empty comm.
  comm split(std::int32_t color, std::int32_t key, const dsc_comm_options_t* options = nullptr) const;
  comm create_group(span<const std::int32_t> ranks, const dsc_comm_options_t* options = nullptr) const;

  // The deadline of operations that start from now on.
  milliseconds timeout() const { return milliseconds(detail::query<std::int32_t>(dsc_comm_timeout, raw_)); }
  void set_timeout(milliseconds timeout) const {
    check(dsc_comm_set_timeout(raw_, detail::timeout_ms(timeout)));
  }

  // What happens when an input of a reduction is NaN or infinite. All ranks set the same.
  void set_nonfinite_check(nonfinite_check how) const {
    check(dsc_comm_set_nonfinite_check(raw_, detail::value(how)));
  }

  // Revokes the communicator on all ranks, from any thread.
  void abort() const { check(dsc_comm_abort(raw_)); }

  // The first cause of its failure, or a stalled rank that an operation waits for; nothing if there is none.
  std::optional<error> failure() const {
    dsc_error_info_t info = detail::empty_error_info();
    check(dsc_comm_error_info(raw_, &info));
    return detail::failure_of(info);
  }

  // Drives started operations on this thread, for worlds without a progress thread. Returns whether some are
  // left.
  bool progress(milliseconds timeout) const {
    return check(dsc_comm_progress(raw_, detail::timeout_ms(timeout))) == DSC_IN_PROGRESS;
  }

  // After a failure: combines the flags of all surviving ranks with bitwise and; a working communicator of
  // these ranks; and the ranks that were missing in the last of these calls.
  std::int32_t agree(std::int32_t flags) const {
    return detail::query<std::int32_t>(dsc_comm_agree, raw_, flags);
  }
  comm shrink(const dsc_comm_options_t* options = nullptr) const;
  std::vector<std::int32_t> missing() const {
    return read_list<std::int32_t>([&](std::int32_t* ranks, std::size_t capacity, std::size_t* needed) {
      return dsc_comm_missing(raw_, ranks, capacity, needed);
    });
  }

 private:
  static void check_ops(dsc_result_t result, const operation* list, std::size_t count) {
    if (result >= 0) return;
    const error failure = last_error(result);
    for (std::size_t i = 0; i < count; ++i) list[i].op.rethrow_cause(failure);
    throw failure;
  }

  // The user-defined functions, which a work keeps.
  static std::vector<reduce_op> functions_of(const operation* list, std::size_t count) {
    std::vector<reduce_op> ops;
    for (std::size_t i = 0; i < count; ++i)
      if (list[i].op.has_function()) ops.push_back(list[i].op);
    return ops;
  }

  void perform(const std::vector<operation>& list, void* stream, dsc_work_t** made) const {
    for (const operation& it : list) it.validate({rank_, size_});
    check(dsc_batch_begin(raw_));
    std::optional<error> refused;
    for (const operation& it : list) {
      const dsc_result_t result = it.launch(raw_, nullptr);
      if (result < 0 && !refused) refused = last_error(result);
    }
    check_ops(dsc_batch_end(raw_, stream, made), list.data(), list.size());
    if (!refused) return;
    if (made != nullptr) static_cast<void>(work(*made, raw_));  // waits, because the caller gets no work
    throw *refused;
  }

  dsc_comm_t* raw_ = nullptr;
  std::int32_t rank_ = -1;
  std::int32_t size_ = 0;
};

// Owns a communicator. Its destructor releases it at once: ranks that wait for this one get errc::peer_left,
// and works that still run end with errc::revoked. finalize() waits for all ranks first.
class comm : public comm_view {
 public:
  comm() noexcept = default;
  explicit comm(dsc_comm_t* owned) : handle_(owned) { static_cast<comm_view&>(*this) = comm_view(owned); }
  comm(comm&& other) noexcept
      : comm_view(std::exchange(other.view(), comm_view())), handle_(std::move(other.handle_)) {}
  comm& operator=(comm&& other) noexcept {
    handle_ = std::move(other.handle_);
    view() = std::exchange(other.view(), comm_view());
    return *this;
  }

  // Waits until all ranks have called it and all operations are complete, then releases the communicator. For
  // the world it also ends the world of this process. Afterwards this object is empty.
  void finalize() {
    const handle<dsc_comm_t, dsc_comm_destroy> ended = std::move(handle_);
    view() = comm_view();
    dsc_comm_t* world = nullptr;
    const bool is_world = dsc_world(&world) == DSC_OK && world == ended.get();
    check(is_world ? dsc_finalize() : dsc_comm_finalize(ended.get()));
  }

  // Releases the communicator as the destructor does, and throws if that fails.
  void close() {
    view() = comm_view();
    handle_.close();
  }

 private:
  comm_view& view() noexcept { return *this; }

  handle<dsc_comm_t, dsc_comm_destroy> handle_;
};

inline comm comm_view::split(std::int32_t color, std::int32_t key, const dsc_comm_options_t* options) const {
  return comm(detail::query<dsc_comm_t*>(dsc_comm_split, raw_, color, key, options));
}

inline comm comm_view::create_group(span<const std::int32_t> ranks, const dsc_comm_options_t* options) const {
  return comm(detail::query<dsc_comm_t*>(dsc_comm_create_group, raw_, ranks.data(), ranks.size(), options));
}

inline comm comm_view::shrink(const dsc_comm_options_t* options) const {
  return comm(detail::query<dsc_comm_t*>(dsc_comm_shrink, raw_, options));
}

// Joins all ranks of the job into one world, which the returned object owns. A process has one world: if
// another part of the program has made it, this throws errc::state; use world() there. With rank_per_thread
// every call makes a rank.
inline comm init(const dsc_init_options_t* options = nullptr) {
  const bool many = options != nullptr && options->rank_per_thread != 0;
  if (!many && detail::query<std::int32_t>(dsc_is_initialized) != 0)
    throw error(errc::state, "init: this process already has a world; dsc::world() returns it");
  return comm(detail::query<dsc_comm_t*>(dsc_init_distributed, options));
}

// The world of this process, whoever owns it.
inline comm_view world() { return comm_view(detail::query<dsc_comm_t*>(dsc_world)); }

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_COMM_HPP
