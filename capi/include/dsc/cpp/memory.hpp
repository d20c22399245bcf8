// Memory that operations move without copying: the library's own, and memory of the program.
#ifndef DSC_CPP_MEMORY_HPP
#define DSC_CPP_MEMORY_HPP

#include <cstddef>
#include <dsc/cpp/buffer.hpp>
#include <dsc/cpp/comm.hpp>
#include <limits>
#include <string>
#include <utility>

namespace dsc {
inline namespace v0 {

// An array in memory that all ranks of a host can reach, for operations on a communicator and the groups made
// from it. It frees its memory when it is destroyed; no operation of this rank may then still use it. It may
// outlive the communicator.
template <class T>
class shared_array {
 public:
  using element_type = T;

  // Collective: every rank of the communicator allocates the same number of elements, which are zero.
  shared_array(const comm_view& comm, std::size_t size, memory_kind kind = memory_kind::host)
      : memory_(detail::query<void*>(dsc_mem_alloc, comm.get(), bytes_of(size), detail::value(kind))),
        size_(size) {}
  shared_array(shared_array&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  shared_array& operator=(shared_array&& other) noexcept {
    memory_ = std::move(other.memory_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() const noexcept { return static_cast<T*>(memory_.get()); }
  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t index) const { return data()[index]; }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size_; }

 private:
  static std::size_t bytes_of(std::size_t size) {
    const std::size_t most = std::numeric_limits<std::size_t>::max() / sizeof(T);
    if (size > most)
      throw error(errc::overflow, "shared_array: the size is " + std::to_string(size) +
                                      " elements, expected at most " + std::to_string(most));
    return size * sizeof(T);
  }

  handle<void, dsc_mem_free> memory_;
  std::size_t size_;
};

// Lets operations on a communicator, and on the groups made from it, move memory of the program without
// copying, as long as this object exists. The memory must stay where it is until then: a vector must not
// grow. Wait for asynchronous operations on it first. It may outlive the communicator.
class registration {
 public:
  // Collective: every rank of the communicator registers the same number of bytes. `buffer` is one that
  // operations may write. While ranks register, no other thread may access it.
  template <class Buffer>
  registration(const comm_view& comm, Buffer&& buffer) {
    const auto view = detail::writable_view(std::forward<Buffer>(buffer));
    check(dsc_mem_register(comm.get(), view.data(), view.size() * sizeof(*view.data())));
    memory_ = handle<void, dsc_mem_unregister>(view.data());
  }

  // Ends the registration now, and throws if an operation still uses the memory, or if it was unmapped.
  void close() { memory_.close(); }

 private:
  handle<void, dsc_mem_unregister> memory_;
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_MEMORY_HPP
