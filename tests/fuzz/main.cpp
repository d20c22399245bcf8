// The entry point for libFuzzer. DSC_FUZZ_TARGET names the target.
#include <cstdio>
#include <cstdlib>

#include "fuzz.hpp"

namespace {

using namespace dsc::fuzz;

constexpr struct {
  std::string_view name;
  void (*run)(Bytes);
} kTargets[] = {
    {"address", fuzz_address},
    {"hosts", fuzz_hosts},
    {"hello", fuzz_hello},
    {"launch", fuzz_launch},
    {"mesh", fuzz_mesh},
    {"schedule_table", fuzz_schedule_table},
    {"schedule_text", fuzz_schedule_text},
    {"server", fuzz_server},
    {"server_tcp", fuzz_server_tcp},
    {"table", fuzz_table},
    {"transport", fuzz_transport},
};

void (*chosen)(Bytes) = nullptr;

}  // namespace

void dsc::fuzz::require(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const name = std::getenv("DSC_FUZZ_TARGET");
  for (const auto& target : kTargets)
    if (name != nullptr && target.name == name) chosen = target.run;
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "DSC_FUZZ_TARGET is '%s', expected one of", name == nullptr ? "" : name);
  for (const auto& target : kTargets) std::fprintf(stderr, " %s", target.name.data());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  chosen({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
