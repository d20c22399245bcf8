// Takes the gradients of an iteration into their buckets, starts the buckets that are complete, and writes
// the results where the gradients were marked.
#pragma once

#include <functional>
#include <vector>

#include "gradients/intake.hpp"
#include "reducer/bucket_runner.hpp"

namespace dsc {

class BucketIntake {
 public:
  // `complete` is called, without the lock, when the last gradient of a bucket was taken.
  BucketIntake(GradientIntake& gradients, BucketRunner& runner, std::function<void()> complete)
      : gradients_(gradients), runner_(runner), complete_(std::move(complete)) {}

  // Sets the buckets between iterations.
  void use(BucketSet& set) noexcept { set_ = &set; }
  BucketSet& set() const noexcept { return *set_; }

  // Takes a complete gradient into its bucket or, in a local iteration, into the collected sums.
  void take(size_t index, const void* gradient, void* stream, const GradientIntake::Complete& with);
  // Takes zeros, or the sums of local iterations.
  void take_without_gradient(size_t index);

  // Take parameters that are ready without a mark. The first function takes those that a static graph never
  // uses, as soon as there is another gradient. The others run at the end of an iteration, for parameters
  // whose marks were only counted, and for the rest.
  void take_frozen_unused();
  void take_deferred();
  void take_missing();

  // Collective, when all gradients were taken. Launches the remaining buckets and waits for all results.
  // Writes either all gradients or none: only after every bucket has succeeded, as far as the host knows. A
  // gradient that is not finite fails this iteration on all ranks, and its failure is returned; other
  // failures are thrown.
  Failure finish(const ParamList& params, void* stream, const std::function<void()>& launch);

 private:
  void become_ready(size_t index);
  void add_deliveries(size_t bucket);

  GradientIntake& gradients_;
  BucketRunner& runner_;
  const std::function<void()> complete_;
  BucketSet* set_ = nullptr;          // replaced between iterations
  std::vector<Delivery> deliveries_;  // scratch for one bucket
};

}  // namespace dsc
