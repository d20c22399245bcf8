#include "expert_parallel/host_rows.hpp"

#include <array>
#include <cstring>

#include "dtype/reduce.hpp"
#include "expert_parallel/fp8_rows.hpp"
#include "expert_parallel/moe_plan.hpp"
#include "expert_parallel/row_sums.hpp"

namespace dsc {
namespace {

const std::byte* row_at(const void* rows, size_t row, size_t bytes) {
  return static_cast<const std::byte*>(rows) + row * bytes;
}

std::byte* row_at(void* rows, size_t row, size_t bytes) {
  return static_cast<std::byte*>(rows) + row * bytes;
}

void clear_rows(void* rows, size_t bytes) {
  if (bytes > 0) std::memset(rows, 0, bytes);
}

}  // namespace

bool HostRows::is_direct(const RowFormat& format) const noexcept {
  return plan_.is_ordered() && !format.is_fp8;
}

// ---- to the experts

template <typename Put>
std::shared_ptr<Work> HostRows::to_experts(const RowCall& call, const char* name, void* rows, const Put& put,
                                           const std::function<void()>& finish) {
  const RowFormat& format = call.format;
  RowExchange& exchange = plan_.exchange();
  const std::vector<size_t>& positions = plan_.positions();
  exchange.expect_idle();
  std::byte* received = is_direct(format) ? static_cast<std::byte*>(rows) : exchange.expert_side(format);
  std::byte* sent = plan_.ranks() == 1 ? received : exchange.token_side(format);
  for (size_t token = 0, slot = 0; token < plan_.tokens(); ++token) {
    const std::byte* before = nullptr;  // a previous row of the same token
    for (size_t k = 0; k < plan_.settings().top_k; ++k, ++slot) {
      if (positions[slot] == MoePlan::kNowhere) continue;
      std::byte* to = row_at(sent, positions[slot], format.bytes());
      put(token, slot, before, to);
      before = to;
    }
  }
  const auto deliver_all = [this, plan = plan_.shared_from_this(), format, received, rows, finish] {
    deliver(format, received, rows);
    finish();
  };
  return exchange.run(call.comm, plan_.step(name, true), format, sent, received, deliver_all, call.starts);
}

// Sets padding rows to zero. The receiver does this, so that senders need not write them.
void HostRows::clear_padding(const RowFormat& format, void* rows) const {
  if (!plan_.settings().padded) return;
  const size_t bytes = format.plain_bytes();
  size_t next = 0;
  for (const RowRun& run : plan_.runs()) {
    clear_rows(row_at(rows, next, bytes), (run.expert - next) * bytes);
    next = run.expert + run.count;
  }
  clear_rows(row_at(rows, next, bytes), (plan_.rows() - next) * bytes);
}

void HostRows::deliver(const RowFormat& format, const std::byte* received, void* rows) const {
  clear_padding(format, rows);
  if (is_direct(format)) return;
  const size_t from_bytes = format.bytes(), to_bytes = format.plain_bytes();
  for (const RowRun& run : plan_.runs()) {
    const std::byte* from = row_at(received, run.received, from_bytes);
    std::byte* to = row_at(rows, run.expert, to_bytes);
    if (format.is_fp8) {
      for (size_t row = 0; row < run.count; ++row)
        decode_fp8_row(format.dtype, row_at(from, row, from_bytes), format.hidden, row_at(to, row, to_bytes));
    } else {
      copy_bytes(to, from, run.count * to_bytes);
    }
  }
}

std::shared_ptr<Work> HostRows::dispatch(const RowCall& call, const void* tokens, void* rows) {
  const RowFormat& format = call.format;
  const auto put = [&](size_t token, size_t, const std::byte* before, std::byte* to) {
    const std::byte* from = row_at(tokens, token, format.plain_bytes());
    if (format.is_fp8 && !before)
      encode_fp8_row(format.dtype, from, format.hidden, to);
    else
      copy_bytes(to, before ? before : from, format.bytes());
  };
  return to_experts(call, "dispatch", rows, put, [] {});
}

std::shared_ptr<Work> HostRows::combine_backward(const RowCall& call, const CombineGradients& gradients) {
  const RowFormat& format = call.format;
  const auto put = [&](size_t token, size_t slot, const std::byte*, std::byte* to) {
    const void* from = row_at(gradients.out_gradients, token, format.plain_bytes());
    if (!gradients.weights) return copy_bytes(to, from, format.plain_bytes());
    const std::byte* weight = row_at(gradients.weights, slot, weight_bytes(format.dtype));
    sum_rows(format.dtype, &from, weight, 1, format.hidden, to);
  };
  const auto finish = [this, format, gradients] { multiply_gradients(format, gradients); };
  return to_experts(call, "combine_backward", gradients.row_gradients, put, finish);
}

void HostRows::multiply_gradients(const RowFormat& format, const CombineGradients& gradients) const {
  if (!gradients.weight_gradients) return;
  const size_t row_bytes = format.plain_bytes(), bytes = weight_bytes(format.dtype);
  const std::vector<size_t>& positions = plan_.positions();
  for (size_t slot = 0; slot < positions.size(); ++slot) {
    std::byte* weight = row_at(gradients.weight_gradients, slot, bytes);
    if (positions[slot] == MoePlan::kNowhere)
      clear_rows(weight, bytes);
    else
      multiply_rows(format.dtype, row_at(gradients.out_gradients, slot / plan_.settings().top_k, row_bytes),
                    row_at(gradients.returned, slot, row_bytes), format.hidden, weight);
  }
}

// ---- back to the tokens

std::shared_ptr<Work> HostRows::to_tokens(const RowCall& call, const char* name, const void* rows,
                                          const std::function<void(const std::byte*)>& finish) {
  const RowFormat& format = call.format;
  RowExchange& exchange = plan_.exchange();
  exchange.expect_idle();
  const size_t bytes = format.plain_bytes();
  const auto* sent = static_cast<const std::byte*>(rows);
  if (!is_direct(format)) {
    std::byte* packed = exchange.expert_side(format);
    for (const RowRun& run : plan_.runs())
      copy_bytes(row_at(packed, run.received, bytes), row_at(rows, run.expert, bytes), run.count * bytes);
    sent = packed;
  }
  const bool is_alone = plan_.ranks() == 1;
  std::byte* received = is_alone ? nullptr : exchange.token_side(format);
  const std::byte* returned = is_alone ? sent : received;
  const auto finish_all = [plan = plan_.shared_from_this(), finish, returned] { finish(returned); };
  return exchange.run(call.comm, plan_.step(name, false), format, sent, received, finish_all, call.starts);
}

void HostRows::sum_tokens(const RowFormat& format, const std::byte* rows, const void* weights,
                          void* out) const {
  const size_t bytes = format.plain_bytes(), bytes_of_weight = weight_bytes(format.dtype);
  std::array<const void*, 64> own;
  std::array<double, 64> factors;  // large enough for weights of any type
  const std::vector<size_t>& positions = plan_.positions();
  const size_t top_k = plan_.settings().top_k;
  for (size_t token = 0; token < plan_.tokens(); ++token) {
    size_t count = 0;
    for (size_t slot = token * top_k; slot < (token + 1) * top_k; ++slot) {
      if (positions[slot] == MoePlan::kNowhere) continue;
      own[count] = row_at(rows, positions[slot], bytes);
      if (weights)
        std::memcpy(row_at(static_cast<void*>(factors.data()), count, bytes_of_weight),
                    row_at(weights, slot, bytes_of_weight), bytes_of_weight);
      ++count;
    }
    if (count == 0)
      clear_rows(row_at(out, token, bytes), bytes);
    else
      sum_rows(format.dtype, own.data(), weights ? factors.data() : nullptr, count, format.hidden,
               row_at(out, token, bytes));
  }
}

void HostRows::copy_returned(const RowFormat& format, const std::byte* rows, void* returned) const {
  const size_t bytes = format.plain_bytes();
  const std::vector<size_t>& positions = plan_.positions();
  for (size_t slot = 0; slot < positions.size(); ++slot)
    if (positions[slot] == MoePlan::kNowhere)
      clear_rows(row_at(returned, slot, bytes), bytes);
    else
      copy_bytes(row_at(returned, slot, bytes), row_at(rows, positions[slot], bytes), bytes);
}

std::shared_ptr<Work> HostRows::combine(const RowCall& call, const void* rows, const Combined& combined) {
  const auto finish = [this, format = call.format, combined](const std::byte* received) {
    sum_tokens(format, received, combined.weights, combined.out);
    if (combined.returned) copy_returned(format, received, combined.returned);
  };
  return to_tokens(call, "combine", rows, finish);
}

std::shared_ptr<Work> HostRows::dispatch_backward(const RowCall& call, const void* row_gradients,
                                                  void* token_gradients) {
  const auto finish = [this, format = call.format, token_gradients](const std::byte* received) {
    sum_tokens(format, received, nullptr, token_gradients);
  };
  return to_tokens(call, "dispatch_backward", row_gradients, finish);
}

}  // namespace dsc
