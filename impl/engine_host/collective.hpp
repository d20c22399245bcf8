// A collective on one host. All members arrive and compare their calls. Then the data is moved by an
// algorithm that each member derives from the published calls.
#pragma once

#include <algorithm>
#include <optional>
#include <variant>

#include "engine_host/compared.hpp"
#include "engine_host/single_copy.hpp"
#include "engine_host/staged.hpp"
#include "engine_host/zero_copy.hpp"

namespace dsc {

class Collective final : public ComparedOperation {
 public:
  Collective(Group& group, const Call& call, uint64_t sequence) noexcept;

  void enter() override;
  Progress step() override;
  bool may_step() noexcept {
    const bool awaits_arrival = phase_ == Phase::kArriving || (phase_ == Phase::kMoving && awaits_arrival_);
    return !awaits_arrival || group_.all_arrived() || group_.revoked();
  }
  Progress depart() override { return leave(); }

 private:
  enum class Phase { kQueued, kArriving, kMoving, kMoved, kComparing, kLeaving };

  void arrive();
  void expose_buffers(Slot& slot);
  bool verify();
  bool verify_blocks();
  void choose_path();
  void check_own_slot() const;
  Staged& stage();
  NonFinite* report() noexcept;
  bool all_arrived_before_the_end() const noexcept;
  Progress move();
  void show_found() noexcept;
  Progress compare_found();
  Progress pending();
  Progress leave();

  Phase phase_ = Phase::kQueued;
  Transfer transfer_;
  bool payload_shown_ = false;
  bool exposed_ = false;    // other ranks may access this rank's buffers
  SharedRange send_range_;  // the buffers that this rank exposes
  SharedRange recv_range_;
  std::variant<std::monostate, Staged, SingleCopy, ZeroCopy> mover_;
  bool awaits_arrival_ = false;  // true if mover_ waits for nothing except the arrival of all members
  std::optional<Departure> departure_;
};

}  // namespace dsc
