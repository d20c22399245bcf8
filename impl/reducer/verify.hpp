// All ranks must hold the same parameters and the same settings.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Collective. Throws MISMATCH on all ranks when number, type, count or shape differ; the communicator keeps
// working.
void verify_params(Comm& comm, std::span<const Tensor> params);

struct Setting {
  std::string name;
  std::string value;
};

// Collective. Throws CONFIG on all ranks, naming the setting and both values. Their names are the same
// everywhere up to the first one whose value differs.
void verify_settings(Comm& comm, std::span<const Setting> settings);

}  // namespace dsc
