#include "hooks/wire.hpp"

#include <cstdio>

#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

// The division comes before the sum, in the type that is sent, as PyTorch's hooks do it.
void WireSum::start(Comm& group, int32_t dtype, void* values, size_t count, int32_t wire_dtype,
                    double divisor, const char* note) {
  dtype_ = dtype;
  wire_dtype_ = wire_dtype;
  values_ = values;
  count_ = count;
  void* sent = values;
  if (wire_dtype != dtype) {
    narrow_.resize(count * dtype_bytes(wire_dtype));
    sent = narrow_.data();
    cast(wire_dtype, sent, dtype, values, count);
  }
  if (divisor != 1) divide(wire_dtype, sent, sent, count, divisor);
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = wire_dtype;
  call.op = DSC_OP_SUM;
  call.send = sent;
  call.recv = sent;
  call.count = count;
  std::snprintf(call.note, sizeof call.note, "%s", note);
  work_ = group.start(call);
}

void WireSum::finish() {
  work_.reset();
  if (wire_dtype_ != dtype_) cast(dtype_, values_, wire_dtype_, narrow_.data(), count_);
}

}  // namespace dsc
