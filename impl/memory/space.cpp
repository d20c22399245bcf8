#include "memory/space.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/tensor.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr int kLookPeriodMs = 50;

uintptr_t start_of(const Elements& elements) { return reinterpret_cast<uintptr_t>(elements.data); }

}  // namespace

// Moves the reference into a holder whose destructor never runs. The holder is not allocated, because memory
// may be short.
void keep(Memory memory) noexcept {
  alignas(Memory) std::byte holder[sizeof(Memory)];
  std::construct_at(reinterpret_cast<Memory*>(holder), std::move(memory));
}

void Space::check_stream(const void* stream) const {
  if (stream && !in_stream_order())
    fail(DSC_ERR_UNSUPPORTED, "stream is not NULL, expected NULL: the parameters are in host memory");
}

void Space::check_reductions(Call call, std::span<const int32_t> dtypes) const {
  if (!in_stream_order()) return;
  for (const int32_t dtype : dtypes) {
    call.dtype = dtype;
    if (const auto reason = group_.unsupported_reason(call))
      fail(DSC_ERR_UNSUPPORTED, "gradients of %s on a device: %s", dtype_name(dtype), reason->c_str());
  }
  prepare();
}

void Space::order(void* stream, void* later) {
  if (stream != later) follow(later, mark(stream));
}

bool Space::wait_idle(void* stream, Deadline deadline) noexcept {
  bool idle = false;
  call_out([&] { idle = wait_for(mark(stream), deadline); });
  return idle;
}

bool Space::await(const Mark& mark, const char* what, Deadline deadline) const {
  if (!in_stream_order()) return true;
  const Deadline last = Deadline::after_ms(group_.timeout_ms());
  while (!wait_for(mark, sooner(sooner(deadline, last), Deadline::after_ms(kLookPeriodMs)))) {
    if (group_.revoked()) throw Error(group_.failure());
    if (deadline.passed()) return false;
    if (last.passed())
      fail(DSC_ERR_TIMEOUT, "%s of rank %d were not ready after %d ms", what, group_.rank(),
           group_.timeout_ms());
  }
  return true;
}

void Space::await_stream(void* stream, const char* what) { await(mark(stream), what); }

Failure Space::await_work(Work& work, void* stream) const {
  Failure failure;
  if (in_stream_order()) {
    capture([&] { work.wait_on(stream, Deadline::never()); },
            [&](const Error& error) { failure = error.failure(); });
  } else {
    wait_ignoring_failure(work, Deadline::never());  // no deadline here, because every operation has its own
    failure = work.failure();
  }
  return failure;
}

void Space::scale(const Elements& elements, double factor, void* stream) {
  copy({.to = elements.data,
        .to_dtype = elements.dtype,
        .from = elements.data,
        .from_dtype = elements.dtype,
        .count = elements.count,
        .scale = factor},
       stream);
}

// Waits for the stream before the copy as well. A copy to host memory unknown to the driver can block until
// the stream has finished, and such a wait would have no deadline.
void Space::read(void* to, const void* from, size_t bytes, void* stream, const char* what) {
  await_stream(stream, what);
  copy({.to = to, .to_dtype = DSC_DTYPE_U8, .from = from, .from_dtype = DSC_DTYPE_U8, .count = bytes},
       stream);
  await_stream(stream, what);
}

void Space::read_norms(std::span<Norm> norms, const void* states, void* stream, const char* what) {
  if (norms.empty()) return;
  const Memory dense = take(norms.size_bytes(), stream);
  copy_rows({.to = dense.get(),
             .from = states,
             .rows = norms.size(),
             .row_bytes = sizeof(Norm),
             .to_stride = sizeof(Norm),
             .from_stride = norm_bytes()},
            stream);
  read(norms.data(), dense.get(), norms.size_bytes(), stream, what);
}

// Parts of one type go into one launch if the distances between them are multiples of the element size.
Norm Space::norm(std::span<const Elements> parts, void* stream, const char* what) {
  const Memory state = take(norm_bytes(), stream);
  zero(state.get(), norm_bytes(), stream);
  std::map<std::pair<int32_t, size_t>, std::vector<Elements>> launches;
  for (const Elements& part : parts)
    if (part.count > 0) launches[{part.dtype, start_of(part) % dtype_bytes(part.dtype)}].push_back(part);
  for (const auto& [kind, launch] : launches) {
    const Elements& first = *std::ranges::min_element(launch, {}, start_of);
    std::vector<TensorPart> located;
    for (const Elements& part : launch)
      located.push_back(
          {part.data, part.count, (start_of(part) - start_of(first)) / dtype_bytes(part.dtype)});
    gather({.parts = located,
            .tensor_dtype = first.dtype,
            .block = first.data,
            .block_dtype = first.dtype,
            .norm = state.get()},
           stream);
  }
  Norm norm;
  read_norms({&norm, 1}, state.get(), stream, what);
  return norm;
}

}  // namespace dsc
