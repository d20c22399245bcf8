#include "tensor_parallel/rms_norm.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/group_ids.hpp"
#include "comm/note_writer.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// Size of a block of rows. The sums of a block are still in the second-level or third-level cache when they
// are normalized. Ranks synchronize at every block, so smaller blocks would be slower if processors are
// shared.
constexpr size_t kBlockBytes = size_t{1} << 20;

// Hashes the arguments that must be equal on all ranks. The element type is not included, because it is
// compared in every call.
uint64_t hash_of(const RmsNorm& norm, const RmsNormRows& rows) {
  const uint64_t shape = mix_id(rows.tokens, norm.hidden);
  const uint64_t given = (norm.weight ? 1u : 0u) + (rows.residual ? 2u : 0u);
  return mix_id(mix_id(shape, std::bit_cast<uint64_t>(norm.epsilon)), given) |
         1;  // a tag of 0 would mean that there is no tag
}

void describe(const RmsNorm& norm, const RmsNormRows& rows, Call& call) {
  char epsilon[24];  // enough digits to identify the value uniquely
  const auto [end, error] = std::to_chars(epsilon, epsilon + sizeof epsilon, norm.epsilon);
  NoteWriter note(call);
  note.add("eps ");
  note.add(std::string_view(epsilon, static_cast<size_t>(end - epsilon)));
  note.add(" ");
  note.add(rows.tokens);
  note.add("x");
  note.add(norm.hidden);
  if (rows.residual) note.add(" residual");
  if (norm.weight) note.add(" weight");
}

// Returns the all-reduce for a block of rows, without buffers and count.
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
  if (call.nonfinite != NonFiniteCheck::kOff)
    return rows.tokens;  // reported indices must refer to all elements
  return std::max<size_t>(1, kBlockBytes / (norm.hidden * dtype_bytes(norm.dtype)));
}

// Runs the all-reduce of a block. If inputs that are not finite count as a failure, it returns this failure
// instead of throwing, because the sums are still valid.
std::optional<Error> sum_block(Comm& comm, const Call& call) {
  std::optional<Error> found;
  capture([&] { comm.run(call); },
          [&](const Error& error) {
            if (error.failure().code != DSC_ERR_NONFINITE) throw Error(error);
            found.emplace(error);
          });
  return found;
}

// Normalizes the rows `begin` to `end` - 1. Their sums are in the output.
void normalize_block(const RmsNorm& norm, const RmsNormRows& rows, size_t begin, size_t end) {
  const size_t bytes = norm.hidden * dtype_bytes(norm.dtype);
  for (size_t offset = begin * bytes; offset < end * bytes; offset += bytes) {
    const auto row = [&](const void* all) {
      return all ? static_cast<const std::byte*>(all) + offset : nullptr;
    };
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
  do {  // runs once even without rows, because ranks compare the calls
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
