// The orders from the literature. Each follows the publication or project named in dsc/pipe.h. Except for
// V-Half and V-Min, making one takes time and memory independent of the number of micro-batches.
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

// Groups of micro-batches run through all chunks in turn; only the last group may be smaller.
std::shared_ptr<PatternOrder> interleaved_order(int32_t stages, int32_t micro_batches, int32_t chunks,
                                                int32_t group);

// All micro-batches run through one chunk after another; backward passes start with the last micro-batch.
std::shared_ptr<PatternOrder> looped_bfs_order(int32_t stages, int32_t micro_batches, int32_t chunks);

// ZB-H1 and ZB-H2 split backward passes; the weight halves follow some micro-batches later.
std::shared_ptr<PatternOrder> zb_h1_order(int32_t stages, int32_t micro_batches);
std::shared_ptr<PatternOrder> zb_h2_order(int32_t stages, int32_t micro_batches);

// The remaining orders have two chunks per stage, placed in a V.
std::shared_ptr<ComputeOrder> zb_v_order(int32_t stages, int32_t micro_batches);

// Requires micro_batches >= 2 * stages.
std::shared_ptr<PatternOrder> dualpipe_v_order(int32_t stages, int32_t micro_batches);

// Repeats a building block, squeezes the result, and reorders it within the memory that the block needs. The
// order is listed.
enum class BuildingBlock { kHalf, kMin };
std::shared_ptr<ComputeOrder> building_block_order(BuildingBlock block, int32_t stages,
                                                   int32_t micro_batches);

// Derive from any order one without backward passes, or one in which neighbouring halves of a backward pass
// are merged and idle steps are removed (PyTorch's merge).
std::shared_ptr<ComputeOrder> only_forward(const ComputeOrder& order, int32_t stages);
std::shared_ptr<ComputeOrder> merged(const ComputeOrder& order, int32_t stages);

// Alternates a forward and a backward pass, on every stage.
std::shared_ptr<PatternOrder> in_turn_order(int32_t stages, int32_t micro_batches);

}  // namespace dsc
