#include "dsc/join.h"

#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "join/join.hpp"
#include "reducer_handle.hpp"
#include "tensors.hpp"

namespace {

dsc_join_options_t default_join_options() {
  dsc_join_options_t options{};
  options.struct_size = sizeof options;
  options.divide_by_initial = 1;
  return options;
}

dsc::JoinOptions read_join_options(const dsc_join_options_t* given) {
  const auto options = dsc::read_sized(given, default_join_options(), "options");
  return {dsc::read_flag("options->divide_by_initial", options.divide_by_initial),
          dsc::read_flag("options->throw_on_early_end", options.throw_on_early_end)};
}

dsc::Pinned<dsc::Join> pin_join(const void* handle) { return {dsc::HandleKind::kJoin, handle}; }

}  // namespace

dsc_result_t dsc_join_options_init(dsc_join_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_join_options(), "options"); });
}

dsc_result_t dsc_join_create(dsc_comm_t* comm, dsc_bucket_reducer_t* const* reducers, size_t n_reducers,
                             const dsc_join_options_t* options, dsc_join_t** join) {
  return dsc::guard(__func__, [&] {
    if (join) *join = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(join, "join");
    if (n_reducers > 0) dsc::require(reducers, "reducers");
    std::vector<std::shared_ptr<dsc::Reducer>> list;
    for (size_t i = 0; i < n_reducers; ++i) list.push_back(dsc::pin_reducer(reducers[i]).share());
    auto made = dsc::Join::create(*inside, std::move(list), read_join_options(options));
    *join = dsc::open_handle<dsc_join_t>(dsc::HandleKind::kJoin, std::move(made));
  });
}

dsc_result_t dsc_join_finish(dsc_join_t* join, const dsc_tensor_t* params, size_t n_params,
                             int32_t* last_rank) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_join(join);
    std::vector<dsc::Tensor> tensors;
    if (n_params > 0) tensors = dsc::read_tensors(params, n_params, "params");
    const int last = pinned->finish(tensors);
    if (last_rank) *last_rank = last;
  });
}

dsc_result_t dsc_join_destroy(dsc_join_t* join) {
  return dsc::guard(__func__, [&] {
    if (!join) return;
    auto pinned = pin_join(join);
    pinned.close();
    pinned->close();
  });
}
