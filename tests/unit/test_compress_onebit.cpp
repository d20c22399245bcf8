// One-bit compression: recorded rounds of DeepSpeed's compressed all-reduce with all ranks in this process,
// and each function against plain arithmetic.
#include <fstream>
#include <string>

#include "compress/onebit.hpp"
#include "json.hpp"

#include "compress_support.hpp"  // included last because cmocka.h defines a macro fail()

namespace {

using support::Bytes;
using support::Floats;
using support::Kind;

std::string vectors_path;

// The ranks of one all-reduce, and the errors that they keep from round to round.
struct Ranks {
  size_t n, padded;
  std::vector<Floats> worker_errors, server_errors;

  Ranks(size_t ranks, size_t count)
      : n(ranks),
        padded(dsc::onebit_padded(count, ranks)),
        worker_errors(n, Floats(padded)),
        server_errors(n, Floats(padded / n)) {}

  Floats all_reduce(const std::vector<Floats>& inputs) {
    std::vector<Bytes> bits(n, Bytes(padded / 8));
    Floats scales(n), result(inputs[0].size());
    for (size_t r = 0; r < n; ++r) scales[r] = dsc::compress_signs(inputs[r], worker_errors[r], bits[r]);
    for (size_t server = 0; server < n; ++server) {
      const size_t part = padded / n, first = server * part;
      Floats mean(part);
      for (size_t r = 0; r < n; ++r)
        dsc::add_signs(std::span(bits[r]).subspan(first / 8, part / 8), scales[r] / static_cast<float>(n),
                       mean);
      Bytes signs(part / 8);
      const float scale = dsc::compress_signs(mean, server_errors[server], signs);
      if (first < result.size())
        dsc::expand_signs(signs, scale,
                          std::span(result).subspan(first, std::min(part, result.size() - first)));
    }
    return result;
  }
};

void check_close(const Floats& got, const Floats& expected) {
  assert_int_equal(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - expected[i]) <= 1e-5f * std::fabs(expected[i]) + 2e-7f))
      fail_msg("element %zu is %.9g, expected %.9g", i, got[i], expected[i]);
}

void check_close(const std::vector<Floats>& got, const support::Json& expected) {
  for (size_t r = 0; r < got.size(); ++r) check_close(got[r], expected[r].get<Floats>());
}

void reduces_like_deepspeed(void**) {
  std::ifstream lines(vectors_path);
  std::string line;
  std::getline(lines, line);  // skips the line that describes the file
  int cases = 0;
  for (; std::getline(lines, line); ++cases) {
    const auto json = support::Json::parse(line);
    Ranks ranks(json["n"], json["numel"]);
    assert_int_equal(ranks.padded, json["corrected_numel"].get<size_t>());
    for (const auto& round : json["rounds"]) {
      std::vector<Floats> inputs;
      for (const auto& input : round["x"]) inputs.push_back(input.get<Floats>());
      check_close(ranks.all_reduce(inputs), round["y"].get<Floats>());
      check_close(ranks.worker_errors, round["worker_error"]);
      check_close(ranks.server_errors, round["server_error"]);
    }
  }
  assert_int_equal(cases, 5);
}

void pads_to_whole_bytes_of_every_rank(void**) {
  for (size_t ranks = 1; ranks <= 70; ++ranks) {
    for (size_t count = 0; count < 300; count += 7) {
      const size_t padded = dsc::onebit_padded(count, ranks);
      assert_true(padded >= count && padded % (8 * ranks) == 0);
      if (count > 0) assert_true(padded - count < ranks * 8 * ranks);
    }
    assert_int_equal(dsc::onebit_padded(0, ranks), 0);
  }
}

void check_compress(const Floats& values, const Floats& error) {
  Floats left;
  Bytes signs;
  float scale = 0;
  support::same_everywhere([&] {
    left = error;
    signs.assign(error.size() / 8, 0xa5);
    scale = dsc::compress_signs(values, left, signs);
    Bytes all = signs;
    support::append(all, left);
    support::append(all, {&scale, 1});
    return all;
  });
  double squares = 0;
  Floats corrected = error;
  for (size_t i = 0; i < values.size(); ++i) corrected[i] += values[i];
  for (const float c : corrected) squares += static_cast<double>(c) * c;
  const double mean = error.empty() ? 0 : squares / static_cast<double>(error.size());
  if (std::isfinite(mean)) {
    const double exact = std::sqrt(mean);
    assert_true(std::fabs(scale - exact) <= 1e-7 * exact + 1e-45);
  } else {
    assert_true(std::isnan(mean) ? std::isnan(scale) : std::isinf(scale));
  }
  for (size_t i = 0; i < error.size(); ++i) {
    const bool positive = (signs[i / 8] & 0x80 >> i % 8) != 0;
    if (!std::isnan(corrected[i])) assert_int_equal(positive, !std::signbit(corrected[i]));
    corrected[i] -= positive ? scale : -scale;
  }
  assert_true(support::same(left, corrected));
}

void compresses_like_plain_arithmetic(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < support::cases(); ++i) {
    const size_t padded = random() % 50 * 8, count = padded == 0 ? 0 : random() % (padded + 1);
    for (const Kind kind : {Kind::kNormal, Kind::kTiny, Kind::kFew, Kind::kZeros, Kind::kSpecial}) {
      const Kind error_kind = kind == Kind::kSpecial ? Kind::kNormal : kind;
      check_compress(support::random_floats(count, kind, random),
                     support::random_floats(padded, error_kind, random));
    }
  }
}

void spreads_like_plain_arithmetic(void**) {
  std::mt19937_64 random(2);
  for (int i = 0; i < support::cases(); ++i) {
    Bytes signs(random() % 50);
    for (uint8_t& byte : signs) byte = static_cast<uint8_t>(random());
    const size_t count = signs.empty() ? 0 : signs.size() * 8 - random() % 8;
    const Floats before = support::random_floats(count, Kind::kNormal, random);
    const float scale = support::random_float(i % 2 == 0 ? Kind::kNormal : Kind::kTiny, random);
    Floats sum, out, expected_sum = before, expected_out(count);
    for (size_t e = 0; e < count; ++e) {
      expected_out[e] = (signs[e / 8] & 0x80 >> e % 8) != 0 ? scale : -scale;
      expected_sum[e] += expected_out[e];
    }
    support::same_everywhere([&] {
      sum = before;
      out.assign(count, 7);
      dsc::add_signs(signs, scale, sum);
      dsc::expand_signs(signs, scale, out);
      Bytes all = support::bits(sum);
      support::append(all, out);
      return all;
    });
    assert_true(support::same(sum, expected_sum));
    assert_true(support::same(out, expected_out));
  }
}

// The loss of one round must be returned in later rounds: over many rounds the sum of the results approaches
// the sum of the inputs.
void errors_come_back(void**) {
  std::mt19937_64 random(3);
  const std::vector<Floats> inputs{support::random_floats(100, Kind::kNormal, random),
                                   support::random_floats(100, Kind::kNormal, random)};
  Ranks ranks(2, 100);
  std::vector<double> sums(100);
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    const Floats result = ranks.all_reduce(inputs);
    for (size_t i = 0; i < result.size(); ++i) sums[i] += result[i];
  }
  for (size_t i = 0; i < sums.size(); ++i)
    assert_true(std::fabs(sums[i] / kRounds - (inputs[0][i] + inputs[1][i]) / 2) < 0.05);
}

}  // namespace

int main(int, char** argv) {
  vectors_path = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(reduces_like_deepspeed),
      cmocka_unit_test(pads_to_whole_bytes_of_every_rank),
      cmocka_unit_test(compresses_like_plain_arithmetic),
      cmocka_unit_test(spreads_like_plain_arithmetic),
      cmocka_unit_test(errors_come_back),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
