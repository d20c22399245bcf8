#include "dsc/tied.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "partition/tied_plan.hpp"
#include "tensors.hpp"
#include "tied/tied.hpp"

namespace {

using TiedCall = dsc::ExclusiveCall<dsc::TiedLayers, dsc::HandleKind::kTiedLayers>;

dsc::Pinned<dsc::TiedLayers> pin_tied(const void* handle) {
  return dsc::Pinned<dsc::TiedLayers>(dsc::HandleKind::kTiedLayers, handle);
}

dsc_tied_layers_options_t default_tied_options() {
  dsc_tied_layers_options_t options{};
  options.struct_size = sizeof options;
  options.sync = 1;
  return options;
}

void read_options(const dsc_tied_layers_options_t* given, dsc::TiedRequest& request) {
  const auto options = dsc::read_sized(given, default_tied_options(), "options");
  if (options.sync != 0 && options.sync != 1)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->sync is %d, expected 0 or 1", options.sync);
  request.sync = options.sync;
  if (!options.ranks) {
    if (options.n_stages != 0 || options.n_pipelines != 0)
      dsc::fail(DSC_ERR_INVALID_ARG,
                "options->ranks is NULL, expected %zu x %zu ranks (options->n_pipelines x options->n_stages)",
                options.n_pipelines, options.n_stages);
    return;
  }
  if (options.n_stages < 1 || options.n_pipelines < 1)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "options->ranks has %zu pipelines of %zu stages, expected 1 or more of each",
              options.n_pipelines, options.n_stages);
  if (options.n_pipelines > INT32_MAX / options.n_stages)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "options->ranks has %zu pipelines of %zu stages, expected at most %d ranks",
              options.n_pipelines, options.n_stages, INT32_MAX);
  const size_t count = options.n_stages * options.n_pipelines;
  request.stages = static_cast<int32_t>(options.n_stages);
  request.pipelines = static_cast<int32_t>(options.n_pipelines);
  request.ranks.assign(options.ranks, options.ranks + count);
}

dsc::TiedKey read_key(const void* given, size_t index, size_t struct_size) {
  size_t own_size = 0;
  std::memcpy(&own_size, given, sizeof own_size);
  if (own_size != struct_size)  // checked before the rest of the struct is read
    dsc::fail(DSC_ERR_INVALID_ARG, "keys[%zu].struct_size is %zu, expected %zu as in keys[0]", index,
              own_size, struct_size);
  const std::string element = "keys[" + std::to_string(index) + "]";
  const auto key =
      dsc::read_sized(static_cast<const dsc_tied_key_t*>(given), dsc_tied_key_t{}, element.c_str());
  dsc::TiedKey result;
  result.key = &dsc::require(key.key, (element + ".key").c_str());
  if (key.n_stages > 0)
    result.stages.assign(&dsc::require(key.stages, (element + ".stages").c_str()), key.stages + key.n_stages);
  result.weights = dsc::read_tensors(key.weights, key.n_weights, (element + ".weights").c_str());
  return result;
}

void read_keys(const dsc_tied_key_t* keys, size_t n_keys, dsc::TiedRequest& request) {
  if (n_keys == 0) return;
  const size_t struct_size = dsc::require(keys, "keys").struct_size;
  const auto* bytes = reinterpret_cast<const std::byte*>(keys);
  for (size_t k = 0; k < n_keys; ++k)
    request.keys.push_back(read_key(bytes + k * struct_size, k, struct_size));
}

// Returns an error as part of the request instead of throwing it, so that all ranks learn of it.
dsc::TiedRequest read_request(const dsc_tied_key_t* keys, size_t n_keys,
                              const dsc_tied_layers_options_t* options) {
  dsc::TiedRequest request;
  dsc::capture(
      [&] {
        read_options(options, request);
        read_keys(keys, n_keys, request);
      },
      [&](dsc_result_t code, const char* text) {
        request = {};
        request.code = code;
        request.text = text;
      });
  return request;
}

std::vector<dsc::TiedEntry> read_entries(const char* const* keys, const size_t* layers, size_t n) {
  std::vector<dsc::TiedEntry> entries;
  if (n == 0) return entries;
  dsc::require(keys, "keys");
  dsc::require(layers, "layers");
  for (size_t i = 0; i < n; ++i) {
    if (!keys[i]) dsc::fail(DSC_ERR_INVALID_ARG, "keys[%zu] is NULL", i);
    entries.push_back({keys[i], layers[i]});
  }
  return entries;
}

}  // namespace

dsc_result_t dsc_tied_plan(const char* const* keys, const size_t* layers, size_t n_entries,
                           const size_t* boundaries, size_t n_parts, size_t* entries, size_t* starts,
                           int32_t* stages, size_t* n_keys) {
  return dsc::guard_pure(__func__, [&] {
    dsc::require(boundaries, "boundaries");
    if (n_parts < 1 || n_parts > INT32_MAX)
      dsc::fail(DSC_ERR_INVALID_ARG, "n_parts is %zu, expected 1 to %d", n_parts, INT32_MAX);
    if (n_entries > 0) {
      dsc::require(entries, "entries");
      dsc::require(stages, "stages");
    }
    dsc::require(starts, "starts");
    dsc::require(n_keys, "n_keys");
    const auto plan = dsc::plan_tied(read_entries(keys, layers, n_entries), {boundaries, n_parts + 1});
    starts[0] = 0;
    for (size_t k = 0; k < plan.size(); ++k) {
      entries[k] = plan[k].first_entry;
      std::ranges::copy(plan[k].stages, stages + starts[k]);
      starts[k + 1] = starts[k] + plan[k].stages.size();
    }
    *n_keys = plan.size();
  });
}

dsc_result_t dsc_tied_layers_options_init(dsc_tied_layers_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_tied_options(), "options"); });
}

dsc_result_t dsc_tied_layers_create(dsc_comm_t* comm, const dsc_tied_key_t* keys, size_t n_keys,
                                    const dsc_tied_layers_options_t* options, dsc_tied_layers_t** tied) {
  return dsc::guard(__func__, [&] {
    if (tied) *tied = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(tied, "tied");
    auto made = dsc::TiedLayers::create(*inside, read_request(keys, n_keys, options));
    *tied = dsc::open_handle<dsc_tied_layers_t>(dsc::HandleKind::kTiedLayers, std::move(made));
  });
}

dsc_result_t dsc_tied_layers_reduce(dsc_tied_layers_t* tied, const dsc_tensor_t* grads, size_t n_grads,
                                    void* stream) {
  return dsc::guard(__func__, [&] {
    TiedCall inside(tied);
    inside->reduce(dsc::read_tensors(grads, n_grads, "grads"), stream);
  });
}

dsc_result_t dsc_tied_layers_owner(const dsc_tied_layers_t* tied, const char* key, int32_t* stage,
                                   int32_t* is_counted) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_tied(tied);
    dsc::require(key, "key");
    dsc::require(stage, "stage") = pinned->owner(key);
    if (is_counted) *is_counted = *stage == pinned->stage() ? 1 : 0;
  });
}

dsc_result_t dsc_tied_layers_destroy(dsc_tied_layers_t* tied) {
  return dsc::guard(__func__, [&] {
    if (!tied) return;
    auto pinned = pin_tied(tied);
    pinned.close();
    pinned->close();
  });
}
