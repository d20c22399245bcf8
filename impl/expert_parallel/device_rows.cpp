#include "expert_parallel/device_rows.hpp"

#include "expert_parallel/moe_plan.hpp"
#include "expert_parallel/stream_rows.hpp"

namespace dsc {

std::shared_ptr<Work> DeviceRows::run(const RowCall& call, const RowExchange::Step& step,
                                      const Start& start) {
  if (!on_device_)
    on_device_ =
        std::make_shared<const DevicePlan>(*call.comm.device_context(), plan_, call.comm.timeout_ms());
  Call exchange = plan_.exchange().call_of(step, call.format);
  exchange.send = call.on_device;
  exchange.stream = call.stream;
  exchange.steps = std::make_shared<const RowSteps>(on_device_, call.format, start);
  if (call.starts) return call.comm.start(exchange);
  call.comm.run(exchange);
  return nullptr;
}

// ---- to the experts

std::shared_ptr<Work> DeviceRows::to_experts(const RowCall& call, const char* name, void* rows,
                                             const std::function<void(StreamRows&, void*)>& fill,
                                             const std::function<void(StreamRows&)>& finish) {
  const auto start = [rows, fill, finish](StreamRows& on, Call& exchange) {
    const DevicePlan& plan = on.plan();
    void* const received = plan.is_ordered() ? rows : on.take(plan.received_rows());
    void* const sent = plan.is_alone() ? received : on.take(plan.tokens_of_sent().count);
    fill(on, sent);
    exchange.send = sent;
    exchange.recv = received;
    return [&on, &plan, received, rows, finish] {
      if (!plan.is_ordered()) on.gather(received, plan.received_of_experts(), rows);
      finish(on);
    };
  };
  return run(call, plan_.step(name, true), start);
}

std::shared_ptr<Work> DeviceRows::dispatch(const RowCall& call, const void* tokens, void* rows) {
  const auto fill = [tokens](StreamRows& on, void* sent) {
    on.gather(tokens, on.plan().tokens_of_sent(), sent);
  };
  return to_experts(call, "dispatch", rows, fill, [](StreamRows&) {});
}

std::shared_ptr<Work> DeviceRows::combine_backward(const RowCall& call, const CombineGradients& gradients) {
  const auto fill = [gradients](StreamRows& on, void* sent) {
    const DevicePlan& plan = on.plan();
    const StreamRows::Sums weighted{1, gradients.weights, plan.slots_of_sent()};
    if (gradients.weights)
      on.sum(gradients.out_gradients, plan.tokens_of_sent(), weighted, sent);
    else
      on.gather(gradients.out_gradients, plan.tokens_of_sent(), sent);
  };
  const auto finish = [gradients](StreamRows& on) {
    if (gradients.weight_gradients)
      on.multiply(gradients.out_gradients, gradients.returned, gradients.weight_gradients);
  };
  return to_experts(call, "combine_backward", gradients.row_gradients, fill, finish);
}

// ---- back to the tokens

std::shared_ptr<Work> DeviceRows::to_tokens(const RowCall& call, const char* name, const void* rows,
                                            const std::function<void(StreamRows&, const void*)>& finish) {
  const auto start = [rows, finish](StreamRows& on, Call& exchange) {
    const DevicePlan& plan = on.plan();
    void* const packed = plan.is_ordered() ? nullptr : on.take(plan.received_rows());
    if (!plan.is_ordered()) on.gather(rows, plan.experts_of_received(), packed);
    exchange.send = plan.is_ordered() ? rows : packed;
    // In a group of one rank, nothing moves, so the rows are only read.
    exchange.recv = plan.is_alone() ? const_cast<void*>(rows) : on.take(plan.tokens_of_sent().count);
    return [&on, finish, returned = exchange.recv] { finish(on, returned); };
  };
  return run(call, plan_.step(name, false), start);
}

std::shared_ptr<Work> DeviceRows::combine(const RowCall& call, const void* rows, const Combined& combined) {
  const auto finish = [combined](StreamRows& on, const void* came) {
    const DevicePlan& plan = on.plan();
    on.sum(came, plan.positions(), {plan.top_k(), combined.weights, {}}, combined.out);
    if (combined.returned) on.gather(came, plan.positions(), combined.returned);
  };
  return to_tokens(call, "combine", rows, finish);
}

std::shared_ptr<Work> DeviceRows::dispatch_backward(const RowCall& call, const void* row_gradients,
                                                    void* token_gradients) {
  const auto finish = [token_gradients](StreamRows& on, const void* came) {
    const DevicePlan& plan = on.plan();
    on.sum(came, plan.positions(), {plan.top_k(), nullptr, {}}, token_gradients);
  };
  return to_tokens(call, "dispatch_backward", row_gradients, finish);
}

}  // namespace dsc
