// Handles that release what they own, options with their defaults, and the results of calls that write texts
// and lists.
#ifndef DSC_CPP_HANDLE_HPP
#define DSC_CPP_HANDLE_HPP

#include <cstddef>
#include <dsc/cpp/error.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

// Owns an object of the library. It can be moved but not copied. For objects without a C++ class:
//   using ring = dsc::handle<dsc_ring_t, dsc_ring_destroy>;
//   ring made = ring::make([&](dsc_ring_t** out) { return dsc_ring_create(..., out); });
//
// The destructor ignores the result of the destroy function, because destructors must not throw. Its failures
// need no action: the object has already ended with its world, or the process is a child made by fork().
// close() reports them.
template <class T, dsc_result_t (*Destroy)(T*)>
class handle {
 public:
  handle() noexcept = default;
  explicit handle(T* owned) noexcept : raw_(owned) {}
  handle(handle&& other) noexcept : raw_(other.release()) {}
  handle& operator=(handle&& other) noexcept {
    handle(std::move(other)).swap(*this);
    return *this;
  }
  ~handle() {
    if (raw_ != nullptr) Destroy(raw_);
  }

  // Takes what a function of C writes to its last argument. Throws if the function fails.
  template <class Create>
  static handle make(Create&& create) {
    T* made = nullptr;
    check(create(&made));
    return handle(made);
  }

  T* get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

  // Gives up ownership.
  T* release() noexcept { return std::exchange(raw_, nullptr); }

  // Destroys the object now, and throws if that fails. The handle is empty in any case.
  void close() { check(Destroy(release())); }

  void swap(handle& other) noexcept { std::swap(raw_, other.raw_); }

 private:
  T* raw_ = nullptr;
};

// A struct of options that begins with the library's defaults. Set its fields as in C, where they are
// documented.
template <class Struct, dsc_result_t (*Init)(Struct*, std::size_t)>
struct options : Struct {
  options() { check(Init(this, sizeof(Struct))); }
};

using comm_options = options<dsc_comm_options_t, dsc_comm_options_init>;
using init_options = options<dsc_init_options_t, dsc_init_options_init>;
using store_options = options<dsc_store_options_t, dsc_store_options_init>;
using mesh_options = options<dsc_mesh_options_t, dsc_mesh_options_init>;
using clip_options = options<dsc_clip_options_t, dsc_clip_options_init>;
using reducer_options = options<dsc_bucket_reducer_options_t, dsc_bucket_reducer_options_init>;
using shard_plan_options = options<dsc_shard_plan_options_t, dsc_shard_plan_options_init>;
using sharded_options = options<dsc_sharded_options_t, dsc_sharded_options_init>;
using pipe_schedule_options = options<dsc_pipe_schedule_options_t, dsc_pipe_schedule_options_init>;
using pipe_run_options = options<dsc_pipe_run_options_t, dsc_pipe_run_options_init>;

// The text that a function of C writes: read_text([&](char* text, size_t capacity, size_t* needed) { ... }).
template <class Read>
std::string read_text(Read&& read) {
  std::string text;
  std::size_t needed = 0;
  check(read(nullptr, 0, &needed));
  do {  // the text may have grown since its size was asked
    text.resize(needed);
  } while (check(read(&text[0], text.size(), &needed)) == DSC_TRUNCATED);
  text.resize(needed - 1);  // without the final zero
  return text;
}

// The list that a function of C writes. Every entry is `initial` before the call, which sets struct_size.
template <class T, class Read>
std::vector<T> read_list(Read&& read, const T& initial = T()) {
  std::vector<T> list;
  std::size_t needed = 0;
  check(read(nullptr, 0, &needed));
  while (needed > list.size()) {
    list.assign(needed, initial);
    if (check(read(list.data(), list.size(), &needed)) != DSC_TRUNCATED) break;
  }
  list.resize(needed, initial);
  return list;
}

namespace detail {

template <class Struct>
Struct sized() {
  Struct made = {};
  made.struct_size = sizeof made;
  return made;
}

// The value that a function of C writes to its last argument: query<int32_t>(dsc_comm_rank, comm).
template <class T, class Function, class... Arguments>
T query(Function function, Arguments... arguments) {
  T value = {};
  check(function(arguments..., &value));
  return value;
}

inline const char* text_or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace detail
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_HANDLE_HPP
