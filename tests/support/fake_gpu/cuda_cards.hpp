// The cards of the machine, of which a process sees some.
#pragma once

#include <vector>

#include "device/cuda_declarations.hpp"

namespace fake_gpu {

// The same in every process of a machine.
dsc::CudaUuid uuid_of(int card);

// By CUDA_VISIBLE_DEVICES, null where it is not set: numbers or UUIDs, or what they begin with, up to the
// first that is no card; one that comes twice leaves none.
std::vector<int> visible_cards(int cards, const char* list);

}  // namespace fake_gpu
