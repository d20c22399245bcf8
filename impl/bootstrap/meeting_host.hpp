// The part of the rank that was first to bind the meeting's name. It collects the hellos of all ranks and
// decides.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/coordinator.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

class MeetingHost {
 public:
  MeetingHost(Hello own, UniqueFd listener, Deadline deadline, int64_t progress_ms,
              std::function<void()> check);

  // Blocks until there is an outcome, and until it was sent to all ranks that arrived.
  MeetingOutcome run();

  // Returns the listener, which keeps the name of the job in use. May be called only after an outcome of
  // DSC_OK.
  UniqueFd take_listener() { return std::move(listener_); }

 private:
  // A connection of a rank that takes part.
  struct Connection {
    UniqueFd fd;
    int64_t since_ns;
    std::optional<Hello> hello;  // empty until the hello has arrived
  };

  std::vector<Hello> hellos() const;
  std::optional<MeetingOutcome> decide();
  void announce(const MeetingOutcome& outcome);
  void wait_for_news();
  int64_t wait_ms() const;
  void accept_waiting();
  void read_hello(Connection& connection);
  void drop_unidentified();

  const Hello own_;
  UniqueFd listener_;
  Coordinator coordinator_;
  const std::function<void()> check_;
  std::vector<Connection> connections_;
  std::vector<Hello> left_;  // hellos of ranks that arrived and left again, for error texts
  int accept_error_ = 0;     // 0 if the latest accept() succeeded
};

}  // namespace dsc
