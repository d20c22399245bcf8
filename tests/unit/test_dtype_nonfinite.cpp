// The report of NaN and infinity in the inputs of a reduction.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <array>
#include <cmath>
#include <vector>

#include "dtype/reduce.hpp"
#include "dtype/user_op.hpp"
#include "dtype_reference.hpp"
#include "dtype_support.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::NonFinite;
using support::on_every_target;

constexpr std::array kOps = {DSC_OP_SUM, DSC_OP_PROD, DSC_OP_MAX, DSC_OP_MIN, DSC_OP_AVG};
constexpr size_t kSlack = 64;

using Sources = std::vector<std::vector<uint8_t>>;

NonFinite expected_report(int32_t dtype, const Sources& sources, size_t count, size_t skew) {
  NonFinite report;
  for (size_t s = 0; s < sources.size(); ++s)
    for (size_t i = 0; i < count; ++i)
      if (!std::isfinite(reference::accessors(dtype).value(sources[s].data() + skew, i))) {
        if (report.count++ == 0) report.source = static_cast<int>(s), report.index = i;
      }
  return report;
}

void assert_same(const NonFinite& got, const NonFinite& want, const char* what, const char* target) {
  if (got.count != want.count || got.source != want.source || got.index != want.index)
    fail_msg("%s: %zu from (%d, %zu), expected %zu from (%d, %zu), %s", what, size_t(got.count), got.source,
             got.index, size_t(want.count), want.source, want.index, target);
}

// Checks the report of a reduction, and that the result of the reduction is the same without a report.
void check_report(const dsc::ReduceSpec& spec, const Sources& sources, size_t count, size_t skew,
                  bool in_place, const char* target) {
  const size_t bytes = count * dsc::dtype_bytes(spec.dtype);
  Sources copies(sources);
  std::vector<const void*> srcs;
  for (auto& source : copies) srcs.push_back(source.data() + skew);
  std::vector<uint8_t> plain(bytes + kSlack), checked(bytes + kSlack);
  void* dst = plain.data();
  dsc::reduce(spec, srcs.data(), static_cast<int>(srcs.size()), &dst, 1, count);
  dst = in_place ? copies[0].data() + skew : checked.data();
  NonFinite report;
  dsc::reduce(spec, srcs.data(), static_cast<int>(srcs.size()), &dst, 1, count, &report);
  assert_memory_equal(dst, plain.data(), bytes);
  assert_same(report, expected_report(spec.dtype, sources, count, skew), dsc::dtype_name(spec.dtype), target);
}

// Returns sources with finite elements only. The tests then replace some of them.
Sources finite(int32_t dtype, size_t src_count, size_t count, size_t skew) {
  const size_t bytes = count * dsc::dtype_bytes(dtype);
  Sources sources(src_count, std::vector<uint8_t>(bytes + kSlack));
  std::mt19937 random(8);
  for (auto& source : sources)
    for (size_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(static_cast<int>(random() % 17)) - 8;
      reference::accessors(dtype).set(source.data() + skew, i, value);
    }
  return sources;
}

// Puts each kind of non-finite element alone at every position of a short array. Each must be found for every
// operation.
void finds_one_anywhere(void**) {
  on_every_target([](const char* target) {
    for (const int32_t dtype : support::kFloats)
      for (const int32_t op : kOps) {
        constexpr size_t kCount = 150;
        Sources sources = finite(dtype, 2, kCount, 0);
        for (const float bad : {NAN, INFINITY, -INFINITY})
          for (size_t at = 0; at < 2 * kCount; ++at) {
            auto& source = sources[at / kCount];
            const std::vector<uint8_t> before(source);
            reference::accessors(dtype).set(source.data(), at % kCount, bad);
            check_report({dtype, op, op == DSC_OP_AVG ? 3 : 1}, sources, kCount, 0, at % 2 == 0, target);
            source = before;
          }
      }
  });
}

// Random bits have many non-finite elements in all sources, and some results overflow although their inputs
// are finite.
void counts_many_in_any_shape(void**) {
  on_every_target([](const char* target) {
    for (const int32_t dtype : support::kFloats)
      for (const int32_t op : kOps)
        for (const size_t src_count : {1, 2, 3, 4, 5})
          for (const size_t count : {0, 1, 31, 64, 130, 1000})
            for (const size_t skew : {0, 3}) {
              Sources sources(src_count);
              std::mt19937_64 random(9);
              for (auto& source : sources) {
                source.resize(support::kMaxCount * 8 + kSlack);
                support::fill(dtype, source.data() + skew, random);
              }
              dsc::ReduceSpec spec{dtype, op, op == DSC_OP_AVG ? 3 : 1, skew == 3 ? 1.5 : 1.0};
              spec.streamed = skew == 0 && src_count == 2 ? dsc::kAllDestinations : 0;
              check_report(spec, sources, count, skew, src_count == 3, target);
            }
  });
}

void integers_have_none(void**) {
  const std::vector<uint64_t> ones(100, UINT64_MAX);
  std::vector<uint64_t> result(100);
  const void* srcs[] = {ones.data(), ones.data()};
  void* dst = result.data();
  for (const int32_t dtype : {DSC_DTYPE_I8, DSC_DTYPE_U8, DSC_DTYPE_I32, DSC_DTYPE_U32, DSC_DTYPE_I64,
                              DSC_DTYPE_U64, DSC_DTYPE_BOOL}) {
    NonFinite report;
    dsc::reduce({dtype, DSC_OP_SUM}, srcs, 2, &dst, 1, 100, &report);
    assert_same(report, {}, dsc::dtype_name(dtype), "");
  }
}

int32_t keep_first(const dsc::UserOpCall&) { return 0; }

void looks_at_inputs_of_user_operations(void**) {
  Sources sources = finite(DSC_DTYPE_F32, 3, 20000, 0);
  for (const size_t at : {19999, 10000, 12345})
    reference::accessors(DSC_DTYPE_F32).set(sources[2].data(), at, NAN);
  reference::accessors(DSC_DTYPE_F32).set(sources[1].data(), 15000, INFINITY);
  const dsc::UserOp op{keep_first, 1, false};
  dsc::ReduceSpec spec{DSC_DTYPE_F32, 0};
  spec.user = &op;
  check_report(spec, sources, 20000, 0, true, "");
}

// A report continues from call to call, and the reports of the parts of an array add up to the report of the
// array.
void reports_add_up(void**) {
  NonFinite whole;
  whole.add({}, 100);
  assert_same(whole, {}, "nothing", "");
  whole.add({2, 1, 7}, 100);
  assert_same(whole, {2, 1, 107}, "first", "");
  whole.add({1, 1, 7}, 200);
  assert_same(whole, {3, 1, 107}, "later index", "");
  whole.add({1, 1, 7}, 0);
  assert_same(whole, {4, 1, 7}, "earlier index", "");
  whole.add({5, 2, 0}, 0);
  assert_same(whole, {9, 1, 7}, "later source", "");
  whole.add({1, 0, 9}, 1000);
  assert_same(whole, {10, 0, 1009}, "earlier source", "");

  const float values[] = {1, NAN, 2};
  float result[3];
  const void* srcs[] = {values};
  void* dst = result;
  dsc::reduce({DSC_DTYPE_F32, DSC_OP_SUM}, srcs, 1, &dst, 1, 3, &whole);
  assert_same(whole, {11, 0, 1}, "by reduce", "");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(finds_one_anywhere), cmocka_unit_test(counts_many_in_any_shape),
      cmocka_unit_test(integers_have_none), cmocka_unit_test(looks_at_inputs_of_user_operations),
      cmocka_unit_test(reports_add_up),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
