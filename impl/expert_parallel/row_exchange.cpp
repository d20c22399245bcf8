#include "expert_parallel/row_exchange.hpp"

#include <cstdio>
#include <numeric>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/group_ids.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "comm/work_set.hpp"
#include "dtype/dtype.hpp"
#include "expert_parallel/fp8_rows.hpp"

namespace dsc {
namespace {

std::shared_ptr<const BlockList> blocks_of(std::vector<size_t> rows, size_t row) {
  for (size_t& length : rows) length *= row;
  return std::make_shared<const BlockList>(std::move(rows));
}

size_t sum_of(const std::vector<size_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), size_t{0});
}

}  // namespace

size_t RowFormat::plain_bytes() const noexcept { return hidden * dtype_bytes(dtype); }

size_t RowFormat::bytes() const noexcept { return is_fp8 ? fp8_row_bytes(hidden) : plain_bytes(); }

RowExchange::RowExchange(std::vector<size_t> sent, std::vector<size_t> received, bool is_even,
                         std::shared_ptr<Scratch> scratch)
    : sent_(std::move(sent)),
      received_(std::move(received)),
      sent_rows_(sum_of(sent_)),
      received_rows_(sum_of(received_)),
      is_even_(is_even),
      scratch_(std::move(scratch)) {}

void RowExchange::expect_idle() const {
  const auto latest = latest_.lock();
  if (const auto operation = operation_.lock(); operation && !latest)
    wait_ignoring_failure(*operation, Deadline::never());
  if (latest && !latest->done())
    fail(DSC_ERR_STATE,
         "the previous call on this plan is not complete; expected a wait for its work, or a plan for each "
         "call in progress");
}

std::byte* RowExchange::token_side(const RowFormat& format) {
  memory_.tokens = scratch_->take(sent_rows_ * format.bytes());
  return memory_.tokens.get();
}

std::byte* RowExchange::expert_side(const RowFormat& format) {
  memory_.experts = scratch_->take(received_rows_ * format.bytes());
  return memory_.experts.get();
}

void RowExchange::set_blocks(Call& call, const Step& step, size_t row) {
  if (!blocks_.sent || blocks_.row != row) blocks_ = {row, blocks_of(sent_, row), blocks_of(received_, row)};
  call.send_blocks = step.to_experts ? blocks_.sent : blocks_.received;
  call.recv_blocks = step.to_experts ? blocks_.received : blocks_.sent;
}

Call RowExchange::call_of(const Step& step, const RowFormat& format) {
  Call call;
  call.dtype = format.is_fp8 ? DSC_DTYPE_U8 : format.dtype;
  const size_t row = format.bytes() / dtype_bytes(call.dtype);
  call.kind = is_even_ ? OpKind::kAllToAll : OpKind::kAllToAllV;
  if (is_even_)
    call.count = sent_.front() * row;
  else
    set_blocks(call, step, row);
  call.tag = mix_id(mix_id(step.tag, format.hidden), static_cast<uint64_t>(format.dtype)) | 1;
  std::snprintf(call.note, sizeof call.note, "%s, hidden %zu, %s%s", step.name, format.hidden,
                dtype_name(format.dtype), format.is_fp8 ? " as f8e4m3" : "");
  return call;
}

std::shared_ptr<Work> RowExchange::run(Comm& comm, const Step& step, const RowFormat& format,
                                       const std::byte* from, std::byte* to,
                                       const std::function<void()>& finish, bool starts) {
  const auto memory = std::make_shared<const Memory>(std::exchange(memory_, {}));
  if (comm.size() == 1) {
    finish();
    return starts ? std::make_shared<WorkSet>(0) : nullptr;
  }
  Call call = call_of(step, format);
  call.send = from;
  call.recv = to;
  call.owner = memory;
  if (!starts) {
    comm.run(call);
    finish();
    return nullptr;
  }
  const auto operation = comm.start(call);
  std::shared_ptr<FinishingWork> work;
  capture([&] { work = std::make_shared<FinishingWork>(operation, [finish, memory] { finish(); }); },
          // The operation must have ended before the caller gets the error, because the caller may then reuse
          // the buffers.
          [&](const Error& error) {
            comm.abort();
            wait_ignoring_failure(*operation, Deadline::never());
            throw Error(error);
          });
  operation_ = operation;
  latest_ = work;
  return work;
}

}  // namespace dsc
