// The header that is sent before activations with variable shapes, and the shapes of a buffer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/split_mix.hpp"
#include "pipeline_run/end_shapes.hpp"
#include "pipeline_run/shape_header.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using namespace dsc;

Tensor tensor_of(std::vector<int64_t>& sizes, int32_t dtype) {
  Tensor tensor;
  tensor.shape = sizes;
  tensor.has_shape = true;
  tensor.dtype = dtype;
  tensor.count = 1;
  for (const int64_t size : sizes) tensor.count *= static_cast<size_t>(size);
  return tensor;
}

struct Message {
  std::vector<int64_t> one{3, 5}, other{}, third{7};
  std::vector<Tensor> tensors{tensor_of(one, DSC_DTYPE_F32), tensor_of(other, DSC_DTYPE_I64),
                              tensor_of(third, DSC_DTYPE_BF16)};
  std::vector<int64_t*> places{one.data(), other.data(), third.data()};
  ShapeHeader header{11, 4, 2};
};

std::string problem_of(const std::vector<std::byte>& bytes, Message& receiver) {
  std::string problem;
  capture([&] { read_shape_header(bytes, receiver.header, receiver.tensors, receiver.places.data()); },
          [&](dsc_result_t code, const char* text) {
            assert_int_equal(code, DSC_ERR_MISMATCH);
            problem = text;
          });
  return problem;
}

void sizes_arrive(void**) {
  Message sender, receiver;
  sender.one[0] = 2;
  sender.third[0] = 0;
  const auto bytes = write_shape_header(sender.header, sender.tensors);
  assert_int_equal(bytes.size(), 24 + (8 + 16) + 8 + (8 + 8));
  assert_int_equal(bytes.size(), shape_header_bytes(receiver.tensors));
  assert_string_equal(problem_of(bytes, receiver).c_str(), "");
  assert_true(receiver.one == sender.one && receiver.third == sender.third);
}

// Every byte that is not part of a size is checked, and a refused message changes nothing.
void any_other_message_is_refused(void**) {
  Message sender;
  const auto bytes = write_shape_header(sender.header, sender.tensors);
  const auto is_size = [](size_t at) { return (at >= 32 && at < 48) || at >= 64; };
  for (size_t at = 0; at < bytes.size(); ++at) {
    Message receiver;
    receiver.one[0] = 1;
    auto wrong = bytes;
    wrong[at] ^= std::byte{1};
    const bool is_refused = !problem_of(wrong, receiver).empty();
    if (is_refused == is_size(at)) fail_msg("byte %zu: refused %d", at, is_refused);
    if (is_refused) assert_int_equal(receiver.one[0], 1);
  }
}

void what_differs_is_said(void**) {
  Message sender, receiver;
  const auto expect = [&](const char* text) {
    const auto bytes = write_shape_header(sender.header, sender.tensors);
    assert_string_equal(problem_of(bytes, receiver).c_str(), text);
    sender.header = receiver.header;
  };
  sender.header.sequence = 12;
  expect("the header of an activation has sequence number 12, expected 11");
  sender.header.micro_batch = 5;
  expect("the header of an activation has micro-batch 5, expected 4");
  sender.header.part = 3;
  expect("the header of an activation has part 3, expected 2");
  sender.tensors[0].dtype = DSC_DTYPE_F64;
  expect("the header of an activation has dtype 9, expected 8");
  auto bytes = write_shape_header(receiver.header, receiver.tensors);
  bytes.pop_back();
  assert_string_equal(problem_of(bytes, receiver).c_str(),
                      "the header of an activation has bytes 71, expected 72");
}

// The product of the sizes must neither be refused wrongly nor wrap around to a value that fits.
void shapes_fit_or_are_refused(void**) {
  std::vector<int64_t> largest{4, 6};
  EndShapes shapes({tensor_of(largest, DSC_DTYPE_F32)}, 2, true);
  SplitMix64 random(20261122);
  const int64_t interesting[] = {
      0, 1, 2, 3, 4, 5, 6, 7, 12, 24, 25, -1, INT64_MIN, INT64_MAX, int64_t{1} << 32, int64_t{1} << 62};
  const auto some = [&] { return interesting[random.next() % std::size(interesting)]; };
  const int cases = test_repetitions(100'000, 10'000);
  for (int i = 0; i < cases; ++i) {
    const int64_t rows = some(), columns = some();
    const int32_t slot = i % 2;
    shapes.reset(slot);
    assert_int_equal(shapes.row(slot)[0].count, 24);
    assert_int_equal(shapes.sizes()[0][1], 6);
    shapes.sizes()[0][0] = rows;
    shapes.sizes()[0][1] = columns;
    bool is_refused = false;
    capture([&] { shapes.take(slot, "output"); }, [&](dsc_result_t, const char*) { is_refused = true; });
    // in long double the product cannot wrap around
    const long double elements = static_cast<long double>(rows) * columns;
    const bool fits = rows >= 0 && columns >= 0 && elements <= 24;
    if (is_refused == fits)
      fail_msg("%lld x %lld: refused %d", static_cast<long long>(rows), static_cast<long long>(columns),
               is_refused);
    assert_int_equal(shapes.row(slot)[0].count, fits ? static_cast<size_t>(elements) : 24);
    assert_int_equal(shapes.row(slot)[0].shape[0], fits ? rows : 4);
    shapes.sizes()[0][0] = 99;  // changing the sizes after take() has no effect
    assert_int_equal(shapes.row(slot)[0].shape[0], fits ? rows : 4);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sizes_arrive),
      cmocka_unit_test(any_other_message_is_refused),
      cmocka_unit_test(what_differs_is_said),
      cmocka_unit_test(shapes_fit_or_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
