// The C++ layer on several ranks: operations, works, groups, training, and exceptions of callbacks.
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "expect.hpp"

namespace {

using doubles = std::vector<double>;

// An exception that the library does not know.
struct own_exception : std::runtime_error {
  explicit own_exception(int thrown_by)
      : std::runtime_error("own text of rank " + std::to_string(thrown_by)), rank(thrown_by) {}
  int rank;
};

void test_operations(const dsc::comm& comm) {
  const std::int32_t rank = comm.rank(), size = comm.size();
  const auto n = static_cast<std::size_t>(size);
  std::array<double, 2> mine{rank + 1.0, 1.0}, sums{};
  comm.all_reduce(mine, sums, dsc::op::sum);
  EXPECT(sums[0] == size * (size + 1) / 2.0 && sums[1] == size && mine[0] == rank + 1.0);
  EXPECT(comm.all_reduce_value(rank, dsc::op::max) == size - 1);

  std::vector<std::int32_t> all(2 * n);
  comm.all_gather(std::vector<std::int32_t>{rank, -rank}, all);
  EXPECT(all[2 * n - 2] == size - 1 && all[1] == 0 && all[2 * n - 1] == 1 - size);
  std::vector<float> parts(3 * n, 1.0f), part(3);
  comm.reduce_scatter(parts, part, dsc::op::sum);
  EXPECT(part[2] == static_cast<float>(size));
  std::vector<std::int64_t> sent(n), received(n);
  std::iota(sent.begin(), sent.end(), std::int64_t{10} * rank);
  comm.all_to_all(sent, received);
  EXPECT(received[n - 1] == 10 * (size - 1) + rank);

  std::vector<std::uint8_t> on_root(rank == 0 ? n : 0);
  comm.gather(std::array<std::uint8_t, 1>{static_cast<std::uint8_t>(rank)}, on_root, 0);
  EXPECT(rank != 0 || on_root.back() == n - 1);
  std::array<std::uint8_t, 1> back{};
  comm.scatter(on_root, back, 0);
  EXPECT(back[0] == rank);
  doubles once(4, rank == 0 ? 2.5 : 0.0);
  comm.broadcast(once, 0);
  comm.reduce(once, dsc::op::sum, size - 1);
  EXPECT(once[3] == (rank == size - 1 ? 2.5 * size : 2.5));
}

void test_lengths(const dsc::comm& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank()), n = static_cast<std::size_t>(comm.size());
  std::vector<std::size_t> counts(n);
  std::iota(counts.begin(), counts.end(), std::size_t{1});
  const std::size_t sum = n * (n + 1) / 2;
  doubles mine(rank + 1, static_cast<double>(rank)), all(sum);
  comm.all_gather_v(mine, all, counts);
  EXPECT(all.front() == 0.0 && all.back() == static_cast<double>(n - 1));
  comm.reduce_scatter_v(all, mine, counts, dsc::op::sum);
  EXPECT(mine.back() == static_cast<double>(rank * n));
  const std::vector<std::size_t> to_all(n, rank + 1);
  doubles out((rank + 1) * n, static_cast<double>(rank)), in(sum);
  comm.all_to_all_v(out, to_all, in, counts);
  EXPECT(in.back() == static_cast<double>(n - 1));
  if (n == 1) return;  // where these lengths fit
  const std::vector<std::size_t> one_count{1};
  EXPECT(contains(error_of([&] { comm.all_gather_v(mine, in, one_count); }).what(), "counts has 1 entries"));
  EXPECT(contains(error_of([&] { comm.all_gather(mine, mine); }).what(), "recv has "));
}

void test_messages(const dsc::comm& comm) {
  const std::int32_t next = (comm.rank() + 1) % comm.size(),
                     previous = (comm.rank() + comm.size() - 1) % comm.size();
  if (comm.size() == 1) return;
  std::vector<std::int32_t> out(3, comm.rank()), in(3);
  comm.batch({dsc::request::send(out, next), dsc::request::recv(in, previous)});
  EXPECT(in[2] == previous);
  doubles sums(2, 1.0);
  dsc::work both = comm.start_batch({dsc::request::recv(in, previous), dsc::request::send(out, next),
                                     dsc::request::all_reduce(sums, dsc::op::sum)});
  both.wait();
  EXPECT(in[0] == previous && sums[1] == comm.size());
  // A request that does not fit is refused before the batch opens, so the communicator stays usable.
  EXPECT(error_of([&] { comm.batch({dsc::request::all_gather(out, in)}); }).code() == dsc::errc::invalid_arg);
  comm.barrier();
}

// A work that is destroyed has completed, so that its buffer may be freed.
void test_works_wait(const dsc::comm& comm) {
  doubles values(100000, 1.0);
  { dsc::work left = comm.start(dsc::request::all_reduce(values, dsc::op::sum)); }
  EXPECT(values.back() == comm.size() && values.front() == comm.size());
  dsc::work first = comm.start(dsc::request::all_reduce(values, dsc::op::avg));
  first = comm.start(dsc::request::barrier());  // waits for the earlier one
  EXPECT(values[7] == comm.size());
  first.synchronize();
  dsc::work given_up = comm.start(dsc::request::barrier());
  given_up.detach();
  EXPECT(!given_up);
  comm.barrier();
}

// An exception that ends a scope with a running work does not wait for ranks that will not come.
void test_works_while_unwinding(const dsc::comm& comm) {
  doubles values(10, 1.0);
  if (comm.size() == 1) return;
  if (comm.rank() == 0) {
    try {
      dsc::work running = comm.start(dsc::request::all_reduce(values, dsc::op::sum));
      throw own_exception(0);
    } catch (const own_exception& caught) {
      EXPECT(caught.rank == 0);
    }
  }
  const dsc::error ended = error_of([&] { comm.barrier(); });
  EXPECT(ended.code() == dsc::errc::revoked || ended.code() == dsc::errc::mismatch);
  EXPECT(comm.failure().has_value());
}

void test_user_operations(const dsc::comm& comm) {
  const dsc::user_op<double> hypot(1, [](dsc::span<double> result, dsc::span<const double> input) {
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = std::hypot(result[i], input[i]);
  });
  const dsc::premul_sum half(0.5);
  doubles values(1000, 3.0);
  comm.all_reduce(values, hypot);
  EXPECT(std::abs(values[999] - 3.0 * std::sqrt(comm.size())) < 1e-12);
  comm.all_reduce(values, half);
  EXPECT(std::abs(values[0] - 1.5 * comm.size() * std::sqrt(comm.size())) < 1e-12);
  std::vector<float> other(2);
  const dsc::error refused = error_of([&] { comm.all_reduce(other, hypot); });
  EXPECT(refused.code() == dsc::errc::invalid_arg && contains(refused.what(), "elements of f64, not of f32"));
}

// Makes a call in which a function throws on some rank. There the call throws the same exception, on the
// other ranks a dsc::error with its text. Returns whether this rank got the same exception.
template <class Call>
bool throws_own_exception(const std::string& text, Call&& call) {
  try {
    call();
  } catch (const own_exception& caught) {
    EXPECT(contains(caught.what(), text));
    return true;
  } catch (const dsc::error& caught) {
    EXPECT(caught.code() == dsc::errc::callback || caught.code() == dsc::errc::revoked);
    EXPECT(contains(caught.what(), text));
    return false;
  }
  throw failed_expectation("expected an exception with the text of the callback");
}

dsc::user_op<double> throwing_op(std::int32_t rank) {
  return {2, [rank](dsc::span<double>, dsc::span<const double>) { throw own_exception(rank); }};
}

// The library chooses the rank that combines, so some rank gets the exception of the function.
void test_throwing_operation(const dsc::comm& comm) {
  if (comm.size() == 1) return;  // a single rank combines nothing
  const dsc::comm group = comm.split(0, 0);
  const dsc::user_op<double> op = throwing_op(comm.rank());
  doubles values(100, 1.0);
  const bool is_own = throws_own_exception("own text of rank ", [&] { group.all_reduce(values, op); });
  EXPECT(comm.all_reduce_value(is_own ? 1 : 0, dsc::op::sum) > 0);
}

void test_throwing_operation_of_work(const dsc::comm& comm) {
  if (comm.size() == 1) return;
  const dsc::comm group = comm.split(0, 0);
  doubles values(100, 1.0);
  dsc::work work;
  {
    const dsc::user_op<double> op = throwing_op(comm.rank());
    work = group.start(dsc::request::all_reduce(values, op));
  }  // the work keeps the function
  const bool is_own = throws_own_exception("own text of rank ", [&] { work.wait(); });
  EXPECT(work.failure().has_value() && work.done());
  EXPECT(comm.all_reduce_value(is_own ? 1 : 0, dsc::op::sum) > 0);
}

void test_reducer(const dsc::comm& comm) {
  doubles weights(1000, comm.rank()), bias(10, comm.rank()), gradient(10, comm.rank() + 1.0);
  dsc::reducer_options options;
  options.bucket_bytes = 1024;
  dsc::bucket_reducer made(comm, {dsc::tensor(weights, "weights"), dsc::tensor(bias, "bias")}, options);
  dsc::bucket_reducer reducer = std::move(made);
  EXPECT(weights[999] == 0.0 && bias[0] == 0.0 && reducer.n_params() == 2);  // those of rank 0
  const double mean = (comm.size() + 1) / 2.0;
  for (int iteration = 0; iteration < 3; ++iteration) {
    reducer.begin();
    const dsc::span<double> view = reducer.grad_view<double>(0);
    for (double& one : view) one = comm.rank() + 1.0;
    std::fill(gradient.begin(), gradient.end(), comm.rank() + 1.0);
    reducer.accumulate(1, doubles(10, 1.0));
    reducer.mark_ready(1, gradient);
    reducer.mark_ready(0);
    reducer.finish();
    EXPECT(std::abs(view[999] - mean) < 1e-12 && std::abs(gradient[9] - mean - 1.0) < 1e-12);
  }
  const double norm = std::sqrt(1000.0 * mean * mean + 10.0 * (mean + 1.0) * (mean + 1.0));
  EXPECT(std::abs(reducer.clip() - norm) < 1e-9 && contains(reducer.stats_json(), "bucket_sizes"));
  EXPECT(contains(error_of([&] { reducer.grad_view<float>(0); }).what(), "elements of f64, not of f32"));
  std::vector<float> wrong(10);
  reducer.begin();
  EXPECT(error_of([&] { reducer.mark_ready(1, dsc::span(wrong)); }).code() == dsc::errc::invalid_arg);
  EXPECT(contains(error_of([&] { reducer.mark_ready(0, dsc::span(gradient)); }).what(),
                  "has 10 elements, expected 1000"));
  reducer.mark_unused(0);
  reducer.mark_unused(1);
  reducer.finish();
}

// Each rank has one batch more than the one before it.
void test_join(const dsc::comm& comm) {
  doubles weights(20, 0.0), gradient(20);
  const dsc::tensors params{dsc::tensor(weights)};
  dsc::bucket_reducer reducer(comm, params);
  {
    dsc::join join(comm, {reducer});
    for (int32_t batch = 0; batch <= comm.rank(); ++batch) {
      std::fill(gradient.begin(), gradient.end(), 1.0);
      reducer.begin();
      reducer.mark_ready(0, gradient);
      reducer.finish();
      EXPECT(std::abs(gradient[19] - static_cast<double>(comm.size() - batch) / comm.size()) < 1e-12);
      weights[19] += 1.0;
    }
    EXPECT(join.finish(params) == comm.size() - 1 && weights[19] == comm.size());
    EXPECT(error_of([&] { join.finish(params); }).code() == dsc::errc::state);
  }
  if (comm.size() == 1) return;  // nobody else needs a rank without batches
  const int32_t last = comm.size() - 1, rank = comm.rank();
  reducer.set_hook("throws", [last, rank](dsc::bucket& bucket) {
    if (rank == last) throw own_exception(rank);
    bucket.comm().barrier();
  });
  comm.barrier();  // a rank that throws would fail others that are still in set_hook()
  dsc::join join(comm, {reducer});
  // The last rank has no batch, so its hook runs in finish().
  const bool is_own = throws_own_exception("own text of rank " + std::to_string(last), [&] {
    if (rank == last) {
      join.finish(params);
      return;
    }
    reducer.begin();
    reducer.mark_ready(0, gradient);
    reducer.finish();
    join.finish(params);
  });
  EXPECT(is_own == (rank == last));
}

void test_hooks(const dsc::comm& comm) {
  std::vector<float> weights(8), gradient(8, static_cast<float>(comm.rank() + 1));
  dsc::bucket_reducer made(comm, {dsc::tensor(weights)});
  int calls = 0;
  made.set_hook("mean", [&calls](dsc::bucket& bucket) {
    const auto elements = bucket.elements<float>();
    for (float& one : elements) one /= static_cast<float>(bucket.divisor());
    bucket.comm().all_reduce(elements, dsc::op::sum);
    ++calls;
  });
  dsc::bucket_reducer reducer = std::move(made);  // the hook moves along
  reducer.begin();
  reducer.mark_ready(0, gradient);
  reducer.finish();
  EXPECT(calls == 1 && std::abs(gradient[7] - (static_cast<float>(comm.size()) + 1.0f) / 2.0f) < 1e-6f);
  reducer.use_hook("bf16");
  reducer.use_hook("");
  const std::int32_t last = comm.size() - 1, rank = comm.rank();
  reducer.set_hook("throws", [last, rank](dsc::bucket& bucket) {
    if (rank == last) throw own_exception(rank);
    bucket.comm().barrier();
  });
  comm.barrier();  // a rank that throws would fail others that are still in set_hook()
  const bool is_own = throws_own_exception("own text of rank " + std::to_string(last), [&] {
    reducer.begin();
    reducer.mark_ready(0, dsc::span(gradient));
    reducer.finish();
  });
  EXPECT(is_own == (rank == last));
}

void test_sharded(const dsc::comm& comm) {
  doubles weights(50, 1.0);
  const doubles halves(50, 0.5);
  dsc::sharded_options options;
  options.stage = 3;
  dsc::sharded made(comm, {dsc::tensor(weights)}, options);
  dsc::sharded sharded = std::move(made);
  EXPECT(sharded.n_units() == 1 && sharded.units()[0] == 0);
  // The shards have equal sizes. So the last ones may hold only padding, which is in no range.
  std::size_t owned = 0;
  for (const dsc_sharded_range_t& range : sharded.ranges()) owned += range.count;
  EXPECT(comm.all_reduce_value(owned, dsc::op::sum) == weights.size());
  for (int step = 0; step < 2; ++step) {
    sharded.unshard(0);
    sharded.wait(0);
    EXPECT(sharded.param_view<double>(0)[49] == 1.0 - 0.5 * step * (comm.size() + 1));
    sharded.begin();
    sharded.accumulate(0, halves);
    sharded.mark_ready(0, doubles(50, comm.rank() + 0.5));
    sharded.finish();
    for (const dsc::shard& shard : sharded.shards()) {
      const auto params = shard.param_elements<double>();
      const auto grads = shard.grad_elements<double>();
      for (std::size_t i = 0; i < params.size(); ++i) params[i] -= grads[i];
    }
    sharded.step_done();
  }
  EXPECT(error_of([&] { sharded.shards()[0].param_elements<float>(); }).code() == dsc::errc::invalid_arg);
  sharded.close();
}

void test_lists(const dsc::comm& comm) {
  doubles first(10, comm.rank()), second(3, 1.0);
  std::vector<std::int32_t> third(4, 2);
  const dsc::tensors list{dsc::tensor(first), dsc::tensor(second), dsc::tensor(third)};
  dsc::verify_params(comm, list);
  dsc::broadcast_coalesced(comm, list, comm.size() - 1);
  dsc::all_reduce_coalesced(comm, list, dsc::op::sum);
  EXPECT(first[9] == comm.size() * (comm.size() - 1) && second[2] == comm.size() &&
         third[3] == 2 * comm.size());
  dsc::shared_array<float> shared(comm, 1000);
  shared[999] = 1.0f;
  comm.all_reduce(shared, dsc::op::sum);
  EXPECT(shared[999] == static_cast<float>(comm.size()) && shared[0] == 0.0f);
  const dsc::shared_array<float> moved = std::move(shared);
  EXPECT(moved.size() == 1000 && moved[0] == 0.0f && shared.size() == 0 && shared.begin() == shared.end());
  const std::size_t too_many = std::numeric_limits<std::size_t>::max() / sizeof(float) + 2;
  const dsc::error refused = error_of([&] { dsc::shared_array<float>(comm, too_many); });
  EXPECT(refused.code() == dsc::errc::overflow);
}

void test_registered_memory(const dsc::comm& comm) {
  std::vector<float> data(20000, 1.0f);
  {
    const dsc::registration registered(comm, data);
    comm.all_reduce(data, dsc::op::sum);
    const dsc::error refused = error_of([&] { const dsc::registration again(comm, data); });
    EXPECT(refused.code() == dsc::errc::invalid_arg);
    comm.all_reduce(data, dsc::op::max);
  }
  dsc::registration again(comm, data);  // the failed one did not end the first, which has ended by itself
  again.close();
  EXPECT(data.front() == static_cast<float>(comm.size()) && data.back() == data.front());
}

void test_groups(const dsc::comm& comm) {
  dsc::comm_options options;
  options.name = "half";
  const dsc::comm half = comm.split(comm.rank() % 2, -comm.rank(), &options);
  EXPECT(half.name() == "half" && half.global_rank(half.rank()) == comm.global_rank(comm.rank()));
  const dsc::comm first = comm.create_group(std::array<std::int32_t, 1>{0});
  EXPECT(static_cast<bool>(first) == (comm.rank() == 0));
  const dsc::comm none = comm.split(comm.rank() == 0 ? -1 : 0, 0);
  EXPECT(static_cast<bool>(none) == (comm.rank() != 0));
  const dsc::mesh mesh({{"rows", 1}, {"columns", comm.size()}});
  EXPECT(mesh.comm(comm, "columns").size() == comm.size() && mesh.comm(comm, "rows").size() == 1);
  comm.set_timeout(dsc::milliseconds(54321));
  comm.barrier();
  EXPECT(comm.timeout() == dsc::milliseconds(54321) && !comm.failure() && !comm.stats().empty());
}

// A rank that joins no group has an empty communicator, which refuses every operation.
void test_empty_communicator(const dsc::comm& comm) {
  const dsc::comm none = comm.split(-1, 0);
  doubles from(4), to(4);
  const std::vector<std::size_t> counts;
  const auto is_refused = [](const dsc::error& failure) { return failure.code() == dsc::errc::bad_handle; };
  EXPECT(is_refused(error_of([&] { none.all_reduce(from, to, dsc::op::sum); })));
  EXPECT(is_refused(error_of([&] { none.all_to_all(from, to); })));
  EXPECT(is_refused(error_of([&] { none.all_gather_v(from, to, counts); })));
  EXPECT(is_refused(error_of([&] { none.reduce_scatter_v(from, to, counts, dsc::op::sum); })));
  EXPECT(is_refused(error_of([&] { static_cast<void>(none.start(dsc::request::all_to_all(from, to))); })));
  EXPECT(is_refused(error_of([&] { none.batch({dsc::request::all_to_all(from, to)}); })));
}

// Stages multiply by 2. Returns the functions of a stage; the last stage's loss is its output.
dsc::pipe_callbacks doubling(double& weight_grad) {
  dsc::pipe_callbacks callbacks;
  const auto input = [](const dsc::pipe_call& call) {
    return call.n_inputs() > 0 ? call.input<double>()[0] : call.instruction.micro_batch + 1.0;
  };
  callbacks.load_micro_batch = [](const dsc::pipe_call&) {};
  callbacks.forward = [input](const dsc::pipe_call& call) {
    if (call.n_outputs() > 0) call.output<double>()[0] = 2.0 * input(call);
    if (call.has_loss()) call.set_loss(2.0 * input(call));
  };
  callbacks.backward = [input, &weight_grad](const dsc::pipe_call& call) {
    const double grad = call.n_outputs() > 0 ? call.output_grad<double>()[0] : 0.25;
    weight_grad += input(call) * grad;
    if (call.n_inputs() > 0) call.input_grad<double>()[0] = 2.0 * grad;
  };
  return callbacks;
}

dsc::pipe_shapes one_number(const dsc::comm& comm) {
  dsc::pipe_shapes shapes;
  if (comm.rank() > 0) shapes.inputs.push_back(dsc::tensor::described<double>(1));
  if (comm.rank() < comm.size() - 1) shapes.outputs.push_back(dsc::tensor::described<double>(1));
  return shapes;
}

void test_pipelines(const dsc::comm& comm) {
  dsc::pipe_schedule schedule("1f1b", comm.size(), comm.rank(), 4);
  double weight_grad = 0.0;
  const dsc::pipe_callbacks callbacks = doubling(weight_grad);
  const double loss = dsc::pipe_run(comm, schedule, callbacks, one_number(comm));
  EXPECT(loss == std::ldexp(2.5, comm.size()) && weight_grad == loss / 2.0);
  const dsc::pipe_callbacks none;
  const dsc::error missing = error_of([&] { dsc::pipe_run(comm, schedule, none, one_number(comm)); });
  EXPECT(missing.code() == dsc::errc::invalid_arg);
}

// What the layer itself refuses in a stage is an exception like any other.
void test_wrong_type_in_stage(const dsc::comm& comm) {
  dsc::pipe_schedule schedule("gpipe", comm.size(), comm.rank(), 2);
  double weight_grad = 0.0;
  dsc::pipe_callbacks callbacks = doubling(weight_grad);
  callbacks.forward = [&](const dsc::pipe_call& call) {
    if (comm.rank() == 0) call.output<float>();
  };
  const dsc::error refused = error_of([&] { dsc::pipe_run(comm, schedule, callbacks, one_number(comm)); });
  const bool is_first = comm.rank() == 0;
  EXPECT(refused.code() == (is_first ? dsc::errc::invalid_arg : dsc::errc::callback));
  EXPECT(contains(refused.what(),
                  comm.size() == 1 ? "has no output 0" : "output 0 has elements of f64, not of f32"));
}

// A tensor of integers has no gradient, so asking for it is an exception and not an empty address.
void test_integers_in_stage(const dsc::comm& comm) {
  if (comm.size() == 1) return;  // nothing is exchanged
  dsc::pipe_schedule schedule("gpipe", comm.size(), comm.rank(), 1);
  const bool is_first = comm.rank() == 0, is_last = comm.rank() == comm.size() - 1;
  dsc::pipe_shapes shapes;
  if (!is_first) shapes.inputs.push_back(dsc::tensor::described<std::int32_t>(2));
  if (!is_last) shapes.outputs.push_back(dsc::tensor::described<std::int32_t>(2));
  dsc::pipe_callbacks callbacks;
  callbacks.forward = [&](const dsc::pipe_call& call) {
    if (!is_last) call.output<std::int32_t>()[1] = comm.rank();
    if (is_last) call.set_loss(call.input<std::int32_t>()[1]);
  };
  std::string refusal;
  callbacks.backward = [&](const dsc::pipe_call& call) {
    refusal = error_of([&] {
                if (is_first) call.output_grad<std::int32_t>();
                if (!is_first) call.input_grad<std::int32_t>();
              }).what();
  };
  EXPECT(dsc::pipe_run(comm, schedule, callbacks, shapes) == comm.size() - 2);
  EXPECT(contains(refusal, is_first ? "no gradient of output 0" : "no gradient of input 0"));
}

void test_throwing_stage(const dsc::comm& comm) {
  dsc::pipe_schedule schedule("gpipe", comm.size(), comm.rank(), 4);
  double weight_grad = 0.0;
  dsc::pipe_callbacks callbacks = doubling(weight_grad);
  const std::int32_t last = comm.size() - 1;
  const auto forward = callbacks.forward;
  callbacks.forward = [&](const dsc::pipe_call& call) {
    if (comm.rank() == last && call.instruction.micro_batch == 2) throw own_exception(last);
    forward(call);
  };
  const bool is_own = throws_own_exception("own text of rank " + std::to_string(last), [&] {
    dsc::pipe_run(comm, schedule, callbacks, one_number(comm));
  });
  EXPECT(is_own == (comm.rank() == last));
}

// Exceptions of any type pass through, also one that is not a std::exception.
void test_any_exception_of_stage(const dsc::comm& comm) {
  dsc::pipe_schedule schedule("gpipe", comm.size(), comm.rank(), 2);
  double weight_grad = 0.0;
  dsc::pipe_callbacks callbacks = doubling(weight_grad);
  callbacks.backward = [](const dsc::pipe_call& call) {
    if (call.n_outputs() == 0) throw 42;
  };
  try {
    dsc::pipe_run(comm, schedule, callbacks, one_number(comm));
  } catch (const int number) {
    EXPECT(number == 42 && comm.rank() == comm.size() - 1);
    return;
  } catch (const dsc::error& caught) {
    EXPECT(contains(caught.what(), "an exception that is not a std::exception") &&
           comm.rank() != comm.size() - 1);
    return;
  }
  throw failed_expectation("expected an exception");
}

struct rank_test {
  const char* name;
  void (*body)(const dsc::comm&);
  bool one_host;  // the library has this on one host only
};

const rank_test tests[] = {
    {"operations", test_operations, false},
    {"lengths", test_lengths, false},
    {"messages", test_messages, false},
    {"works_wait", test_works_wait, false},
    {"works_while_unwinding", test_works_while_unwinding, false},
    {"user_operations", test_user_operations, true},
    {"throwing_operation", test_throwing_operation, true},
    {"throwing_operation_of_work", test_throwing_operation_of_work, true},
    {"reducer", test_reducer, false},
    {"join", test_join, false},
    {"hooks", test_hooks, false},
    {"sharded", test_sharded, false},
    {"lists", test_lists, false},
    {"registered_memory", test_registered_memory, false},
    {"groups", test_groups, false},
    {"empty_communicator", test_empty_communicator, false},
    {"pipelines", test_pipelines, false},
    {"integers_in_stage", test_integers_in_stage, false},
    {"throwing_stage", test_throwing_stage, false},
    {"wrong_type_in_stage", test_wrong_type_in_stage, false},
    {"any_exception_of_stage", test_any_exception_of_stage, false},
};

}  // namespace

int main() {
  int failures = 0;
  try {
    dsc::comm world = dsc::init();
    const bool one_host = world.local_size() == world.size();
    for (const rank_test& test : tests) {
      if (test.one_host && !one_host) continue;
      const dsc::comm group = world.split(0, 0);  // a test may end its group
      world.barrier();  // a rank that ends the group would fail others that are still in split()
      failures += run_test(test.name, [&] { test.body(group); });
      world.barrier();
    }
    world.finalize();
  } catch (const std::exception& caught) {
    std::fprintf(stderr, "%s\n", caught.what());
    return 1;
  }
  if (failures == 0) std::puts("passed");
  return failures == 0 ? 0 : 1;
}
