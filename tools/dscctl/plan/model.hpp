// What a plan is asked for, and what it may be made of.
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
  int batch = 1;            // samples of a step, over all replicas
  double memory_bytes = 0;  // of a device; 0: any
  double state = 4;         // bytes of weights, gradients and the optimizer over those of weights
  double overhead_us = 0;   // of a layer in a forward pass and in each half of a backward pass
  double overlap = 1;       // time of two overlapped passes over the sum of their times
  double bucket_bytes = 0;  // 0: all gradients of a part
  Network network;
  std::vector<std::string> kinds;  // empty here and below: all
  std::vector<int> stages, micro_batches, chunks;
  size_t top = 10;
};

// A schedule that can be planned with.
struct Kind {
  const char* name;
  int chunks;  // that it is made for; 0: two or more
  bool is_zigzag = false;
  bool is_listed = false;  // its order is made and kept, which takes far longer than simulating it
};
const std::vector<Kind>& kinds();
std::vector<std::string> kind_names();  // of all, and "auto"
inline constexpr const char* kAuto = "auto";

// How devices and samples are used, whatever the schedule.
struct Shape {
  int stages = 1;
  int replicas = 1;
  int chunks = 1;
  int micro_batches = 1;
  int samples = 1;  // of a micro-batch

  int parts() const { return stages * chunks; }
  bool operator==(const Shape&) const = default;
};

struct Candidate {
  const Kind* kind = nullptr;
  Shape shape;
};

struct Candidates {
  std::vector<Candidate> all;
  size_t too_large = 0;  // for the library
};

// What the question allows and what can be made, in no order. Throws std::invalid_argument if there is
// nothing.
Candidates candidates(const Question& question);

using Boundaries = std::vector<size_t>;  // part p has layers [p] to [p + 1] - 1

// How the parts of a model are assigned to stages.
enum class Placement { kUnknown, kLoop, kZigzag };
Placement placement_of(const schedule::Handle& schedule);

// In microseconds and bytes. Tied layers of a stage have one copy of their weights; while the placement is
// not known, only those of a part have.
schedule::Costs costs_of(const Question& question, const Shape& shape, const Boundaries& boundaries,
                         Placement placement);
bool has_ties(const Question& question);
double layer_us(const Question& question, const Layer& layer, int samples);
double layer_bytes(const Question& question, const Layer& layer, int samples, double held);

// The smallest heaviest part by time.
Boundaries by_time(const Question& question, const Shape& shape);
// Activations of a part's layers that are held at once on its stage; one for each stage.
struct Held {
  std::vector<int64_t> of_stage;
  bool is_zigzag = false;

  // What a part holds of each of its layers: the chunks of a stage share what it holds.
  double of_part(const Shape& shape, int part) const;
};
// The same within the memory that a part may have; empty if there is none.
Boundaries within_memory(const Question& question, const Shape& shape, const Held& held);
// The smallest heaviest part by memory, with so many samples held of each layer.
Boundaries by_memory(const Question& question, const Shape& shape, double samples_held);
double most_samples_held(const Shape& shape, const Held& held);
// No partition needs less on its fullest stage.
double least_peak(const Question& question, const Shape& shape, const Held& held);

}  // namespace dscctl::plan
