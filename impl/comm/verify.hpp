// Checks that all ranks hold the same parameters and the same settings.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Collective. Throws MISMATCH on all ranks if number, type, count or shape differ; the communicator stays
// usable.
void verify_params(Comm& comm, std::span<const Tensor> params);

struct Setting {
  std::string name;
  std::string value;
};

// Collective. If a value differs, throws CONFIG on all ranks with the setting's name and both values. Names
// must be equal on all ranks up to the first setting that differs.
void verify_settings(Comm& comm, std::span<const Setting> settings);

}  // namespace dsc
