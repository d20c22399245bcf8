// Checks that all ranks hold the same parameters and the same settings.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Collective. Throws MISMATCH on all ranks if the number of parameters differs, or the type, count or shape
// of one. The communicator stays usable.
void verify_params(Comm& comm, std::span<const Tensor> params);

struct Setting {
  std::string name;
  std::string value;
};

// Collective. If a value differs, throws CONFIG on all ranks, with the setting's name and both values. Up to
// the first different value, all ranks must list the same names.
void verify_settings(Comm& comm, std::span<const Setting> settings);

}  // namespace dsc
