// The report of an engine about the library that it loads, for dsc_engines_json().
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dsc {

struct LibraryReport {
  std::string path;     // path of the file that would be loaded; empty if there is none
  std::string version;  // version of that file; empty if there is none
  std::string warning;  // known problems of this version
  std::vector<const char*> features;
  std::optional<int> devices;
};

// Fills a report. If the engine cannot be used, throws the reason; the report then contains what was found
// before.
using LookForLibrary = void (*)(LibraryReport& report);

}  // namespace dsc
