#include "dsc/expert_parallel.h"

#include <initializer_list>
#include <optional>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "execute.hpp"
#include "expert_parallel/moe_plan.hpp"
#include "expert_parallel/row_sums.hpp"
#include "give.hpp"
#include "host_array.hpp"

namespace {

using dsc::Array;
using dsc::MoePlan;
using dsc::RowFormat;

// A plan, and the handle of its communicator. The caller may destroy that handle before the plan.
struct PlanObject {
  dsc_comm_t* comm;
  std::shared_ptr<MoePlan> plan;
};

dsc::Pinned<PlanObject> pin_plan(const void* handle) { return {dsc::HandleKind::kMoePlan, handle}; }

dsc_moe_plan_options_t default_moe_options() {
  dsc_moe_plan_options_t options{};
  options.struct_size = sizeof options;
  options.top_k = 1;
  options.drop = DSC_MOE_DROP_LATEST;
  return options;
}

dsc::MoeSettings read_settings(const dsc_moe_plan_options_t* given) {
  dsc::require(given, "options");
  const auto options = dsc::read_sized(given, default_moe_options(), "options");
  if (options.padded != 0 && options.padded != 1)
    dsc::fail(DSC_ERR_INVALID_ARG, "padded is %d, expected 0 or 1", options.padded);
  return {options.experts, options.top_k, options.capacity, options.drop, options.padded == 1};
}

// Reads and checks the arrays of router choices.
dsc::Choice read_choice(const dsc::Comm& comm, const dsc::MoeSettings& settings, const int32_t* expert_ids,
                        size_t tokens, const float* weights) {
  dsc::check_choice(settings, {});
  const size_t id_bytes = dsc::checked_bytes(tokens, DSC_DTYPE_I64, settings.top_k) / 2;
  dsc::check_array(comm, {"expert_ids", expert_ids, id_bytes}, sizeof(int32_t));
  const bool weighs = dsc::needs_weights(settings);
  if (weighs && !weights && tokens > 0)
    dsc::fail(DSC_ERR_INVALID_ARG, "weights is NULL and drop is 2 (lightest), expected %zu router weights",
              tokens * settings.top_k);
  if (weighs) dsc::check_array(comm, {"weights", weights, id_bytes}, sizeof(float));
  const dsc::Choice choice{{expert_ids, tokens * settings.top_k}, weighs ? weights : nullptr};
  dsc::check_choice(settings, choice);
  return choice;
}

// A call that exchanges rows according to a plan.
class ExchangeCall {
 public:
  ExchangeCall(const dsc_moe_plan_t* handle, size_t hidden, dsc_dtype_t dtype, dsc_moe_payload_t payload,
               void* stream)
      : pinned_(pin_plan(handle)), comm_(pinned_->comm), stream_(stream), kind_(*comm_) {
    dsc::check_dtype(dtype);
    if (dtype != DSC_DTYPE_F32 && dtype != DSC_DTYPE_F64 && dtype != DSC_DTYPE_BF16 && dtype != DSC_DTYPE_F16)
      dsc::fail(DSC_ERR_UNSUPPORTED, "dtype is %s, expected f32, f64, bf16 or f16", dsc::dtype_name(dtype));
    if (payload != DSC_MOE_PAYLOAD_PLAIN && payload != DSC_MOE_PAYLOAD_F8E4M3)
      dsc::fail(DSC_ERR_INVALID_ARG, "payload is %d, expected 1 (plain) or 2 (f8e4m3)", payload);
    if (payload == DSC_MOE_PAYLOAD_F8E4M3 && dtype == DSC_DTYPE_F64)
      dsc::fail(DSC_ERR_UNSUPPORTED, "dtype is f64 and payload is 2 (f8e4m3), expected f32, bf16 or f16");
    dsc::check_stream(*comm_, stream);
    format_ = {hidden, dtype, payload == DSC_MOE_PAYLOAD_F8E4M3};
    dsc::checked_bytes(hidden, DSC_DTYPE_F64, 1);
    // Checks the largest size: no buffer of the call needs more memory, and neither do the rows in transit.
    dsc::checked_bytes(slot_count() + plan().most_rows(), DSC_DTYPE_F64, hidden);
  }

  // Each of these returns an array of this call. It is checked alone, and must be in the same kind of memory
  // as the arrays before it.
  Array tokens(const char* name, const void* data) { return rows_of(name, data, plan().tokens()); }
  Array slots(const char* name, const void* data) { return rows_of(name, data, slot_count()); }
  Array rows(const char* name, const void* data) { return rows_of(name, data, plan().rows()); }
  Array weights(const char* name, const void* data) {
    return checked({name, data, slot_count() * dsc::weight_bytes(format_.dtype)},
                   dsc::weight_bytes(format_.dtype));
  }

  // Runs the exchange, or starts it if `work` is not null. The arrays must have been checked before.
  template <typename Exchange>
  void run(dsc_work_t** work, const Exchange& exchange) {
    const bool on_device = kind_.is_on_device(stream_);
    if (on_device && format_.is_fp8)
      dsc::fail(DSC_ERR_UNSUPPORTED,
                "payload is 2 (f8e4m3) and the rows are in device memory, expected payload 1 (plain)");
    const dsc::RowCall call{*comm_, format_, on_device ? kind_.first() : nullptr, stream_, work != nullptr};
    const auto started = exchange(plan().mover(on_device), call);
    if (work) *work = dsc::give_out(*comm_, started);
  }

 private:
  MoePlan& plan() const { return *pinned_->plan; }
  size_t slot_count() const { return plan().positions().size(); }
  Array rows_of(const char* name, const void* data, size_t count) {
    return checked({name, data, count * format_.plain_bytes()}, dsc::dtype_bytes(format_.dtype));
  }
  Array checked(const Array& array, size_t element_bytes) {
    dsc::check_layout(array, element_bytes);
    kind_.add(array);
    return array;
  }

  const dsc::Pinned<PlanObject> pinned_;
  const dsc::CommCall comm_;
  void* const stream_;
  RowFormat format_;
  dsc::ArrayKind kind_;
};

// Checks that each output overlaps no input and no other output.
void check_apart(std::initializer_list<Array> outputs, std::initializer_list<Array> inputs) {
  for (const Array* output = outputs.begin(); output != outputs.end(); ++output) {
    for (const Array& input : inputs) dsc::check_apart(*output, input);
    for (const Array* other = outputs.begin(); other != output; ++other) dsc::check_apart(*output, *other);
  }
}

dsc_moe_plan_info_t info_of(const MoePlan& plan) {
  dsc_moe_plan_info_t info{};
  info.tokens = plan.tokens();
  info.top_k = plan.settings().top_k;
  info.experts = plan.settings().experts;
  info.first_expert = plan.experts().begin;
  info.local_experts = plan.experts().count;
  info.rows = plan.rows();
  info.sent = plan.sent();
  info.dropped = plan.dropped();
  return info;
}

}  // namespace

dsc_result_t dsc_moe_plan_options_init(dsc_moe_plan_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_moe_options(), "options"); });
}

dsc_result_t dsc_moe_plan_create(dsc_comm_t* comm, const dsc_moe_plan_options_t* options,
                                 const int32_t* expert_ids, size_t tokens, const float* weights,
                                 dsc_moe_plan_t** plan) {
  return dsc::guard(__func__, [&] {
    if (plan) *plan = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(plan, "plan");
    const dsc::MoeSettings settings = read_settings(options);
    const dsc::Choice choice = read_choice(*inside, settings, expert_ids, tokens, weights);
    auto made = std::make_shared<PlanObject>(PlanObject{comm, MoePlan::create(*inside, settings, choice)});
    *plan = dsc::open_handle<dsc_moe_plan_t>(dsc::HandleKind::kMoePlan, std::move(made));
  });
}

dsc_result_t dsc_moe_plan_info(const dsc_moe_plan_t* plan, dsc_moe_plan_info_t* info) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_plan(plan);
    dsc::write_sized(info, info_of(*pinned->plan), "info");
  });
}

dsc_result_t dsc_moe_plan_expert_rows(const dsc_moe_plan_t* plan, size_t* rows, size_t capacity,
                                      size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_plan(plan);
    return dsc::give_list("rows", pinned->plan->expert_rows(), rows, capacity, needed);
  });
}

dsc_result_t dsc_moe_plan_source_rows(const dsc_moe_plan_t* plan, size_t* rows, size_t capacity,
                                      size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_plan(plan);
    return dsc::give_list("rows", pinned->plan->source_rows(), rows, capacity, needed);
  });
}

dsc_result_t dsc_moe_plan_positions(const dsc_moe_plan_t* plan, int64_t* positions, size_t capacity,
                                    size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_plan(plan);
    const std::vector<size_t>& all = pinned->plan->positions();
    return dsc::give_list("positions", all.size(), positions, capacity, needed, [&](size_t slot) {
      return all[slot] == MoePlan::kNowhere ? int64_t{-1} : static_cast<int64_t>(all[slot]);
    });
  });
}

dsc_result_t dsc_moe_dispatch(dsc_moe_plan_t* plan, const void* tokens, size_t hidden, dsc_dtype_t dtype,
                              dsc_moe_payload_t payload, void* rows, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    dsc::clear(work);
    ExchangeCall call(plan, hidden, dtype, payload, stream);
    const Array sent = call.tokens("tokens", tokens), given = call.rows("rows", rows);
    check_apart({given}, {sent});
    call.run(work, [&](auto& mover, const auto& how) { return mover.dispatch(how, tokens, rows); });
  });
}

dsc_result_t dsc_moe_dispatch_backward(dsc_moe_plan_t* plan, const void* row_gradients, size_t hidden,
                                       dsc_dtype_t dtype, void* token_gradients, void* stream,
                                       dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    dsc::clear(work);
    ExchangeCall call(plan, hidden, dtype, DSC_MOE_PAYLOAD_PLAIN, stream);
    const Array sent = call.rows("row_gradients", row_gradients);
    const Array given = call.tokens("token_gradients", token_gradients);
    check_apart({given}, {sent});
    call.run(work, [&](auto& mover, const auto& how) {
      return mover.dispatch_backward(how, row_gradients, token_gradients);
    });
  });
}

dsc_result_t dsc_moe_combine(dsc_moe_plan_t* plan, const void* rows, const void* weights, size_t hidden,
                             dsc_dtype_t dtype, void* out, void* returned, void* stream, dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    dsc::clear(work);
    ExchangeCall call(plan, hidden, dtype, DSC_MOE_PAYLOAD_PLAIN, stream);
    const Array sent = call.rows("rows", rows);
    const Array factors = weights ? call.weights("weights", weights) : Array{};
    const Array given = call.tokens("out", out);
    const Array kept = returned ? call.slots("returned", returned) : Array{};
    check_apart({given, kept}, {sent, factors});
    call.run(work, [&](auto& mover, const auto& how) {
      return mover.combine(how, rows, {weights, out, returned});
    });
  });
}

dsc_result_t dsc_moe_combine_backward(dsc_moe_plan_t* plan, const void* out_gradients, const void* weights,
                                      const void* returned, size_t hidden, dsc_dtype_t dtype,
                                      void* row_gradients, void* weight_gradients, void* stream,
                                      dsc_work_t** work) {
  return dsc::guard(__func__, [&] {
    dsc::clear(work);
    ExchangeCall call(plan, hidden, dtype, DSC_MOE_PAYLOAD_PLAIN, stream);
    const Array sent = call.tokens("out_gradients", out_gradients);
    const Array factors = weights ? call.weights("weights", weights) : Array{};
    const Array kept = weight_gradients ? call.slots("returned", returned) : Array{};
    const Array given = call.rows("row_gradients", row_gradients);
    const Array products = weight_gradients ? call.weights("weight_gradients", weight_gradients) : Array{};
    check_apart({given, products}, {sent, factors, kept});
    call.run(work, [&](auto& mover, const auto& how) {
      return mover.combine_backward(how, {out_gradients, weights, returned, row_gradients, weight_gradients});
    });
  });
}

dsc_result_t dsc_moe_plan_destroy(dsc_moe_plan_t* plan) {
  return dsc::guard(__func__, [&] {
    if (!plan) return;
    auto pinned = pin_plan(plan);
    pinned.close();
  });
}
