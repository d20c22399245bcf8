// The cards of the machine. A process sees some of them.
#pragma once

#include <vector>

#include "device/cuda_declarations.hpp"

namespace fake_gpu {

// The UUID is the same in every process of a machine.
dsc::CudaUuid uuid_of(int card);

// Returns the cards that CUDA_VISIBLE_DEVICES selects; `list` is null if it is not set. The list has numbers
// or UUIDs, or the beginnings of UUIDs. It ends at the first entry that is not a card. If a card occurs
// twice, the result is empty.
std::vector<int> visible_cards(int cards, const char* list);

}  // namespace fake_gpu
