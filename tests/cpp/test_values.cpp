// The C++ layer in one process: views, types, errors, moves, the order of destruction, stores, meshes,
// schedules.
#include <array>
#include <optional>
#include <type_traits>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "expect.hpp"

namespace {

template <class Owner>
constexpr bool only_moves = std::is_nothrow_move_constructible_v<Owner>&& std::is_move_assignable_v<Owner> &&
                            !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> &&
                            std::is_nothrow_destructible_v<Owner>;
static_assert(only_moves<dsc::comm> && only_moves<dsc::work> && only_moves<dsc::store> &&
              only_moves<dsc::mesh>);
static_assert(only_moves<dsc::bucket_reducer> && only_moves<dsc::sharded> && only_moves<dsc::pipe_schedule>);
static_assert(only_moves<dsc::shared_array<float>> && only_moves<dsc::premul_sum> &&
              only_moves<dsc::user_op<float>>);
// Marks take buffers and streams. A pointer to a gradient is neither.
template <class Owner, class Argument, class = void>
constexpr bool marks = false;
template <class Owner, class Argument>
constexpr bool marks<Owner, Argument,
                     std::void_t<decltype(std::declval<Owner&>().mark_ready(0, std::declval<Argument>()))>> =
    true;
static_assert(marks<dsc::bucket_reducer, void*> && marks<dsc::sharded, struct stream*>);
static_assert(marks<dsc::bucket_reducer, std::vector<float>&> && marks<dsc::sharded, std::vector<float>>);
static_assert(marks<dsc::bucket_reducer, float (&)[3]> && marks<dsc::sharded, const float (&)[3]>);
static_assert(!marks<dsc::bucket_reducer, float*> && !marks<dsc::sharded, const float*>);
static_assert(!marks<dsc::bucket_reducer, short*> && !marks<dsc::sharded, dsc::f16*&>);
static_assert(std::is_nothrow_copy_constructible_v<dsc::error> &&
              std::is_copy_constructible_v<dsc::comm_view>);

static_assert(dsc::dtype_of_v<const float> == dsc::dtype::f32 && dsc::dtype_of_v<bool> == dsc::dtype::bool_);
static_assert(dsc::dtype_of_v<long> == dsc::dtype::i64 &&
              dsc::dtype_of_v<unsigned long long> == dsc::dtype::u64);
static_assert(dsc::dtype_of_v<dsc::bf16> == dsc::dtype::bf16 && sizeof(dsc::f8e4m3) == 1);

// A type of another library, which the program declares to have the bits of f16.
struct half {
  std::uint16_t bits;
};

template <class T, class = void>
constexpr bool has_dtype = false;
template <class T>
constexpr bool has_dtype<T, std::void_t<decltype(dsc::dtype_of<T>::value)>> = true;
static_assert(!has_dtype<short> && !has_dtype<std::string> && !has_dtype<long double>);

// A container that is a temporary ends before its last use. A view does not, because the program owns its
// memory.
template <class Buffer>
constexpr bool ends_early = dsc::detail::is_temporary_container<Buffer>();
static_assert(ends_early<std::vector<float>> && ends_early<const std::vector<float>> &&
              ends_early<std::array<float, 4>>);
static_assert(!ends_early<std::vector<float>&> && !ends_early<const std::vector<float>&>);
static_assert(!ends_early<dsc::span<float>> && !ends_early<dsc::span<const float>>);

static_assert(std::is_constructible_v<dsc::span<float>, std::vector<float>&>);
static_assert(!std::is_constructible_v<dsc::span<float>, const std::vector<float>&>);
static_assert(
    !std::is_constructible_v<dsc::span<float>, std::vector<float>>);  // it would end before the view
static_assert(!std::is_constructible_v<dsc::span<float>, std::vector<double>&>);
static_assert(std::is_constructible_v<dsc::span<const float>, dsc::span<float>>);
static_assert(!std::is_constructible_v<dsc::span<float>, dsc::span<const float>>);

}  // namespace

template <>
struct dsc::dtype_of<half> {
  static constexpr dsc::dtype value = dsc::dtype::f16;
};

namespace {

void test_spans() {
  std::vector<int> list{1, 2, 3, 4};
  std::array<int, 2> pair{5, 6};
  int plain[3] = {7, 8, 9};
  EXPECT(dsc::span(list).size() == 4 && dsc::span(pair)[1] == 6 && dsc::span(plain).back() == 9);
  const dsc::span<const int> view = list;
  EXPECT(view.data() == list.data() && view.subspan(1, 2).front() == 2 && view.last(1)[0] == 4);
  int sum = 0;
  for (const int one : view.first(3)) sum += one;
  EXPECT(sum == 6 && view.size_bytes() == 4 * sizeof(int) && dsc::span<int>().empty());
#if __cplusplus >= 202002L
  const std::span<int> standard = list;
  EXPECT(dsc::span<int>(standard).data() == list.data());
  EXPECT(std::span<const int>(view.begin(), view.end()).size() == 4);
#endif
}

void test_errors_have_types() {
  const dsc::error unknown = error_of([] { dsc::pipe_schedule("1fb1", 2, 0, 4); });
  EXPECT(unknown.code() == dsc::errc::invalid_arg && contains(unknown.what(), "did you mean \"1f1b\"?"));
  EXPECT(std::string(dsc::name(unknown.code())) == "DSC_ERR_INVALID_ARG");
  EXPECT(error_of([] { dsc::world(); }).code() == dsc::errc::state);
  const dsc::error copy = unknown;
  EXPECT(copy.what() == std::string(unknown.what()) && copy.rank() == -1 && copy.ranks().empty());
  EXPECT(error_of([] { dsc::check(DSC_ERR_TIMEOUT); }).code() == dsc::errc::timeout);
  EXPECT(dsc::check(DSC_IN_PROGRESS) == DSC_IN_PROGRESS);
}

// Threads of one operation may throw different exceptions. The library reports one of them, which is thrown.
void test_kept_exceptions() {
  dsc::detail::kept_exception kept;
  const auto fail = [&](const std::string& text) {
    char room[16];
    EXPECT(kept.run(room, sizeof room, [&] { throw std::out_of_range(text); }) == 1);
    return dsc::error(dsc::errc::callback, std::string("returned 1: ") + room);
  };
  const auto thrown_for = [&](const dsc::error& failure) {
    try {
      kept.rethrow_cause(failure);
    } catch (const std::out_of_range& cause) {
      return std::string(cause.what());
    }
    return std::string("nothing");
  };
  EXPECT(thrown_for(dsc::error(dsc::errc::callback, "returned 1: first")) == "nothing");
  const dsc::error first = fail("first"), longer = fail("first of all"), last = fail("last, and cut off");
  EXPECT(thrown_for(first) == "first" && thrown_for(longer) == "first of all" &&
         thrown_for(first) == "first");
  EXPECT(thrown_for(last) == "last, and cut off");
  EXPECT(thrown_for(dsc::error(dsc::errc::callback, "returned 1: other")) == "nothing");
  EXPECT(thrown_for(dsc::error(dsc::errc::timeout, "first")) == "nothing");
  for (int i = 0; i < 100; ++i) fail(std::to_string(i));
  EXPECT(thrown_for(first) == "nothing");  // the number of exceptions is limited
}

void test_options_begin_with_defaults() {
  EXPECT(dsc::reducer_options().bucket_bytes == 26214400 && dsc::init_options().rank == -1);
  EXPECT(dsc::sharded_options().stage == 2 && dsc::clip_options().scale == 1.0);
}

void test_stores() {
  dsc::store store("memory://");
  store.set("key", "value");
  EXPECT(store.get("key") == "value" && store.contains({"key"}) && !store.contains({"key", "other"}));
  store.set("long", std::string(5000, 'x'));
  EXPECT(store.get("long").size() == 5000);
  EXPECT(store.add("count", 3) == 3 && store.add("count", -1) == 2);
  EXPECT(store.compare_set("key", "value", "new") == "new" &&
         store.compare_set("key", "value", "third") == "new");
  EXPECT(store.compare_set("long", "a", "b").size() == 5000);
  store.append("key", "er");
  dsc::store part = store.prefix("part");
  part.set("key", std::string("a\0b", 3));
  EXPECT(store.get("part/key").size() == 3 && store.size() == 4 && store.erase("count") &&
         !store.erase("count"));
  const dsc::error late = error_of([&] { store.get("missing", dsc::milliseconds(1)); });
  EXPECT(late.code() == dsc::errc::timeout && contains(late.what(), "missing"));
  dsc::store moved = std::move(store);
  moved.close();
  EXPECT(part.get("key")[2] == 'b');  // a part keeps its whole alive
  EXPECT(error_of([&] { moved.get("key"); }).code() == dsc::errc::bad_handle);
}

void test_meshes() {
  const dsc::mesh mesh({{"pp", 2}, {"dp", 3}});
  EXPECT(mesh.size() == 6 && mesh.axis_size("dp") == 3 && mesh.neighbor(2, "dp", 1) == 0);
  EXPECT((mesh.coord(4) == std::vector<std::int32_t>{1, 1}) && mesh.rank(mesh.coord(4)) == 4 &&
         mesh.peer(4, "pp", 0) == 1);
  EXPECT((mesh.group(4, "dp") == std::vector<std::int32_t>{3, 4, 5}));
  EXPECT(error_of([&] { mesh.axis_size("dq"); }).code() == dsc::errc::invalid_arg);
}

void test_schedules() {
  dsc::pipe_schedule schedule("gpipe", 2, 0, 3);
  EXPECT(schedule.name() == "gpipe" && schedule.info().micro_batches == 3 && schedule.buffers() == 3);
  int forward = 0, count = 0;
  while (const std::optional<dsc::pipe_instruction> one = schedule.next()) {
    forward += one->op == dsc::pipe_op::forward;
    ++count;
  }
  EXPECT(forward == 3 && count > 9 && !schedule.next());
  schedule.reset();
  EXPECT(schedule.next().has_value() && schedule.at_stage(1).info().stage == 1);
  EXPECT(std::string(dsc::name(dsc::pipe_op::recv_grad)) == "recv_grad");
}

// A closed or moved-from object refuses calls as the library does, and releasing it does nothing.
void test_moves(dsc::comm world) {
  dsc::comm group = world.split(0, 0);
  dsc::comm other = std::move(group);
  EXPECT(other.size() == 1 && !group &&
         group.size() == 0);  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT(error_of([&] { group.barrier(); }).code() == dsc::errc::bad_handle);
  std::vector<half> values(3);
  dsc::work work = other.start(dsc::request::all_reduce(values, dsc::op::sum));
  dsc::work kept;
  EXPECT(!kept && work);
  kept = std::move(work);
  kept.wait();
  EXPECT(kept.done() && kept.wait_for(dsc::milliseconds(0)) && !kept.failure() && kept.descriptor() >= 0);
  group = std::move(other);
  group.close();
  EXPECT(!group);
  world.finalize();
  EXPECT(!world && error_of([] { dsc::world(); }).code() == dsc::errc::state);
}

void test_one_owner_of_the_world() {
  dsc::comm world = dsc::init();
  const dsc::error second = error_of([] { dsc::init(); });
  EXPECT(second.code() == dsc::errc::state && contains(second.what(), "dsc::world()"));
  EXPECT(dsc::world().get() == world.get());
  test_moves(std::move(world));
  dsc::comm again = dsc::init();  // the destructor ends this world
}

// Releases a world and what was made from it in every order. Whatever comes last finds what it needs, or an
// error.
void test_any_order(std::size_t order) {
  std::vector<double> values(1000, 1.0);
  std::optional<dsc::comm> world = dsc::init();
  std::optional<dsc::comm> group = world->split(0, 0);
  std::optional<dsc::bucket_reducer> reducer(std::in_place, *group, dsc::tensors{dsc::tensor(values)});
  std::optional<dsc::shared_array<double>> shared(std::in_place, *group, 100);
  std::optional<dsc::work> work = group->start(dsc::request::all_reduce(values, dsc::op::sum));
  reducer->set_hook("hook", [](dsc::bucket&) {});
  for (std::size_t step = 0; step < 5; ++step) {
    switch ((step * (order / 5 + 1) + order) % 5) {  // 1 to 4 are prime to 5, so each case occurs once
      case 0:
        world.reset();
        break;
      case 1:
        group.reset();
        break;
      case 2:
        reducer.reset();
        break;
      case 3:
        if (shared) (*shared)[99] = 1.0;
        shared.reset();
        break;
      default:
        work.reset();
    }
  }
  EXPECT(!world && !group && !reducer && !shared && !work);
}

}  // namespace

int main() {
  int failures = run_test("spans", test_spans) + run_test("errors", test_errors_have_types) +
                 run_test("kept_exceptions", test_kept_exceptions) +
                 run_test("options", test_options_begin_with_defaults) + run_test("stores", test_stores) +
                 run_test("meshes", test_meshes) + run_test("schedules", test_schedules) +
                 run_test("world", test_one_owner_of_the_world);
  for (std::size_t order = 0; order < 20; ++order)
    failures += run_test("order", [&] { test_any_order(order); });
  return failures == 0 ? 0 : 1;
}
