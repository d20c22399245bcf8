// The question that a plan answers, and the candidates from which a plan is chosen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dscctl/plan/layers.hpp"
#include "dscctl/plan/network.hpp"
#include "dscctl/schedule/handle.hpp"

namespace dscctl::plan {

struct Question {
  std::vector<Layer> layers;
  int devices = 1;
  int batch = 1;            // samples per step, in all replicas together
  double memory_bytes = 0;  // memory of a device; 0: unlimited
  double state = 4;         // bytes of weights, gradients and optimizer, relative to bytes of weights
  double overhead_us = 0;   // per layer, in a forward pass and in each half of a backward pass
  double overlap = 1;       // time of two overlapped passes divided by the sum of their times
  double bucket_bytes = 0;  // 0: all gradients of a part in one bucket
  Network network;
  std::vector<std::string> kinds;  // empty: all; this holds for the lists below too
  std::vector<int> stages, micro_batches, chunks;
  size_t top = 10;
};

// A schedule that can be part of a plan.
struct Kind {
  const char* name;
  int chunks;  // the number of chunks that it requires; 0: two or more
  bool is_zigzag = false;
  // The order is made and stored as a list, which takes far longer than simulating it.
  bool is_listed = false;
};
const std::vector<Kind>& kinds();
std::vector<std::string> kind_names();  // of all kinds, and "auto"
inline constexpr const char* kAuto = "auto";

// How devices and samples are used, independent of the schedule.
struct Shape {
  int stages = 1;
  int replicas = 1;
  int chunks = 1;
  int micro_batches = 1;
  int samples = 1;  // samples of a micro-batch

  int parts() const { return stages * chunks; }
  bool operator==(const Shape&) const = default;
};

struct Candidate {
  const Kind* kind = nullptr;
  Shape shape;
};

struct Candidates {
  std::vector<Candidate> all;
  size_t too_large = 0;  // candidates that are too large for the library
};

// Returns all candidates that the question allows and that can be made, in no particular order. Throws
// std::invalid_argument if there is none.
Candidates candidates(const Question& question);

using Boundaries = std::vector<size_t>;  // part p has the layers from [p] to [p + 1] - 1

// How the parts of a model are assigned to stages.
enum class Placement { kUnknown, kLoop, kZigzag };
Placement placement_of(const schedule::Handle& schedule);

// Returns costs in microseconds and bytes. Tied layers on a stage have one copy of their weights. If the
// placement is unknown, this holds only within a part.
schedule::Costs costs_of(const Question& question, const Shape& shape, const Boundaries& boundaries,
                         Placement placement);
bool has_ties(const Question& question);
double layer_us(const Question& question, const Layer& layer, int samples);
double layer_bytes(const Question& question, const Layer& layer, int samples, double held);

// Minimizes the time of the slowest part.
Boundaries by_time(const Question& question, const Shape& shape);
// For each stage, how many micro-batches' activations of a part's layers are held at the same time.
struct Held {
  std::vector<int64_t> of_stage;
  bool is_zigzag = false;

  // Returns how many micro-batches' activations a part holds for each of its layers. The chunks of a stage
  // share what the stage holds.
  double of_part(const Shape& shape, int part) const;
};
// Minimizes the time of the slowest part within the memory of each part; empty if no cut fits.
Boundaries within_memory(const Question& question, const Shape& shape, const Held& held);
// Minimizes the memory of the largest part, if `samples_held` samples are held for each layer.
Boundaries by_memory(const Question& question, const Shape& shape, double samples_held);
double most_samples_held(const Shape& shape, const Held& held);
// No partition needs less than this on its fullest stage.
double least_peak(const Question& question, const Shape& shape, const Held& held);

}  // namespace dscctl::plan
