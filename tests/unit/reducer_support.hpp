// Checks that work on threads, and models to reduce, for the tests of the reducer.
#pragma once

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "conformance/engine.hpp"
#include "dtype/dtype.hpp"
#include "dtype_reference.hpp"
#include "reducer/reducer.hpp"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

using dsc::Comm;
using dsc::Reducer;
using dsc::ReducerOptions;
using dsc::Tensor;
using Bytes = std::vector<char>;

// cmocka's assertions jump out of the test, which is allowed only on the test's thread. Other threads count
// their failures here.
inline std::atomic<int> complaints{0};

inline void check(bool good, const char* what, int line) {
  if (good) return;
  ++complaints;
  print_error("line %d: %s\n", line, what);
}
#define CHECK(condition) check((condition), #condition, __LINE__)

inline void on_ranks(int size, const std::function<void(Comm&)>& body) {
  conformance::on_ranks(size, body);
  assert_int_equal(complaints.exchange(0), 0);
  assert_int_equal(conformance::live_blocks(), 0);
}

template <typename Body>
void check_fails(Body body, dsc_result_t code, std::initializer_list<const char*> words, int line) {
  try {
    body();
    check(false, "expected a failure", line);
  } catch (const dsc::Error& error) {
    check(error.code() == code, ("unexpected code with: " + std::string(error.what())).c_str(), line);
    for (const char* word : words)
      check(std::strstr(error.what(), word), (word + std::string(" is not in: ") + error.what()).c_str(),
            line);
  }
}
#define CHECK_FAILS(call, code, ...) check_fails([&] { call; }, code, {__VA_ARGS__}, __LINE__)

// The parameters of a model and one gradient for each.
struct Model {
  std::vector<Tensor> params;
  std::vector<std::string> names;
  std::vector<Bytes> values;
  std::vector<Bytes> gradients;

  Model(std::vector<size_t> counts, std::vector<int32_t> dtypes) {
    names.reserve(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) {
      Tensor tensor;
      tensor.count = counts[i];
      tensor.dtype = dtypes[i % dtypes.size()];
      names.push_back(std::string(1, static_cast<char>('a' + i)));
      tensor.name = names.back().c_str();
      values.emplace_back(tensor.bytes());
      tensor.data = values.back().data();
      gradients.emplace_back(tensor.bytes());
      params.push_back(tensor);
    }
  }

  Tensor& operator[](size_t i) { return params[i]; }
  size_t size() const { return params.size(); }
  void* gradient(size_t i) { return gradients[i].data(); }
};

// Fills with numbers of many magnitudes, so that every rounding changes the result.
inline void fill(int32_t dtype, Bytes& bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t count = bytes.size() / dsc::dtype_bytes(dtype);
  for (size_t i = 0; i < count; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random() >> 11), -53 + static_cast<int>(random() % 8)) - 1;
    char* at = bytes.data() + i * dsc::dtype_bytes(dtype);
    const auto store = [at](auto number) { std::memcpy(at, &number, sizeof number); };
    if (dtype == DSC_DTYPE_F64) store(value);
    if (dtype == DSC_DTYPE_F32) store(static_cast<float>(value));
    if (dtype == DSC_DTYPE_F16) store(reference::F16::from(static_cast<float>(value)));
    if (dtype == DSC_DTYPE_BF16) store(reference::Bf16::from(static_cast<float>(value)));
    if (dtype == DSC_DTYPE_I64) store(static_cast<int64_t>(random()));
    if (dtype == DSC_DTYPE_I32) store(static_cast<int32_t>(random()));
  }
}

inline Bytes gradient_of(int32_t dtype, size_t count, int rank, size_t index, int step) {
  Bytes bytes(count * dsc::dtype_bytes(dtype));
  fill(dtype, bytes, static_cast<uint64_t>(rank) * 1'000'003 + index * 1009 + static_cast<uint64_t>(step));
  return bytes;
}

inline Bytes combined(int32_t dtype, const reference::Reduction& how, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  std::vector<const void*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  reference::reduce_for(dtype)(how, sources.data(), static_cast<int>(inputs.size()), result.data(),
                               result.size() / dsc::dtype_bytes(dtype));
  return result;
}

// Returns the defined result of an average, computed in rank order.
inline Bytes expected(int32_t dtype, int32_t average, bool copied, std::vector<Bytes> inputs) {
  const double n = static_cast<double>(inputs.size());
  if (average == DSC_AVERAGE_PRE) return combined(dtype, {DSC_OP_SUM, 1 / n}, inputs);
  if (average == DSC_AVERAGE_POST) return combined(dtype, {DSC_OP_SUM, 1, n}, inputs);
  if (average == DSC_AVERAGE_PYTORCH) {
    const reference::Reduction scale =
        copied ? reference::Reduction{DSC_OP_SUM, 1 / n} : reference::Reduction{DSC_OP_SUM, 1, n};
    for (Bytes& input : inputs) input = combined(dtype, scale, {input});
  }
  return combined(dtype, {DSC_OP_SUM}, inputs);
}
