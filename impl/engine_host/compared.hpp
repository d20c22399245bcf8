// The start of every collective on one host: all members arrive with their calls, and each member compares
// all calls.
#pragma once

#include "engine_host/operation.hpp"

namespace dsc {

class ComparedOperation : public Operation {
 public:
  using Operation::Operation;

 protected:
  bool misses(int member) const noexcept override { return !group_.member_arrived(member); }

  // Writes this rank's call into its next slot. The caller sets the other fields of the slot before it
  // arrives.
  Slot& describe_call() noexcept;
  // Returns true if all members made the same call; otherwise it fails the group with MISMATCH.
  bool calls_agree() {
    const uint64_t mine = group_.slot(group_.rank(), group_.epoch()).fingerprint;
    for (int member = 0; member < group_.size(); ++member)
      if (group_.slot(member, group_.epoch()).fingerprint != mine) return report_mismatch();
    return true;
  }

 private:
  bool report_mismatch();
};

}  // namespace dsc
