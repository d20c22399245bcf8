// The interface of dscctl's subcommands for main().
#pragma once

#include <CLI/CLI.hpp>

namespace dscctl {

// A subcommand: its options and their values.
class Command {
 public:
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  bool chosen() const { return app_.parsed(); }
  virtual int run() const = 0;  // returns the exit code

 protected:
  explicit Command(CLI::App& app) : app_(app) {}
  CLI::App& app() const { return app_; }

 private:
  CLI::App& app_;  // CLI11 owns it
};

}  // namespace dscctl
