#include "tensor_parallel/rms_norm.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/hash.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// The sums of a block, with the residual and the result, stay in a second-level cache of 1 MiB.
constexpr size_t kBlockBytes = 256 * size_t{1024};

template <typename T>
uint64_t hash_value(const T& value, uint64_t start) {
  return fnv1a({reinterpret_cast<const char*>(&value), sizeof value}, start);
}

// What all ranks must have given alike, besides the type, which every call compares.
uint64_t hash_of(const RmsNorm& norm, const RmsNormRows& rows) {
  uint64_t hash = hash_value(rows.tokens, kFnvStart);
  hash = hash_value(norm.hidden, hash);
  hash = hash_value(norm.epsilon, hash);
  hash = hash_value(norm.weight != nullptr, hash);
  return hash_value(rows.residual != nullptr, hash) | 1;  // 0 would stand for no tag
}

void describe(const RmsNorm& norm, const RmsNormRows& rows, Call& call) {
  const std::string residual = rows.residual ? "residual " : "", weight = norm.weight ? "weight " : "";
  const std::string shape = std::to_string(rows.tokens) + "x" + std::to_string(norm.hidden);
  char epsilon[16];
  std::snprintf(epsilon, sizeof epsilon, "%.6g", norm.epsilon);
  const std::string text = residual + weight + "eps " + epsilon + " " + shape;
  std::snprintf(call.note, sizeof call.note, "%s", text.c_str());
}

// The all-reduce of all rows, whose buffers are still those of the first one.
Call sum_of_rows(const Comm& comm, const RmsNorm& norm, const RmsNormRows& rows) {
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = norm.dtype;
  call.op = DSC_OP_SUM;
  call.tag = hash_of(norm, rows);
  call.nonfinite = comm.nonfinite()->check_for(norm.dtype);
  describe(norm, rows, call);
  return call;
}

size_t rows_of_block(const RmsNorm& norm, const RmsNormRows& rows, const Call& call) {
  if (call.nonfinite != NonFiniteCheck::kOff) return rows.tokens;  // elements are told by their number in all
  return std::max<size_t>(1, kBlockBytes / (norm.hidden * dtype_bytes(norm.dtype)));
}

// Inputs that are not finite may be a failure, but leave a result all the same.
std::optional<Error> sum_block(Comm& comm, const Call& call) {
  std::optional<Error> found;
  capture([&] { comm.run(call); },
          [&](const Error& error) {
            if (error.failure().code != DSC_ERR_NONFINITE) throw Error(error);
            found.emplace(error);
          });
  return found;
}

// The rows `begin` to `end` - 1, whose sums are in the output.
void normalize_block(const RmsNorm& norm, const RmsNormRows& rows, size_t begin, size_t end) {
  const size_t bytes = norm.hidden * dtype_bytes(norm.dtype);
  for (size_t offset = begin * bytes; offset < end * bytes; offset += bytes) {
    const auto row = [&](const void* all) { return all ? static_cast<const std::byte*>(all) + offset : nullptr; };
    std::byte* const out = static_cast<std::byte*>(rows.output) + offset;
    std::byte* const kept = rows.residual_out ? static_cast<std::byte*>(rows.residual_out) + offset : out;
    normalize_row(norm, out, row(rows.residual), kept, out);
  }
}

}  // namespace

void all_reduce_rms_norm(Comm& comm, const RmsNorm& norm, const RmsNormRows& rows) {
  Call call = sum_of_rows(comm, norm, rows);
  const size_t bytes = norm.hidden * dtype_bytes(norm.dtype), most = rows_of_block(norm, rows, call);
  size_t begin = 0;
  do {  // also without rows, which ranks compare as well
    const size_t end = begin + std::min(most, rows.tokens - begin);
    call.send = rows.tokens == 0 ? rows.input : static_cast<const std::byte*>(rows.input) + begin * bytes;
    call.recv = rows.tokens == 0 ? rows.output : static_cast<std::byte*>(rows.output) + begin * bytes;
    call.count = (end - begin) * norm.hidden;
    const std::optional<Error> found = sum_block(comm, call);
    normalize_block(norm, rows, begin, end);
    if (found) throw Error(*found);
    begin = end;
  } while (begin < rows.tokens);
}

}  // namespace dsc
