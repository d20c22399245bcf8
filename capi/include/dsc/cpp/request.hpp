// Descriptions of operations, for comm_view::run(), start(), batch() and start_batch().
//
// A buffer is anything with data() and size(): a vector, an array, a std::span or a dsc::span. The element
// type is that of the buffer. Sizes are checked before anything happens. `stream` matters only for memory of
// a GPU. A request refers to its buffers, which must outlive the operation; so a temporary does not compile.
#ifndef DSC_CPP_REQUEST_HPP
#define DSC_CPP_REQUEST_HPP

#include <cstddef>
#include <cstdint>
#include <dsc/cpp/buffer.hpp>
#include <dsc/cpp/operation.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

namespace detail {

// Both buffers of an operation, which must have the same element type.
template <class Send, class Recv>
operation with_buffers(operation made, Send&& send, Recv&& recv, void* stream) {
  const auto from = lasting_view(std::forward<Send>(send));
  const auto to = writable_view(std::forward<Recv>(recv));
  using element = typename decltype(to)::element_type;
  made.set_buffers<element>(span<const element>(from), to);
  made.stream = stream;
  return made;
}

// An operation in place: the same memory is sent and received.
template <class Buffer>
operation in_place(operation made, Buffer&& buffer, void* stream) {
  const auto elements = writable_view(std::forward<Buffer>(buffer));
  return with_buffers(std::move(made), elements, elements, stream);
}

inline operation with_op(operation made, const reduce_op& op) {
  made.op = op;
  return made;
}

inline operation with_peer(operation made, std::int32_t peer) {
  made.peer = peer;
  return made;
}

inline std::vector<std::size_t> copied(span<const std::size_t> counts) {
  return {counts.begin(), counts.end()};
}

}  // namespace detail

namespace request {

// Combines the elements of all ranks; every rank gets the result.
template <class Send, class Recv>
operation all_reduce(Send&& send, Recv&& recv, const reduce_op& op, void* stream = nullptr) {
  operation made("all_reduce", detail::launch_all_reduce, detail::same_counts);
  return detail::with_buffers(detail::with_op(std::move(made), op), std::forward<Send>(send),
                              std::forward<Recv>(recv), stream);
}

// The same in place.
template <class Buffer>
operation all_reduce(Buffer&& buffer, const reduce_op& op, void* stream = nullptr) {
  operation made("all_reduce", detail::launch_all_reduce);
  return detail::in_place(detail::with_op(std::move(made), op), std::forward<Buffer>(buffer), stream);
}

// Copies the root's elements to all ranks.
template <class Buffer>
operation broadcast(Buffer&& buffer, std::int32_t root, void* stream = nullptr) {
  operation made("broadcast", detail::launch_broadcast);
  return detail::in_place(detail::with_peer(std::move(made), root), std::forward<Buffer>(buffer), stream);
}

// Gathers the elements of every rank, in rank order, on all ranks. In place: send is this rank's part of
// recv.
template <class Send, class Recv>
operation all_gather(Send&& send, Recv&& recv, void* stream = nullptr) {
  operation made("all_gather", detail::launch_all_gather, detail::recv_from_all);
  return detail::with_buffers(std::move(made), std::forward<Send>(send), std::forward<Recv>(recv), stream);
}

// Combines the elements of all ranks; rank r gets part r. In place: recv is this rank's part of send.
template <class Send, class Recv>
operation reduce_scatter(Send&& send, Recv&& recv, const reduce_op& op, void* stream = nullptr) {
  operation made("reduce_scatter", detail::launch_reduce_scatter, detail::send_to_all);
  return detail::with_buffers(detail::with_op(std::move(made), op), std::forward<Send>(send),
                              std::forward<Recv>(recv), stream);
}

// Combines the elements of all ranks; the root gets the result. On other ranks recv is ignored and may be
// empty.
template <class Send, class Recv>
operation reduce(Send&& send, Recv&& recv, const reduce_op& op, std::int32_t root, void* stream = nullptr) {
  operation made("reduce", detail::launch_reduce, detail::same_counts_on_root);
  return detail::with_buffers(detail::with_peer(detail::with_op(std::move(made), op), root),
                              std::forward<Send>(send), std::forward<Recv>(recv), stream);
}

// The same in place. On other ranks the buffer keeps its elements.
template <class Buffer>
operation reduce(Buffer&& buffer, const reduce_op& op, std::int32_t root, void* stream = nullptr) {
  operation made("reduce", detail::launch_reduce);
  return detail::in_place(detail::with_peer(detail::with_op(std::move(made), op), root),
                          std::forward<Buffer>(buffer), stream);
}

// Gathers the elements of every rank, in rank order, on the root. On other ranks recv is ignored and may be
// empty.
template <class Send, class Recv>
operation gather(Send&& send, Recv&& recv, std::int32_t root, void* stream = nullptr) {
  operation made("gather", detail::launch_gather, detail::gathered_on_root);
  return detail::with_buffers(detail::with_peer(std::move(made), root), std::forward<Send>(send),
                              std::forward<Recv>(recv), stream);
}

// Sends part r of the root's elements to rank r. On other ranks send is ignored and may be empty.
template <class Send, class Recv>
operation scatter(Send&& send, Recv&& recv, std::int32_t root, void* stream = nullptr) {
  operation made("scatter", detail::launch_scatter, detail::scattered_from_root);
  return detail::with_buffers(detail::with_peer(std::move(made), root), std::forward<Send>(send),
                              std::forward<Recv>(recv), stream);
}

// Sends part r of every rank's elements to rank r, which gets them in rank order.
template <class Send, class Recv>
operation all_to_all(Send&& send, Recv&& recv, void* stream = nullptr) {
  operation made("all_to_all", detail::launch_all_to_all, detail::one_block_per_rank);
  return detail::with_buffers(std::move(made), std::forward<Send>(send), std::forward<Recv>(recv), stream);
}

// Gathers elements of every rank on all ranks. Rank r sends counts[r] elements; the counts are the same on
// all ranks.
template <class Send, class Recv>
operation all_gather_v(Send&& send, Recv&& recv, span<const std::size_t> counts, void* stream = nullptr) {
  operation made("all_gather_v", detail::launch_all_gather_v, detail::gathered_lengths);
  made.recv_counts = detail::copied(counts);
  return detail::with_buffers(std::move(made), std::forward<Send>(send), std::forward<Recv>(recv), stream);
}

// Combines the elements of all ranks; rank r gets part r, which has counts[r] elements.
template <class Send, class Recv>
operation reduce_scatter_v(Send&& send, Recv&& recv, span<const std::size_t> counts, const reduce_op& op,
                           void* stream = nullptr) {
  operation made("reduce_scatter_v", detail::launch_reduce_scatter_v, detail::scattered_lengths);
  made.send_counts = detail::copied(counts);
  return detail::with_buffers(detail::with_op(std::move(made), op), std::forward<Send>(send),
                              std::forward<Recv>(recv), stream);
}

// Sends a block of elements to every rank and receives one from every rank. All lengths may differ.
template <class Send, class Recv>
operation all_to_all_v(Send&& send, span<const std::size_t> send_counts, Recv&& recv,
                       span<const std::size_t> recv_counts, void* stream = nullptr) {
  operation made("all_to_all_v", detail::launch_all_to_all_v, detail::exchanged_lengths);
  made.send_counts = detail::copied(send_counts);
  made.recv_counts = detail::copied(recv_counts);
  return detail::with_buffers(std::move(made), std::forward<Send>(send), std::forward<Recv>(recv), stream);
}

// Waits until all ranks have called it.
inline operation barrier(void* stream = nullptr) {
  operation made("barrier", detail::launch_barrier);
  made.stream = stream;
  return made;
}

// Sends elements to one rank. It completes when the receiver has made the matching call.
template <class Buffer>
operation send(Buffer&& buffer, std::int32_t peer, void* stream = nullptr) {
  const auto elements = detail::lasting_view(std::forward<Buffer>(buffer));
  using element = std::remove_const_t<typename decltype(elements)::element_type>;
  operation made = detail::with_peer(operation("send", detail::launch_send), peer);
  made.set_buffers<element>(elements, {});
  made.stream = stream;
  return made;
}

// Receives elements from one rank, as many as it sends.
template <class Buffer>
operation recv(Buffer&& buffer, std::int32_t peer, void* stream = nullptr) {
  return detail::in_place(detail::with_peer(operation("recv", detail::launch_recv), peer),
                          std::forward<Buffer>(buffer), stream);
}

}  // namespace request
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_REQUEST_HPP
