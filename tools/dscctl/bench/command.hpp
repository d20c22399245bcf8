// dscctl bench: how fast the library is here, which way data moves and why, and which settings are best.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace dscctl::bench {

// The subcommand's options, and what they came to.
class Command {
 public:
  explicit Command(CLI::App& app);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  bool chosen() const;
  int run() const;  // the exit code

 private:
  struct Options;
  std::unique_ptr<Options> options_;
};

}  // namespace dscctl::bench
