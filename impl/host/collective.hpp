// A collective on one host: all members arrive and compare what they want, then the data moves on the path
// that all of them derive from what they saw.
#pragma once

#include <algorithm>
#include <optional>
#include <variant>

#include "host/operation.hpp"
#include "host/staged.hpp"
#include "host/zero_copy.hpp"

namespace dsc {

class Collective final : public Operation {
 public:
  Collective(Group& group, const Call& call, uint64_t sequence) noexcept;

  void enter() override;
  Progress step() override;
  Progress depart() override { return leave(); }

 protected:
  bool misses(int member) const noexcept override { return !group_.member_arrived(member); }

 private:
  enum class Phase { kQueued, kArriving, kMoving, kMoved, kComparing, kLeaving };

  void show_up();
  void expose_buffers(Slot& slot);
  bool verify();
  bool verify_blocks();
  bool choose_path();
  Progress move();
  void show_found() noexcept;
  Progress compare_found();
  Progress pending();
  Progress leave();

  Phase phase_ = Phase::kQueued;
  Transfer transfer_;
  bool payload_shown_ = false;
  bool exposed_ = false;  // others may reach this rank's buffers
  std::variant<std::monostate, Staged, ZeroCopy> mover_;
  std::optional<Departure> departure_;
};

}  // namespace dsc
