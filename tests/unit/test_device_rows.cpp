// The kernels that copy, sum and multiply rows by lists of row numbers, on the fake GPU or a real one,
// compared with the host's functions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "device/kernels.hpp"
#include "dtype_support.hpp"
#include "expert_parallel/row_sums.hpp"
#include "kernels_support.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using support::gpu;
using support::Kernels;
using support::Memory;

constexpr int32_t kTypes[] = {DSC_DTYPE_F64, DSC_DTYPE_F32, DSC_DTYPE_F16, DSC_DTYPE_BF16};

void fill(int32_t dtype, uint8_t* bytes, uint64_t count, std::mt19937_64& random) {
  const size_t size = dsc::dtype_bytes(dtype);
  std::vector<uint8_t> some(support::kMaxCount * 8);
  for (uint64_t at = 0; at < count; at += support::kMaxCount) {
    support::fill(dtype, some.data(), random);
    std::memcpy(bytes + at * size, some.data(), std::min<uint64_t>(support::kMaxCount, count - at) * size);
  }
}

// Row numbers below `rows`. One of five means "no row".
class List {
 public:
  List(size_t count, size_t rows, std::mt19937_64& random) : memory_(count * sizeof(int64_t)) {
    for (size_t i = 0; i < count; ++i)
      entries_.push_back(random() % 5 == 0 ? -1 : static_cast<int64_t>(random() % rows));
    std::memcpy(memory_.data(), entries_.data(), memory_.size());
  }
  int64_t operator[](size_t at) const { return entries_[at]; }
  uint64_t at() { return memory_.at(); }

 private:
  std::vector<int64_t> entries_;
  Memory memory_;
};

// Compares arrays. All NaNs count as equal: the host may keep the bits of an input's NaN, but the GPU need
// not.
bool are_equal(int32_t dtype, const uint8_t* found, const uint8_t* expected, size_t count) {
  const size_t bytes = dsc::dtype_bytes(dtype);
  const auto& accessors = reference::accessors(dtype);
  for (size_t i = 0; i < count; ++i)
    if (std::memcmp(found + i * bytes, expected + i * bytes, bytes) != 0 &&
        !(std::isnan(accessors.value(found, i)) && std::isnan(accessors.value(expected, i))))
      return false;
  return true;
}

void finish() { Memory::finish(); }

// ---- copies

void check_gather(const Kernels& kernels, size_t rows, size_t row_bytes, size_t skew) {
  std::mt19937_64 random(rows * 1000 + row_bytes);
  Memory from(7 * row_bytes, skew), to(rows * row_bytes, skew / 2);
  List list(rows, 7, random);
  fill(DSC_DTYPE_U8, from.data(), from.size(), random);
  kernels.unfinished().gather_rows({from.at(), to.at(), list.at(), rows, row_bytes}, gpu().stream);
  finish();
  const std::vector<uint8_t> zeros(row_bytes);
  bool is_right = to.frame_is_untouched();
  for (size_t row = 0; row < rows; ++row) {
    const uint8_t* expected =
        list[row] < 0 ? zeros.data() : from.data() + static_cast<size_t>(list[row]) * row_bytes;
    is_right &= std::memcmp(to.data() + row * row_bytes, expected, row_bytes) == 0;
  }
  if (!is_right) fail_msg("%zu rows of %zu bytes, %zu off", rows, row_bytes, skew);
}

void rows_are_copied(void**) {
  const Kernels kernels;
  for (const size_t rows : {1, 2, 9, 300})
    for (const size_t row_bytes : {1, 2, 6, 12, 24, 64, 200, 4096, 16400})
      check_gather(kernels, rows, row_bytes, 0);
  for (size_t skew = 0; skew < 16; ++skew) check_gather(kernels, 33, 96, skew);
}

// ---- sums

struct SumCase {
  int32_t dtype;
  size_t rows, elements, terms;
  bool weighs, names_weights;
  size_t skew;
};

void check_sum(const Kernels& kernels, const SumCase& of) {
  const size_t size = dsc::dtype_bytes(of.dtype), weight = dsc::weight_bytes(of.dtype), inputs = 11;
  std::mt19937_64 random(of.rows * 1000 + of.elements * 10 + of.terms);
  Memory from(inputs * of.elements * size, of.skew), to(of.rows * of.elements * size, of.skew);
  Memory weights(of.rows * of.terms * weight);
  List list(of.rows * of.terms, inputs, random);
  List names(of.rows * of.terms, of.rows * of.terms, random);
  fill(of.dtype, from.data(), inputs * of.elements, random);
  fill(weight == 8 ? DSC_DTYPE_F64 : DSC_DTYPE_F32, weights.data(), of.rows * of.terms, random);
  std::vector<uint8_t> expected(to.size());
  for (size_t row = 0; row < of.rows; ++row) {
    std::vector<const void*> own;
    std::vector<uint8_t> factors;
    for (size_t term = row * of.terms; term < (row + 1) * of.terms; ++term) {
      if (list[term] < 0) continue;
      own.push_back(from.data() + static_cast<size_t>(list[term]) * of.elements * size);
      const size_t name = of.names_weights ? static_cast<size_t>(std::max<int64_t>(names[term], 0)) : term;
      factors.insert(factors.end(), weights.data() + name * weight, weights.data() + (name + 1) * weight);
    }
    if (!own.empty())
      dsc::sum_rows(of.dtype, own.data(), of.weighs ? factors.data() : nullptr, own.size(), of.elements,
                    expected.data() + row * of.elements * size);
  }
  Memory named(of.rows * of.terms * sizeof(int64_t));
  for (size_t i = 0; i < of.rows * of.terms; ++i) {
    const int64_t name = std::max<int64_t>(names[i], 0);
    std::memcpy(named.data() + i * sizeof name, &name, sizeof name);
  }
  kernels.unfinished().sum_rows({.from = from.at(),
                                 .to = to.at(),
                                 .index = list.at(),
                                 .rows = of.rows,
                                 .elements = of.elements,
                                 .terms = static_cast<uint32_t>(of.terms),
                                 .dtype = of.dtype,
                                 .weights = of.weighs ? weights.at() : 0,
                                 .weight_index = of.weighs && of.names_weights ? named.at() : 0},
                                gpu().stream);
  finish();
  if (!are_equal(of.dtype, to.data(), expected.data(), of.rows * of.elements) || !to.frame_is_untouched())
    fail_msg("%s, %zu sums of %zu rows of %zu elements, %s, %zu off", dsc::dtype_name(of.dtype), of.rows,
             of.terms, of.elements, of.weighs ? of.names_weights ? "named weights" : "weights" : "no weights",
             of.skew);
}

void sums_are_the_hosts(void**) {
  const Kernels kernels;
  for (const int32_t dtype : kTypes) {
    for (const size_t terms : {1, 2, 3, 4, 5, 8, 13})
      for (const size_t elements : {1, 7, 16, 64, 1000})
        for (int kind = 0; kind < 3; ++kind)
          check_sum(kernels, {dtype, 5, elements, terms, kind > 0, kind > 1, 0});
    check_sum(kernels, {dtype, 700, 24, 2, true, false, 0});
    for (size_t skew = 8; skew < 24; skew += 8) check_sum(kernels, {dtype, 9, 64, 3, true, false, skew});
  }
}

// ---- products

void check_products(const Kernels& kernels, int32_t dtype, size_t count, size_t divisor, size_t elements) {
  const size_t size = dsc::dtype_bytes(dtype), weight = dsc::weight_bytes(dtype);
  std::mt19937_64 random(count * 1000 + elements);
  Memory from((count / divisor + 1) * elements * size), other(count * elements * size), to(count * weight);
  Memory partial(dsc::Kernels::partial_bytes(count));
  List list(count, 3, random);
  fill(dtype, from.data(), (count / divisor + 1) * elements, random);
  fill(dtype, other.data(), count * elements, random);
  std::vector<uint8_t> expected(to.size());
  for (size_t i = 0; i < count; ++i)
    if (list[i] >= 0)
      dsc::multiply_rows(dtype, from.data() + i / divisor * elements * size,
                         other.data() + i * elements * size, elements, expected.data() + i * weight);
  kernels.unfinished().multiply_rows({.from = from.at(),
                                      .other = other.at(),
                                      .index = list.at(),
                                      .to = to.at(),
                                      .partial = partial.at(),
                                      .count = count,
                                      .divisor = divisor,
                                      .elements = elements,
                                      .dtype = dtype},
                                     gpu().stream);
  finish();
  if (!are_equal(weight == 8 ? DSC_DTYPE_F64 : DSC_DTYPE_F32, to.data(), expected.data(), count) ||
      !to.frame_is_untouched())
    fail_msg("%s, %zu products of %zu elements, divided by %zu", dsc::dtype_name(dtype), count, elements,
             divisor);
}

void products_are_the_hosts(void**) {
  const Kernels kernels;
  for (const int32_t dtype : kTypes)
    for (const size_t elements : {1, 7, 8, 9, 255, 256, 1000})
      for (const size_t divisor : {1, 3}) {
        check_products(kernels, dtype, 5, divisor, elements);
        check_products(kernels, dtype, 1200, divisor, std::min<size_t>(elements, 30));
      }
}

void what_is_not_there(void**) {
  const Kernels kernels;
  kernels.unfinished().gather_rows({0, 0, 0, 0, 64}, gpu().stream);
  kernels.unfinished().gather_rows({0, 0, 0, 5, 0}, gpu().stream);
  kernels.unfinished().sum_rows(
      {.from = 0, .to = 0, .index = 0, .rows = 0, .elements = 4, .terms = 1, .dtype = DSC_DTYPE_F32},
      gpu().stream);
  assert_int_equal(support::watch.grids.size(), 0);
  try {
    kernels.unfinished().sum_rows(
        {.from = 0, .to = 0, .index = 0, .rows = 1, .elements = 1, .terms = 1, .dtype = DSC_DTYPE_I32},
        gpu().stream);
    fail_msg("i32 rows were summed");
  } catch (const dsc::Error& error) {
    assert_int_equal(error.code(), DSC_ERR_UNSUPPORTED);
    assert_non_null(std::strstr(error.what(), "no kernel sums rows of i32 (dtype 3)"));
  }
}

void nobody_misused_the_driver(void**) {
  const auto misuses = gpu().symbol<int()>("fake_gpu_misuses");
  if (misuses) assert_int_equal(misuses(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_copied),           cmocka_unit_test(sums_are_the_hosts),
      cmocka_unit_test(products_are_the_hosts),    cmocka_unit_test(what_is_not_there),
      cmocka_unit_test(nobody_misused_the_driver),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
