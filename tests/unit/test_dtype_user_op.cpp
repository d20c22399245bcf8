// User-defined reduce operations: the arguments of the function, and the handling of its failures.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fixed_text.hpp"
#include "base/guard.hpp"
#include "dtype/user_op.hpp"
#include "dtype_reference.hpp"
#include "dtype_support.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

struct Seen {
  size_t calls = 0;
  size_t elements = 0;
  bool aligned = true;
  int32_t returns = 0;
  std::string reason;
};

// Computes result = result * 3 + input, byte by byte, which is neither commutative nor associative.
dsc::UserOp chain(Seen& seen) {
  const auto function = [&seen](const dsc::UserOpCall& call) {
    const size_t bytes = dsc::dtype_bytes(call.dtype);
    ++seen.calls;
    seen.elements += call.count;
    for (const auto address :
         {reinterpret_cast<uintptr_t>(call.input), reinterpret_cast<uintptr_t>(call.result)})
      seen.aligned = seen.aligned && address % bytes == 0;
    for (size_t i = 0; i < call.count * bytes; ++i) {
      auto& byte = static_cast<uint8_t*>(call.result)[i];
      byte = static_cast<uint8_t>(byte * 3 + static_cast<const uint8_t*>(call.input)[i]);
    }
    dsc::append_text(call.error.data(), call.error.size(), seen.reason);
    return seen.returns;
  };
  return {function, 7, false};
}

std::vector<uint8_t> chained(const std::vector<std::vector<uint8_t>>& srcs) {
  std::vector<uint8_t> result(srcs[0]);
  for (size_t s = 1; s < srcs.size(); ++s)
    for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<uint8_t>(result[i] * 3 + srcs[s][i]);
  return result;
}

// Checks all destinations of a reduction. If `in_place`, the second destination is also a source. The sources
// begin `skew` bytes after an aligned address.
void check_chain(int32_t dtype, size_t src_count, size_t count, size_t skew, bool in_place, int streamed) {
  const size_t bytes = count * dsc::dtype_bytes(dtype);
  std::mt19937 random(7);
  std::vector<std::vector<uint8_t>> values(src_count, std::vector<uint8_t>(bytes)), buffers;
  std::vector<const void*> srcs;
  for (auto& value : values) {
    std::generate(value.begin(), value.end(), [&] { return static_cast<uint8_t>(random()); });
    auto& buffer = buffers.emplace_back(bytes + 64, uint8_t{0xa5});
    srcs.push_back(std::copy(value.begin(), value.end(), buffer.data() + 16 + skew) - bytes);
  }
  std::vector<uint8_t> first(bytes + 16, 0xa5), second(bytes + 16, 0xa5);
  uint8_t* const last = buffers.back().data() + 16 + skew;
  uint8_t* const dsts[] = {first.data() + 5, in_place ? last : second.data() + 8};
  void* const targets[] = {dsts[0], dsts[1]};

  Seen seen;
  const dsc::UserOp op = chain(seen);
  dsc::ReduceSpec spec{dtype, 0};
  spec.user = &op;
  spec.streamed = streamed;
  dsc::reduce(spec, srcs.data(), static_cast<int>(src_count), targets, 2, count);
  const auto expected = chained(values);
  for (const uint8_t* dst : dsts)
    if (!std::equal(expected.begin(), expected.end(), dst) || dst[bytes] != 0xa5 || dst[-1] != 0xa5)
      fail_msg("%s, %zu sources of %zu at %zu", dsc::dtype_name(dtype), src_count, count, skew);
  assert_true(seen.aligned);
  assert_int_equal(seen.elements, count * (src_count - 1));
}

void combines_in_order_in_tiles(void**) {
  for (int32_t dtype = DSC_DTYPE_I8; dtype <= DSC_DTYPE_BOOL; ++dtype)
    for (const size_t src_count : {1, 2, 5})
      for (const size_t count : {0, 1, 7, 200, 4096, 40000})
        for (const size_t skew : {0, 1, 3, 16})
          for (const bool in_place : {false, true})
            check_chain(dtype, src_count, count, skew, in_place, static_cast<int>(skew % 3));
}

struct Call {
  Seen seen;
  dsc::UserOp op = chain(seen);
  dsc::ReduceSpec spec{DSC_DTYPE_F32, 0};

  std::string failure(dsc_result_t expected) {
    const float values[] = {1, 2};
    float result = 0;
    const void* srcs[] = {&values[0], &values[1]};
    void* dst = &result;
    spec.user = &op;
    try {
      dsc::reduce(spec, srcs, 2, &dst, 1, 1);
    } catch (const dsc::Error& error) {
      assert_int_equal(error.code(), expected);
      assert_false(dsc::in_callback());
      assert_true(result == 0);
      return error.what();
    }
    return "";
  }
};

void reports_what_the_function_returned(void**) {
  Call call;
  call.seen.returns = 3;
  assert_string_equal(call.failure(DSC_ERR_CALLBACK).c_str(), "user operation 7 returned 3");
  call.seen.returns = -1;
  assert_string_equal(call.failure(DSC_ERR_CALLBACK).c_str(), "user operation 7 returned -1");
  call.seen.reason = "no bananas";
  assert_string_equal(call.failure(DSC_ERR_CALLBACK).c_str(), "user operation 7 returned -1: no bananas");
  call.seen.reason.assign(1000, 'x');
  const std::string cut = "user operation 7 returned -1: " + std::string(255, 'x');
  assert_string_equal(call.failure(DSC_ERR_CALLBACK).c_str(), cut.c_str());
  assert_int_equal(call.seen.calls, 4);
}

int32_t throws(const dsc::UserOpCall&) { throw std::runtime_error("no bananas"); }
int32_t throws_a_number(const dsc::UserOpCall&) { throw 5; }

void reports_what_the_function_threw(void**) {
  Call call;
  call.op.function = throws;
  assert_string_equal(call.failure(DSC_ERR_CALLBACK).c_str(), "user operation 7 threw: no bananas");
  call.op.function = throws_a_number;
  assert_string_equal(call.failure(DSC_ERR_CALLBACK).c_str(),
                      "user operation 7 threw: an exception of an unknown type");
}

void refuses_scales_and_unknown_types(void**) {
  Call call;
  call.spec.prescale = 0.5;
  assert_non_null(std::strstr(call.failure(DSC_ERR_UNSUPPORTED).c_str(), "takes no scale"));
  call.spec = {DSC_DTYPE_F32, 0, 2};
  assert_non_null(std::strstr(call.failure(DSC_ERR_UNSUPPORTED).c_str(), "takes no scale"));
  call.spec = {14, 0};
  assert_string_equal(call.failure(DSC_ERR_UNSUPPORTED).c_str(), "14 is not an element type");
  assert_int_equal(call.seen.calls, 0);
}

// Inside the function, calls of the library are refused, and the floating-point mode is that of all kernels.
int32_t looks_around(Seen& seen) {
  volatile float one = 1;
  const bool to_nearest = one + 1e-20f == 1;
  if (dsc::check_entry("test") == DSC_ERR_REENTRANT && to_nearest) ++seen.calls;
  return 0;
}

void runs_as_a_callback_in_the_usual_mode(void**) {
  Call call;
  call.op.function = [&](const dsc::UserOpCall&) { return looks_around(call.seen); };
  std::fesetround(FE_UPWARD);
  call.failure(DSC_OK);
  const int after = std::fegetround();
  std::fesetround(FE_TONEAREST);
  assert_int_equal(after, FE_UPWARD);
  assert_int_equal(call.seen.calls, 1);
  assert_int_equal(dsc::check_entry("test"), DSC_OK);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(combines_in_order_in_tiles),
      cmocka_unit_test(reports_what_the_function_returned),
      cmocka_unit_test(reports_what_the_function_threw),
      cmocka_unit_test(refuses_scales_and_unknown_types),
      cmocka_unit_test(runs_as_a_callback_in_the_usual_mode),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
