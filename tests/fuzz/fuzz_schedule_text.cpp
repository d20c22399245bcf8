// Schedules as text: a parsed schedule can be written, parses as the same schedule, and can be run.
#include <memory>
#include <string>

#include "base/error.hpp"
#include "fuzz.hpp"
#include "pipeline/text.hpp"
#include "schedules.hpp"

namespace dsc::fuzz {
namespace {

constexpr size_t kMostBytes = 4096;
constexpr size_t kFormats = 5;

std::shared_ptr<const PipelinePlan> accepted(Bytes text, PipeFormat format) {
  try {
    return read_schedule(text, format);
  } catch (const Error& error) {
    FUZZ_REQUIRE(error.code() == DSC_ERR_INVALID_ARG || error.code() == DSC_ERR_OVERFLOW);
    FUZZ_REQUIRE(*error.what() != '\0');
    return nullptr;
  }
}

}  // namespace

// The input has a byte for the format, then the text.
void fuzz_schedule_text(Bytes bytes) {
  Input input(bytes);
  const auto format = static_cast<PipeFormat>(1 + input.below(kFormats));
  const auto plan = accepted(input.take(kMostBytes), format);
  if (!plan) return;
  const std::string text = write_schedule(*plan, format);
  const auto again = read_schedule(text, format);
  FUZZ_REQUIRE(write_schedule(*again, format) == text);
  FUZZ_REQUIRE(fingerprint_of(*again) == fingerprint_of(*plan));
  check_lowering(*plan);
}

}  // namespace dsc::fuzz
