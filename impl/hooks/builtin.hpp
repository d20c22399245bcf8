// The hooks that are part of the library. registry.hpp creates them by name.
#pragma once

#include <memory>

#include "hooks/options.hpp"
#include "reducer/hook.hpp"

namespace dsc {

// The arguments that every hook needs.
struct HookMaking {
  std::string name;    // the whole spec, used in messages and in saved states
  int32_t wire_dtype;  // element type of the data that is sent; 0 means the buckets' type
  Comm& group;         // communicator of the reducer
};

// Computes the mean by an all-reduce.
std::shared_ptr<BucketHook> make_mean_hook(const HookMaking& making);

// Hooks that compute the mean by two exchanges of encoded chunks. Every rank decodes and sums one chunk, and
// encodes the mean.
std::span<const HookOption> block_options();  // for hooks with 8 or 4 bits per element
std::shared_ptr<BucketHook> make_block_hook(const HookMaking& making, const HookOptions& options, int bits);
std::span<const HookOption> fp8_options();
std::shared_ptr<BucketHook> make_fp8_hook(const HookMaking& making, const HookOptions& options);
std::shared_ptr<BucketHook> make_onebit_hook(const HookMaking& making);

std::span<const HookOption> powersgd_options();
std::shared_ptr<BucketHook> make_powersgd_hook(const HookMaking& making, const HookOptions& options);

std::span<const HookOption> topk_options();
std::shared_ptr<BucketHook> make_topk_hook(const HookMaking& making, const HookOptions& options);

// make_local_sgd_hook() is collective, because it makes a group of the ranks on each host.
std::span<const HookOption> local_sgd_options();
std::shared_ptr<BucketHook> make_local_sgd_hook(const HookMaking& making, const HookOptions& options);

// Wraps a hook that works only in host memory, so that it can be used for gradients in any memory.
std::shared_ptr<BucketHook> make_host_staged_hook(std::shared_ptr<BucketHook> inner);

// Throws UNSUPPORTED unless all gradients are f32.
void expect_f32(const std::string& hook, std::span<const Tensor> params);

}  // namespace dsc
