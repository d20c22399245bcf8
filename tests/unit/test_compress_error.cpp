// Error feedback: the error that is kept for the next round, compared with a plain loop.
#include "compress/error_feedback.hpp"
#include "compress_support.hpp"

namespace {

using support::Floats;
using support::Kind;

// The implementation reads and writes single vectors, so lengths near multiples of a vector matter.
void keeps_what_was_not_sent(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < support::cases(); ++i) {
    const size_t count = random() % 70;
    const Kind kind = i % 2 == 0 ? Kind::kNormal : Kind::kSpecial;
    const Floats wanted = support::random_floats(count, kind, random);
    const Floats sent = support::random_floats(count, kind, random);
    Floats expected(count);
    for (size_t k = 0; k < count; ++k) {
      const float rest = wanted[k] - sent[k];
      expected[k] = std::isfinite(rest) ? rest : 0.0F;
    }
    Floats error;
    support::same_everywhere([&] {
      error = wanted;
      dsc::keep_error(error.data(), sent.data(), count);
      const auto* bytes = reinterpret_cast<const uint8_t*>(error.data());
      return support::Bytes(bytes, bytes + count * sizeof(float));
    });
    assert_memory_equal(error.data(), expected.data(), count * sizeof(float));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(keeps_what_was_not_sent)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
