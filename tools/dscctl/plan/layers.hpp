// A model as a list of layers, read from CSV or JSON.
#pragma once

#include <string>
#include <vector>

namespace dscctl::plan {

// Times and bytes are per sample.
struct Layer {
  std::string name;
  double forward_us = 0;
  double backward_input_us = 0;
  double backward_weight_us = 0;
  double weight_bytes = 0;
  double activation_bytes = 0;  // held from the forward pass to the backward pass
  double output_bytes = 0;      // sent to the next layer
  std::string tied;             // name of weights that several layers share; empty: not shared
};

struct Layers {
  std::vector<Layer> all;
  bool are_split = false;  // only the total backward_us was given; it is split into two equal halves
};

// Throws std::invalid_argument with the location of the error. "-" means stdin.
Layers read_layers(const std::string& path);

}  // namespace dscctl::plan
