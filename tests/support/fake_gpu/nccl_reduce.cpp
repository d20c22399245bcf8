// Reductions: small floats are added in f32 in rank order and rounded once. 8-bit floats saturate, as in
// CUDA's conversion.
#include <algorithm>
#include <limits>

#include "../../unit/dtype_reference.hpp"
#include "nccl_operation.hpp"

namespace fake_gpu {
namespace {

constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

// Combines two accumulators by the operation.
template <typename A>
A combine(NcclOp op, A a, A b) {
  switch (op) {
    case NcclOp::prod:
      return reference::combine<A>(DSC_OP_PROD, a, b);
    case NcclOp::max:
      return reference::maximum(a, b);
    case NcclOp::min:
      return reference::minimum(a, b);
    default:
      return reference::combine<A>(DSC_OP_SUM, a, b);
  }
}

template <typename T, typename A>
T rounded(A value) {
  if constexpr (std::is_same_v<T, reference::E4m3>)
    return T::from(std::isnan(value) ? value : std::clamp(value, -448.0F, 448.0F));
  else if constexpr (std::is_same_v<T, reference::E5m2>)
    return T::from(std::isnan(value) ? value : std::clamp(value, -57344.0F, 57344.0F));
  else
    return reference::from_accumulator<T>(value);
}

template <typename A>
A scaled(A value, double scale) {
  if (scale == 1) return value;
  if constexpr (std::is_integral_v<A>)  // wraps around, as sums do
    return static_cast<A>(static_cast<uint64_t>(value) * static_cast<uint64_t>(static_cast<int64_t>(scale)));
  else
    return value * static_cast<A>(scale);
}

constexpr size_t kBlock = 512;

template <typename T>
void reduce_as(NcclOp op, const std::vector<const char*>& inputs, const std::vector<double>& scales,
               char* output, size_t count) {
  using A = decltype(reference::to_accumulator(T()));
  A results[kBlock];
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t end = std::min(count - first, kBlock);
    for (size_t rank = 0; rank < inputs.size(); ++rank)
      for (size_t i = 0; i < end; ++i) {
        const A next =
            scaled<A>(reference::to_accumulator(reference::read<T>(inputs[rank], first + i)), scales[rank]);
        results[i] = rank == 0 ? next : combine<A>(op, results[i], next);
      }
    for (size_t i = 0; i < end; ++i) {
      const A result =
          op == NcclOp::avg ? static_cast<A>(results[i] / static_cast<A>(inputs.size())) : results[i];
      const T element = rounded<T, A>(result);
      std::memcpy(output + (first + i) * sizeof(T), &element, sizeof(T));
    }
  }
}

using Reduce = void (*)(NcclOp, const std::vector<const char*>&, const std::vector<double>&, char*, size_t);
constexpr Reduce kReduce[] = {
    reduce_as<int8_t>,  reduce_as<uint8_t>,         reduce_as<int32_t>,         reduce_as<uint32_t>,
    reduce_as<int64_t>, reduce_as<uint64_t>,        reduce_as<reference::F16>,  reduce_as<float>,
    reduce_as<double>,  reduce_as<reference::Bf16>, reduce_as<reference::E4m3>, reduce_as<reference::E5m2>};

template <typename T>
double number_as(const void* memory) {
  return static_cast<double>(reference::to_accumulator(reference::read<T>(memory, 0)));
}

using Number = double (*)(const void*);
constexpr Number kNumber[] = {
    number_as<int8_t>,  number_as<uint8_t>,         number_as<int32_t>,         number_as<uint32_t>,
    number_as<int64_t>, number_as<uint64_t>,        number_as<reference::F16>,  number_as<float>,
    number_as<double>,  number_as<reference::Bf16>, number_as<reference::E4m3>, number_as<reference::E5m2>};

}  // namespace

size_t bytes_of(NcclType type) { return kBytes[static_cast<unsigned>(type)]; }

double number_in(const void* memory, NcclType type) { return kNumber[static_cast<unsigned>(type)](memory); }

void reduce(const Operation& operation, const std::vector<const char*>& inputs,
            const std::vector<double>& scales, char* output, size_t count) {
  const bool own = static_cast<unsigned>(operation.op) > 4;
  kReduce[static_cast<unsigned>(operation.type)](own ? NcclOp::sum : operation.op, inputs, scales, output,
                                                 count);
}

}  // namespace fake_gpu
