// What an engine says of the library that it loads, for dsc_engines_json().
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dsc {

struct LibraryReport {
  std::string path;     // of what would be loaded; empty: nothing is
  std::string version;  // empty likewise
  std::string warning;  // what is known to be wrong with this version
  std::vector<const char*> features;
  std::optional<int> devices;
};

// Fills a report; throws the reason why the engine cannot be used, after what was found before.
using LookForLibrary = void (*)(LibraryReport& report);

}  // namespace dsc
