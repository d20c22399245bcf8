// One operation of a communicator: its buffers, the check of their sizes, and the call of C that performs it.
#ifndef DSC_CPP_OPERATION_HPP
#define DSC_CPP_OPERATION_HPP

#include <cstddef>
#include <cstdint>
#include <dsc/cpp/op.hpp>
#include <dsc/cpp/span.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

// An operation and its buffers. Made by the functions of dsc::request below.
class operation {
 public:
  // The place of a rank, for which the sizes are checked.
  struct place {
    std::int32_t rank, size;
  };
  using checker = void (*)(const operation&, place);
  using launcher = dsc_result_t (*)(const operation&, dsc_comm_t*, dsc_work_t**);

  operation(const char* name, launcher call, checker fits = nullptr)
      : name_(name), call_(call), fits_(fits) {}

  template <class T>
  void set_buffers(span<const T> from, span<T> to) {
    type = dtype_of_v<T>;
    send = from.data();
    send_count = from.size();
    recv = to.data();
    recv_count = to.size();
  }

  // Throws if the buffers do not fit together on a rank. Without a communicator no sizes can be checked; the
  // library refuses the call.
  void validate(place on) const {
    op.expect(type);
    if (fits_ != nullptr && on.size > 0) fits_(*this, on);
  }

  dsc_result_t launch(dsc_comm_t* comm, dsc_work_t** work) const { return call_(*this, comm, work); }

  void expect(const char* buffer, std::size_t has, std::size_t wanted) const {
    if (has == wanted) return;
    detail::wrong(std::string(name_) + ": " + buffer + " has " + std::to_string(has) +
                  " elements, expected " + std::to_string(wanted));
  }

  void expect_counts(const std::vector<std::size_t>& counts, const char* which, place on) const {
    if (counts.size() == static_cast<std::size_t>(on.size)) return;
    detail::wrong(std::string(name_) + ": " + which + " has " + std::to_string(counts.size()) +
                  " entries, expected one for each of " + std::to_string(on.size) + " ranks");
  }

  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t send_count = 0, recv_count = 0;
  dtype type = dtype::u8;
  dsc::reduce_op op = dsc::op::sum;
  std::int32_t peer = 0;  // or the root
  void* stream = nullptr;
  std::vector<std::size_t> send_counts, recv_counts;  // of operations with lengths that differ

 private:
  const char* name_;
  launcher call_;
  checker fits_;
};

namespace detail {

inline std::size_t sum_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

inline void same_counts(const operation& it, operation::place) {
  it.expect("recv", it.recv_count, it.send_count);
}

inline void same_counts_on_root(const operation& it, operation::place on) {
  if (on.rank == it.peer) same_counts(it, on);
}

inline void recv_from_all(const operation& it, operation::place on) {
  it.expect("recv", it.recv_count, it.send_count * static_cast<std::size_t>(on.size));
}

inline void send_to_all(const operation& it, operation::place on) {
  it.expect("send", it.send_count, it.recv_count * static_cast<std::size_t>(on.size));
}

inline void gathered_on_root(const operation& it, operation::place on) {
  if (on.rank == it.peer) recv_from_all(it, on);
}

inline void scattered_from_root(const operation& it, operation::place on) {
  if (on.rank == it.peer) send_to_all(it, on);
}

inline void one_block_per_rank(const operation& it, operation::place on) {
  const auto size = static_cast<std::size_t>(on.size);
  same_counts(it, on);
  it.expect("send", it.send_count, it.send_count / size * size);
}

inline void gathered_lengths(const operation& it, operation::place on) {
  it.expect_counts(it.recv_counts, "counts", on);
  it.expect("send", it.send_count, it.recv_counts[static_cast<std::size_t>(on.rank)]);
  it.expect("recv", it.recv_count, sum_of(it.recv_counts));
}

inline void scattered_lengths(const operation& it, operation::place on) {
  it.expect_counts(it.send_counts, "counts", on);
  it.expect("send", it.send_count, sum_of(it.send_counts));
  it.expect("recv", it.recv_count, it.send_counts[static_cast<std::size_t>(on.rank)]);
}

inline void exchanged_lengths(const operation& it, operation::place on) {
  it.expect_counts(it.send_counts, "send_counts", on);
  it.expect_counts(it.recv_counts, "recv_counts", on);
  it.expect("send", it.send_count, sum_of(it.send_counts));
  it.expect("recv", it.recv_count, sum_of(it.recv_counts));
}

inline dsc_result_t launch_all_reduce(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_all_reduce(comm, it.send, it.recv, it.send_count, value(it.type), it.op.number(), it.stream,
                        work);
}

inline dsc_result_t launch_broadcast(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_broadcast(comm, it.send, it.recv, it.recv_count, value(it.type), it.peer, it.stream, work);
}

inline dsc_result_t launch_all_gather(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_all_gather(comm, it.send, it.recv, it.send_count, value(it.type), it.stream, work);
}

inline dsc_result_t launch_reduce_scatter(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_reduce_scatter(comm, it.send, it.recv, it.recv_count, value(it.type), it.op.number(), it.stream,
                            work);
}

inline dsc_result_t launch_reduce(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_reduce(comm, it.send, it.recv, it.send_count, value(it.type), it.op.number(), it.peer, it.stream,
                    work);
}

inline dsc_result_t launch_gather(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_gather(comm, it.send, it.recv, it.send_count, value(it.type), it.peer, it.stream, work);
}

inline dsc_result_t launch_scatter(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_scatter(comm, it.send, it.recv, it.recv_count, value(it.type), it.peer, it.stream, work);
}

// The count is that of one block. A buffer of another length was refused, so the division is exact.
inline dsc_result_t launch_all_to_all(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  const auto size = static_cast<std::size_t>(query<std::int32_t>(dsc_comm_size, comm));
  return dsc_all_to_all(comm, it.send, it.recv, it.send_count / size, value(it.type), it.stream, work);
}

inline dsc_result_t launch_all_gather_v(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_all_gather_v(comm, it.send, it.recv, it.recv_counts.data(), value(it.type), it.stream, work);
}

inline dsc_result_t launch_reduce_scatter_v(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_reduce_scatter_v(comm, it.send, it.recv, it.send_counts.data(), value(it.type), it.op.number(),
                              it.stream, work);
}

inline dsc_result_t launch_all_to_all_v(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_all_to_all_v(comm, it.send, it.send_counts.data(), it.recv, it.recv_counts.data(),
                          value(it.type), it.stream, work);
}

inline dsc_result_t launch_barrier(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_barrier(comm, it.stream, work);
}

inline dsc_result_t launch_send(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_send(comm, it.send, it.send_count, value(it.type), it.peer, it.stream, work);
}

inline dsc_result_t launch_recv(const operation& it, dsc_comm_t* comm, dsc_work_t** work) {
  return dsc_recv(comm, it.recv, it.recv_count, value(it.type), it.peer, it.stream, work);
}

}  // namespace detail

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_OPERATION_HPP
