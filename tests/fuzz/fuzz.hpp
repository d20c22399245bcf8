// What the fuzz targets share. One program contains all targets. Each target checks its input with its own
// oracle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dsc::fuzz {

using Bytes = std::string_view;

// Takes numbers and texts from the front of an input. At the end they are zero and empty.
class Input {
 public:
  explicit Input(Bytes bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }

  Bytes take(size_t bytes) {
    const Bytes taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  // Takes bytes up to `end`, which is dropped, or all remaining bytes if `end` does not occur.
  Bytes until(char end) {
    const Bytes taken = take(std::min(rest_.find(end), rest_.size()));
    take(1);
    return taken;
  }

  uint8_t byte() {
    const Bytes one = take(1);
    return one.empty() ? 0 : static_cast<uint8_t>(one[0]);
  }

  size_t below(size_t limit) { return byte() % limit; }

  Bytes rest() { return take(rest_.size()); }

 private:
  Bytes rest_;
};

// If `holds` is false, ends the run and reports the place.
void require(bool holds, const char* what, const char* file, int line);
#define FUZZ_REQUIRE(condition) ::dsc::fuzz::require((condition), #condition, __FILE__, __LINE__)

void fuzz_address(Bytes input);
void fuzz_hosts(Bytes input);
void fuzz_hello(Bytes input);
void fuzz_launch(Bytes input);
void fuzz_mesh(Bytes input);
void fuzz_schedule_table(Bytes input);
void fuzz_schedule_text(Bytes input);
void fuzz_server(Bytes input);
void fuzz_server_tcp(Bytes input);
void fuzz_table(Bytes input);
void fuzz_transport(Bytes input);

}  // namespace dsc::fuzz
