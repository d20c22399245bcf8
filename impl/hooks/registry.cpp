#include "hooks/registry.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/joined.hpp"
#include "hooks/builtin.hpp"
#include "hooks/spec.hpp"

namespace dsc {
namespace {

using Options = std::span<const HookOption>;

// An entry of the table: either a hook with options, or a wrapper that sets the element type in which its
// inner hook sends.
struct Entry {
  const char* name;
  Options options;
  int32_t wire_dtype;  // the type that a wrapper sets; 0 for hooks
  bool sends_wire;     // true if the hook can be inside a wrapper
  const char* meaning;
  std::shared_ptr<BucketHook> (*make)(const HookMaking& making, const HookOptions& options);
  // True if the hook accesses gradients only through bucket.space. On a device, other hooks get a copy of the
  // bucket in host memory.
  bool is_of_any_memory = false;
};

std::shared_ptr<BucketHook> make_mean(const HookMaking& making, const HookOptions&) {
  return make_mean_hook(making);
}
std::shared_ptr<BucketHook> make_onebit(const HookMaking& making, const HookOptions&) {
  return make_onebit_hook(making);
}
template <int kBits>
std::shared_ptr<BucketHook> make_blocks(const HookMaking& making, const HookOptions& options) {
  return make_block_hook(making, options, kBits);
}

std::span<const Entry> table() {
  static const std::array entries{
      Entry{"allreduce", {}, 0, true, "the mean, in the buckets' type", make_mean, true},
      Entry{"fp16", {}, DSC_DTYPE_F16, false, "sends f16, alone or with a hook inside", make_mean, true},
      Entry{"bf16", {}, DSC_DTYPE_BF16, false, "sends bf16, alone or with a hook inside", make_mean, true},
      Entry{"fp8", fp8_options(), 0, false, "8-bit floats, with a scale for each block", make_fp8_hook},
      Entry{"int8", block_options(), 0, false, "8-bit integers, with a scale for each block", make_blocks<8>},
      Entry{"int4", block_options(), 0, false, "4-bit integers, with a scale for each block", make_blocks<4>},
      Entry{"onebit", {}, 0, false, "signs, with error feedback", make_onebit},
      Entry{"topk", topk_options(), 0, true, "the largest elements of every rank", make_topk_hook},
      Entry{"powersgd", powersgd_options(), 0, true, "low-rank approximation", make_powersgd_hook},
      Entry{"local_sgd", local_sgd_options(), 0, true, "averages within hosts after some iterations",
            make_local_sgd_hook},
  };
  return entries;
}

const Entry& find(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : table()) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
  }
  fail(DSC_ERR_INVALID_ARG, "unknown hook %s%s; expected one of: %s", name.c_str(),
       did_you_mean(name, names).c_str(), joined(names, ", ").c_str());
}

std::shared_ptr<BucketHook> make(const HookSpec& spec, HookMaking making) {
  const Entry& entry = find(spec.name);
  const HookOptions options(spec, entry.options);
  if (!spec.inner) {
    if (entry.wire_dtype != 0) making.wire_dtype = entry.wire_dtype;
    auto hook = entry.make(making, options);
    return entry.is_of_any_memory ? hook : make_host_staged_hook(std::move(hook));
  }
  if (entry.wire_dtype == 0)
    fail(DSC_ERR_INVALID_ARG, "hook %s cannot have a hook inside; fp16 and bf16 can", entry.name);
  if (!find(spec.inner->name).sends_wire)
    fail(DSC_ERR_INVALID_ARG, "hook %s cannot be inside %s, because it chooses its own type",
         spec.inner->name.c_str(), entry.name);
  making.wire_dtype = entry.wire_dtype;
  return make(*spec.inner, making);
}

}  // namespace

std::shared_ptr<BucketHook> make_hook(const std::string& spec, Comm& group) {
  return make(parse_hook_spec(spec), {spec, 0, group});
}

std::vector<std::string> describe_hooks() {
  std::vector<std::string> lines;
  for (const Entry& entry : table()) {
    std::string line = entry.name;
    for (size_t i = 0; i < entry.options.size(); ++i) {
      const HookOption& option = entry.options[i];
      line +=
          (i == 0 ? "(" : ", ") + std::string(option.key) + "=" + (option.fallback ? option.fallback : "...");
    }
    line += (entry.options.empty() ? ": " : "): ") + std::string(entry.meaning);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace dsc
