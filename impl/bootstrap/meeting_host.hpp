// The rank that bound the meeting's name first: it collects claims and decides.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/judge.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

class MeetingHost {
 public:
  MeetingHost(Claim own, UniqueFd listener, Deadline deadline, int64_t progress_ms,
              std::function<void()> check);

  // Blocks until the verdict, which has then been sent to everybody who arrived.
  Verdict run();

  // Keeps the name after a verdict of DSC_OK.
  UniqueFd take_listener() { return std::move(listener_); }

 private:
  // A connection of a rank that takes part.
  struct Connection {
    UniqueFd fd;
    int64_t since_ns;
    std::optional<Claim> claim;  // empty until its hello has arrived
  };

  std::vector<Claim> claims() const;
  std::optional<Verdict> decide();
  void announce(const Verdict& verdict);
  void wait_for_news();
  int64_t wait_ms() const;
  void accept_waiting();
  void read_hello(Connection& connection);
  void drop_silent();

  const Claim own_;
  UniqueFd listener_;
  Judge judge_;
  const std::function<void()> check_;
  std::vector<Connection> connections_;
  std::vector<Claim> left_;  // claims of ranks that arrived and left, for the report
  int accept_error_ = 0;     // 0 if the latest accept() succeeded
};

}  // namespace dsc
