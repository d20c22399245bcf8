// dscctl: inspects libdsc from the command line.
#include <CLI/CLI.hpp>
#include <iostream>

#include "common/reference/reference.hpp"
#include "common/suggest.hpp"
#include "dsc/version.h"
#include "dscctl/bench/command.hpp"
#include "dscctl/info.hpp"
#include "dscctl/launch.hpp"
#include "dscctl/plan/command.hpp"
#include "dscctl/schedule/command.hpp"
#include "dscctl/trace/command.hpp"

namespace {

constexpr const char* kFooter =
    "Environment: info --env shows the variables that init reads. info looks for libraries at the paths in\n"
    "DSC_NCCL_LIBRARY, DSC_CUDA_LIBRARY, DSC_PMIX_LIBRARY and DSC_GLOO_LIBRARY. The ranks of bench read\n"
    "DSC_TUNING. NO_COLOR, or TERM=dumb, turns colors off. SOURCE_DATE_EPOCH is the date (in seconds since\n"
    "1970) on the page of --help-as man. All other variables are in docs/environment.md.";

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Inspects libdsc from the command line.", "dscctl");
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_version_flag("--version", "dscctl " + std::to_string(DSC_VERSION_MAJOR) + "." +
                                        std::to_string(DSC_VERSION_MINOR) + "." +
                                        std::to_string(DSC_VERSION_PATCH));
  tools::add_reference(app);
  bool as_json = false, environment = false;
  CLI::App* info =
      app.add_subcommand("info", "Shows the version, features, engines and properties of this host");
  info->add_flag("--json", as_json, "Prints JSON");
  info->add_flag(
      "--env", environment,
      "Shows what init finds in the environment and what it would do; exit code 1 if it would fail");
  const auto bench = dscctl::bench::make_command(app);
  const auto plan = dscctl::plan::make_command(app);
  const auto schedule = dscctl::schedule::make_command(app);
  const auto trace = dscctl::trace::make_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "dscctl: " << tools::explain(app, error) << "\n";
    return 2;
  }
  for (const dscctl::Command* command : {bench.get(), plan.get(), schedule.get(), trace.get()})
    if (command->chosen()) return command->run();
  try {
    const dscctl::Json facts = environment ? dscctl::collect_launch() : dscctl::collect_info();
    const auto format = environment ? dscctl::format_launch : dscctl::format_info;
    std::cout << (as_json ? facts.dump(2) + "\n" : format(facts)) << std::flush;
    if (environment && !facts["error"].is_null()) return 1;
  } catch (const std::exception& error) {
    std::cerr << "dscctl: " << error.what() << "\n";
    return 1;
  }
  return std::cout ? 0 : 1;
}
