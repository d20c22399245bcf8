// The hooks that come with the library. registry.hpp makes them by name.
#pragma once

#include <memory>

#include "hooks/options.hpp"
#include "reducer/hook.hpp"

namespace dsc {

// What every hook is made from.
struct HookMaking {
  std::string name;    // the whole spec, for messages and saved states
  int32_t wire_dtype;  // of what is sent; 0: the buckets' type
  Comm& group;         // of the reducer
};

// The mean, computed by an all-reduce.
std::shared_ptr<BucketHook> make_mean_hook(const HookMaking& making);

// The mean, computed by two exchanges of encoded chunks: every rank decodes and sums one chunk, and encodes
// the mean.
std::span<const HookOption> block_options();  // 8 or 4 bits per element
std::shared_ptr<BucketHook> make_block_hook(const HookMaking& making, const HookOptions& options, int bits);
std::span<const HookOption> fp8_options();
std::shared_ptr<BucketHook> make_fp8_hook(const HookMaking& making, const HookOptions& options);
std::shared_ptr<BucketHook> make_onebit_hook(const HookMaking& making);

std::span<const HookOption> powersgd_options();
std::shared_ptr<BucketHook> make_powersgd_hook(const HookMaking& making, const HookOptions& options);

std::span<const HookOption> topk_options();
std::shared_ptr<BucketHook> make_topk_hook(const HookMaking& making, const HookOptions& options);

// Collective: makes a group of the ranks of each host.
std::span<const HookOption> local_sgd_options();
std::shared_ptr<BucketHook> make_local_sgd_hook(const HookMaking& making, const HookOptions& options);

// A hook for gradients in any memory, which wraps one that works in host memory.
std::shared_ptr<BucketHook> make_host_staged_hook(std::shared_ptr<BucketHook> inner);

// Throws UNSUPPORTED unless all gradients are f32.
void expect_f32(const std::string& hook, std::span<const Tensor> params);

}  // namespace dsc
