// dscctl trace: what the ranks of a job recorded.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

namespace dscctl::trace {

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

}  // namespace dscctl::trace
