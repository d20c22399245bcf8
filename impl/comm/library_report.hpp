// What an engine reports about the library that it loads, for dsc_engines_json().
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dsc {

struct LibraryReport {
  std::string path;     // of the file that would be loaded; empty: none
  std::string version;  // empty likewise
  std::string warning;  // known problems of this version
  std::vector<const char*> features;
  std::optional<int> devices;
};

// Fills a report. Throws the reason why the engine cannot be used; the report then holds what was found
// before.
using LookForLibrary = void (*)(LibraryReport& report);

}  // namespace dsc
