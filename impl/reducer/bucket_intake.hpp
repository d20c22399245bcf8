// Moves the gradients of an iteration into their buckets, starts the buckets that are complete, and writes
// the results to the memory of the marked gradients.
#pragma once

#include <functional>
#include <vector>

#include "gradients/intake.hpp"
#include "reducer/bucket_runner.hpp"

namespace dsc {

class BucketIntake {
 public:
  // `complete` is called, without the lock, after the last gradient of a bucket was taken.
  BucketIntake(GradientIntake& gradients, BucketRunner& runner, std::function<void()> complete)
      : gradients_(gradients), runner_(runner), complete_(std::move(complete)) {}

  // Sets the buckets to use. Called between iterations.
  void use(BucketSet& set) noexcept { set_ = &set; }
  BucketSet& set() const noexcept { return *set_; }

  // Moves a complete gradient into its bucket. In a local iteration, which is not reduced, adds it to the
  // sums of this rank.
  void take(size_t index, const void* gradient, void* stream, const GradientIntake::Complete& with);
  // Completes a parameter that has no gradient in this iteration. Its gradient is the sum from earlier local
  // iterations, or zero if there is none.
  void take_without_gradient(size_t index);

  // Take parameters that do not have to be marked any more. take_frozen_unused() takes those that a static
  // graph never uses, once any other gradient has been taken. At the end of an iteration, take_deferred()
  // takes parameters whose marks were only counted, and take_missing() takes all others.
  void take_frozen_unused();
  void take_deferred();
  void take_missing();

  // Collective, after all gradients were taken. Launches the remaining buckets and waits for all results.
  // Results are written only after every bucket has succeeded as far as the host knows; otherwise no gradient
  // is written. A gradient that is not finite fails the iteration on all ranks, and this failure is returned.
  // Other failures are thrown.
  Failure finish(const ParamList& params, void* stream, const std::function<void()>& launch);

 private:
  void become_ready(size_t index);
  void add_deliveries(size_t bucket);

  GradientIntake& gradients_;
  BucketRunner& runner_;
  const std::function<void()> complete_;
  BucketSet* set_ = nullptr;          // the buckets in use; replaced between iterations
  std::vector<Delivery> deliveries_;  // temporary list for one bucket
};

}  // namespace dsc
