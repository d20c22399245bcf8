// The orders of the literature. Each follows the publication or project named in dsc/pipe.h; costs of
// making one do not grow with the number of micro-batches, but for V-Half and V-Min.
#pragma once

#include <memory>

#include "pipeline/compute_order.hpp"

namespace dsc {

class PatternOrder;

// All forward passes, then all backward passes.
std::shared_ptr<PatternOrder> gpipe_order(int32_t stages, int32_t micro_batches);

// min(stages - 1 - stage, micro_batches) forward passes, then forward and backward in turn, then the rest.
std::shared_ptr<PatternOrder> one_f_one_b_order(int32_t stages, int32_t micro_batches);

// Groups of micro-batches run through all chunks in turn; only the last group may be smaller.
std::shared_ptr<PatternOrder> interleaved_order(int32_t stages, int32_t micro_batches, int32_t chunks,
                                                int32_t group);

// All micro-batches run through one chunk after the other; backward from the last micro-batch on.
std::shared_ptr<PatternOrder> looped_bfs_order(int32_t stages, int32_t micro_batches, int32_t chunks);

// ZB-H1 and ZB-H2: split backward passes; the second halves follow some micro-batches behind.
std::shared_ptr<PatternOrder> zb_h1_order(int32_t stages, int32_t micro_batches);
std::shared_ptr<PatternOrder> zb_h2_order(int32_t stages, int32_t micro_batches);

// The rest has two chunks per stage, placed in a V.
std::shared_ptr<ComputeOrder> zb_v_order(int32_t stages, int32_t micro_batches);

// Expects micro_batches >= 2 stages.
std::shared_ptr<PatternOrder> dualpipe_v_order(int32_t stages, int32_t micro_batches);

// A repeated building block, squeezed and then reordered within the memory that the block needs. Listed.
enum class BuildingBlock { kHalf, kMin };
std::shared_ptr<ComputeOrder> building_block_order(BuildingBlock block, int32_t stages,
                                                   int32_t micro_batches);

// Of any order: without backward passes; with neighbouring halves of a backward pass in one, and without what
// is idle (PyTorch's merge).
std::shared_ptr<ComputeOrder> only_forward(const ComputeOrder& order, int32_t stages);
std::shared_ptr<ComputeOrder> merged(const ComputeOrder& order, int32_t stages);

// A forward and a backward pass in turn, on every stage.
std::shared_ptr<PatternOrder> in_turn_order(int32_t stages, int32_t micro_batches);

}  // namespace dsc
