// The orders from the literature. dsc/pipe.h names the publication or project that each of them follows.
// Except for V-Half and V-Min, making an order takes time and memory independent of the number of
// micro-batches.
#pragma once

#include <memory>

#include "pipeline/compute_order.hpp"

namespace dsc {

class PatternOrder;

// All forward passes, then all backward passes.
std::shared_ptr<PatternOrder> gpipe_order(int32_t stages, int32_t micro_batches);

// Starts with min(stages - 1 - stage, micro_batches) forward passes, then alternates forward and backward
// passes, and ends with the remaining backward passes.
std::shared_ptr<PatternOrder> one_f_one_b_order(int32_t stages, int32_t micro_batches);

// Divides the micro-batches into groups. A group runs through all chunks before the next group starts. Only
// the last group may be smaller than the others.
std::shared_ptr<PatternOrder> interleaved_order(int32_t stages, int32_t micro_batches, int32_t chunks,
                                                int32_t group);

// All micro-batches run through one chunk before they run through the next. Backward passes start with the
// last micro-batch.
std::shared_ptr<PatternOrder> looped_bfs_order(int32_t stages, int32_t micro_batches, int32_t chunks);

// ZB-H1 and ZB-H2 split backward passes: the weight half of a micro-batch runs some micro-batches after its
// input half.
std::shared_ptr<PatternOrder> zb_h1_order(int32_t stages, int32_t micro_batches);
std::shared_ptr<PatternOrder> zb_h2_order(int32_t stages, int32_t micro_batches);

// The remaining orders from the literature have two chunks per stage, placed in a V.
std::shared_ptr<ComputeOrder> zb_v_order(int32_t stages, int32_t micro_batches);

// Requires micro_batches >= 2 * stages.
std::shared_ptr<PatternOrder> dualpipe_v_order(int32_t stages, int32_t micro_batches);

// Repeats a building block for every micro-batch, removes idle time, and reorders the result without
// exceeding the memory that the block needs. The returned order stores every operation.
enum class BuildingBlock { kHalf, kMin };
std::shared_ptr<ComputeOrder> building_block_order(BuildingBlock block, int32_t stages,
                                                   int32_t micro_batches);

// The next two functions derive another order from any order. only_forward() removes the backward passes.
// merged() merges neighboring halves of a backward pass and removes idle steps, as PyTorch's merge does.
std::shared_ptr<ComputeOrder> only_forward(const ComputeOrder& order, int32_t stages);
std::shared_ptr<ComputeOrder> merged(const ComputeOrder& order, int32_t stages);

// Runs a forward pass and then a backward pass for each micro-batch, on every stage.
std::shared_ptr<PatternOrder> in_turn_order(int32_t stages, int32_t micro_batches);

}  // namespace dsc
