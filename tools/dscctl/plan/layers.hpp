// A model as a list of layers, read from CSV or JSON.
#pragma once

#include <string>
#include <vector>

namespace dscctl::plan {

// Times and bytes are those of one sample.
struct Layer {
  std::string name;
  double forward_us = 0;
  double backward_input_us = 0;
  double backward_weight_us = 0;
  double weight_bytes = 0;
  double activation_bytes = 0;  // held from the forward to the backward pass
  double output_bytes = 0;      // given to the next layer
  std::string tied;             // the name of weights that several layers share; empty: its own
};

struct Layers {
  std::vector<Layer> all;
  bool are_split = false;  // backward_us was given alone, and is now two equal halves
};

// Throws std::invalid_argument with the place of what is wrong; "-" is stdin.
Layers read_layers(const std::string& path);

}  // namespace dscctl::plan
