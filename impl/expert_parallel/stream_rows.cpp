#include "expert_parallel/stream_rows.hpp"

#include "base/guard.hpp"

namespace dsc {
StreamRows::~StreamRows() {
  call_out([this] { plan_->note_use(stream_); });
}

DeviceBuffer& StreamRows::allocate(size_t bytes) {
  return memory_.emplace_back(*plan_->context().device, bytes, stream_);
}

void* StreamRows::take(size_t rows) {
  const size_t bytes = rows * format_.plain_bytes();
  return bytes == 0 ? nullptr : allocate(bytes).data();
}

void StreamRows::gather(const void* from, const RowList& list, void* to) {
  kernels().gather_rows({.from = address_of(from),
                         .to = address_of(to),
                         .index = list.address,
                         .rows = list.count,
                         .row_bytes = format_.plain_bytes()},
                        stream_);
}

void StreamRows::sum(const void* from, const RowList& list, const Sums& sums, void* to) {
  kernels().sum_rows({.from = address_of(from),
                      .to = address_of(to),
                      .index = list.address,
                      .rows = list.count / sums.terms,
                      .elements = format_.hidden,
                      .terms = static_cast<uint32_t>(sums.terms),
                      .dtype = format_.dtype,
                      .weights = address_of(sums.weights),
                      .weight_index = sums.weight_list.address},
                     stream_);
}

void StreamRows::multiply(const void* tokens, const void* others, void* products) {
  const RowList slots = plan_->positions();
  if (slots.count == 0) return;
  kernels().multiply_rows({.from = address_of(tokens),
                           .other = address_of(others),
                           .index = slots.address,
                           .to = address_of(products),
                           .partial = allocate(Kernels::partial_bytes(slots.count)).address(),
                           .count = slots.count,
                           .divisor = plan_->top_k(),
                           .elements = format_.hidden,
                           .dtype = format_.dtype},
                          stream_);
}

}  // namespace dsc
