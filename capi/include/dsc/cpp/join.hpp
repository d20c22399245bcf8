// Data-parallel training in which ranks have different numbers of batches.
#ifndef DSC_CPP_JOIN_HPP
#define DSC_CPP_JOIN_HPP

#include <cstdint>
#include <dsc/cpp/reducer.hpp>
#include <functional>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

using join_options = options<dsc_join_options_t, dsc_join_options_init>;

// While a join exists, begin() and sync_buffers() of its reducers are collective. A rank without batches
// calls finish(), which takes part in the others' operations, with zeros, until no rank has batches. The
// reducers must exist as long as the join, and must not be moved.
class join {
 public:
  // Collective. The reducers were made from `comm`, and are in the same order on all ranks: join(world,
  // {reducer}).
  join(const comm_view& comm, std::vector<std::reference_wrapper<bucket_reducer>> reducers,
       const join_options& options = {})
      : reducers_(std::move(reducers)) {
    std::vector<dsc_bucket_reducer_t*> raw;
    for (const bucket_reducer& reducer : reducers_) raw.push_back(reducer.get());
    handle_ = decltype(handle_)(
        detail::query<dsc_join_t*>(dsc_join_create, comm.get(), raw.data(), raw.size(), &options));
  }

  dsc_join_t* get() const noexcept { return handle_.get(); }

  // At the end, the tensors of the rank that finished last, usually the parameters, are copied to all ranks,
  // because the others have made fewer steps. An empty list copies nothing. Returns this rank. What a hook
  // throws meanwhile is thrown again.
  std::int32_t finish(const tensors& params) {
    std::int32_t last = -1;
    const dsc_result_t result = dsc_join_finish(get(), params.data(), params.size(), &last);
    if (result >= 0) return last;
    const error failure = last_error(result);
    for (const bucket_reducer& reducer : reducers_) reducer.rethrow_cause(failure);
    throw failure;
  }

 private:
  std::vector<std::reference_wrapper<bucket_reducer>> reducers_;
  handle<dsc_join_t, dsc_join_destroy> handle_;
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_JOIN_HPP
