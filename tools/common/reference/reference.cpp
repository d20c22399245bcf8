#include "common/reference/reference.hpp"

#include <cstdlib>
#include <ctime>
#include <iostream>

#include "dsc/version.h"

namespace tools {
namespace {

// Returns the date of the build. SOURCE_DATE_EPOCH makes it the same in every build.
std::string today() {
  const char* fixed = std::getenv("SOURCE_DATE_EPOCH");
  const time_t now = fixed == nullptr ? std::time(nullptr) : static_cast<time_t>(std::atoll(fixed));
  tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof "2000-01-01"] = "";
  return std::strftime(text, sizeof text, "%Y-%m-%d", &parts) == 0 ? "" : text;
}

std::string library_version() {
  return "libdsc " + std::to_string(DSC_VERSION_MAJOR) + "." + std::to_string(DSC_VERSION_MINOR) + "." +
         std::to_string(DSC_VERSION_PATCH);
}

void print(const CLI::App& app, const std::string& format) {
  const CommandOutline program = outline(app);
  if (format == "man")
    std::cout << man_page(program, library_version(), today());
  else
    std::cout << (format == "bash" ? bash_completion(program) : zsh_completion(program));
  std::cout.flush();
}

}  // namespace

void add_reference(CLI::App& app) {
  const auto print_and_end = [&app](const std::string& format) {
    print(app, format);
    throw CLI::Success();
  };
  app.add_option_function<std::string>("--help-as", print_and_end)
      ->check(CLI::IsMember({"man", "bash", "zsh"}))
      ->group("");
}

}  // namespace tools
