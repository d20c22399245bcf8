// The flight recorder through the public interface: the contents of a trace, on one rank and on several,
// during operations and after failures.
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "json.hpp"

extern "C" {
#include "ranks.h"

#include "cmocka_c.h"  // included last because it defines a macro fail()
}

namespace {

using support::Json;

constexpr size_t kCount = 24;  // elements of every buffer, including those with a part for each rank

std::string text_of(dsc_comm_t* comm) {
  std::string text;
  size_t bytes = 0;
  while (dsc_trace_json(comm, text.data(), text.size(), &bytes) >= DSC_OK && bytes > text.size())
    text.resize(bytes + 4096);
  return text.c_str();
}

Json trace_of(dsc_comm_t* comm) { return Json::parse_or_null(text_of(comm)); }

std::string name_of(dsc_comm_t* comm) {
  char name[64] = "";
  size_t bytes = 0;
  dsc_comm_name(comm, name, sizeof name, &bytes);
  return name;
}

// Returns the entries of one group, oldest first.
std::vector<Json> entries_of(const Json& trace, const std::string& group) {
  std::vector<Json> found;
  for (const Json& entry : trace.at("entries"))
    if (entry.at("process_group").at(1) == group) found.push_back(entry);
  return found;
}

int64_t time_at(const Json& entry, const char* name) {
  return entry.at(name).is_null() ? 0 : entry.at(name).get<int64_t>();
}

// Checks that known times are in order and before the dump.
bool in_order(const Json& entry, int64_t dump_ns) {
  int64_t latest = time_at(entry, "time_created_ns");
  for (const char* name :
       {"time_discovered_started_ns", "time_met_ns", "time_discovered_completed_ns", "time_failed_ns"}) {
    const int64_t time = time_at(entry, name);
    if (time != 0 && time < latest) return false;
    latest = std::max(latest, time);
  }
  return latest <= dump_ns && time_at(entry, "time_created_ns") > dump_ns - 600'000'000'000;
}

dsc_comm_t* split_off(rank_t* self, const char* name) {
  dsc_comm_options_t options;
  dsc_comm_t* group = nullptr;
  if (dsc_comm_options_init(&options, sizeof options) != DSC_OK) return nullptr;
  options.name = name;
  return dsc_comm_split(self->world, 0, 0, &options, &group) == DSC_OK ? group : nullptr;
}

// ---- every operation ----

struct Wanted {
  const char* name;
  std::string input;   // sizes of the inputs
  std::string output;  // sizes of the outputs
  const char* dtype;   // null: the operation has no data
  const char* op;
  int root;
  std::function<dsc_result_t(dsc_comm_t*)> call;
};

struct Buffers {
  float send[kCount] = {};
  float recv[kCount] = {};
  size_t counts[8] = {};
};

std::vector<Wanted> all_operations(const rank_t& self, Buffers& buffers) {
  const auto size = static_cast<size_t>(self.size);
  const size_t part = kCount / size;
  const int32_t root = self.size - 1;
  const bool is_root = self.rank == root;
  const std::string one = "[[" + std::to_string(part) + "]]";
  const std::string all = "[[" + std::to_string(part * size) + "]]";
  const std::string none = "[]";
  float* const s = buffers.send;
  float* const r = buffers.recv;
  std::fill_n(buffers.counts, size, part);
  size_t* const c = buffers.counts;
  const auto f32 = DSC_DTYPE_F32;
  const auto max = DSC_OP_MAX;
  return {
      {"all_reduce", one, one, "f32", "max", -1,
       [=](dsc_comm_t* g) { return dsc_all_reduce(g, s, r, part, f32, max, nullptr, nullptr); }},
      {"broadcast", is_root ? one : none, one, "f32", nullptr, root,
       [=](dsc_comm_t* g) { return dsc_broadcast(g, s, r, part, f32, root, nullptr, nullptr); }},
      {"all_gather", one, all, "f32", nullptr, -1,
       [=](dsc_comm_t* g) { return dsc_all_gather(g, s, r, part, f32, nullptr, nullptr); }},
      {"reduce_scatter", all, one, "f32", "max", -1,
       [=](dsc_comm_t* g) { return dsc_reduce_scatter(g, s, r, part, f32, max, nullptr, nullptr); }},
      {"reduce", one, is_root ? one : none, "f32", "max", root,
       [=](dsc_comm_t* g) { return dsc_reduce(g, s, r, part, f32, max, root, nullptr, nullptr); }},
      {"gather", one, is_root ? all : none, "f32", nullptr, root,
       [=](dsc_comm_t* g) { return dsc_gather(g, s, r, part, f32, root, nullptr, nullptr); }},
      {"scatter", is_root ? all : none, one, "f32", nullptr, root,
       [=](dsc_comm_t* g) { return dsc_scatter(g, s, r, part, f32, root, nullptr, nullptr); }},
      {"all_to_all", all, all, "f32", nullptr, -1,
       [=](dsc_comm_t* g) { return dsc_all_to_all(g, s, r, part, f32, nullptr, nullptr); }},
      {"all_gather_v", one, all, "f32", nullptr, -1,
       [=](dsc_comm_t* g) { return dsc_all_gather_v(g, s, r, c, f32, nullptr, nullptr); }},
      {"reduce_scatter_v", all, one, "f32", "max", -1,
       [=](dsc_comm_t* g) { return dsc_reduce_scatter_v(g, s, r, c, f32, max, nullptr, nullptr); }},
      {"all_to_all_v", all, all, "f32", nullptr, -1,
       [=](dsc_comm_t* g) { return dsc_all_to_all_v(g, s, c, r, c, f32, nullptr, nullptr); }},
      {"all_reduce", "[[0]]", "[[0]]", "f32", "max", -1,
       [=](dsc_comm_t* g) { return dsc_all_reduce(g, s, r, 0, f32, max, nullptr, nullptr); }},
      {"barrier", none, none, nullptr, nullptr, -1,
       [=](dsc_comm_t* g) { return dsc_barrier(g, nullptr, nullptr); }},
      {"monitored_barrier", none, none, nullptr, nullptr, -1,
       [=](dsc_comm_t* g) { return dsc_monitored_barrier(g, 4321); }},
  };
}

Json types_for(const Wanted& wanted, const Json& sizes) {
  return sizes.empty() ? Json::array() : Json::array({wanted.dtype});
}

size_t bytes_of(const Json& sizes) { return sizes.empty() ? 0 : sizes[0][0].get<size_t>() * sizeof(float); }

Json or_null(const char* text) { return text ? Json(text) : Json(nullptr); }

std::string first_difference(const Json& entry, const Wanted& wanted, size_t number, int size) {
  const Json input = Json::parse(wanted.input), output = Json::parse(wanted.output);
  const size_t bytes = std::max(bytes_of(input), bytes_of(output));
  const bool barrier = std::strcmp(wanted.name, "monitored_barrier") == 0;
  const Json expected = Json::object({
      {"profiling_name", std::string("dsc:") + wanted.name},
      {"collective_seq_id", number},
      {"p2p_seq_id", 0},
      {"op_id", number},
      {"is_p2p", false},
      {"input_sizes", input},
      {"input_dtypes", types_for(wanted, input)},
      {"output_sizes", output},
      {"output_dtypes", types_for(wanted, output)},
      {"reduce_op", or_null(wanted.op)},
      {"root", wanted.root >= 0 ? Json(wanted.root) : Json(nullptr)},
      {"peer", nullptr},
      {"bytes", bytes},
      {"timeout_ms", barrier ? 4321 : int32_t{RANKS_TIMEOUT_MS}},
      {"state", "completed"},
      {"retired", true},
      {"frames", Json::array()},
      {"time_failed_ns", nullptr},
      {"algorithm", bytes == 0 ? Json(nullptr) : Json(size == 1 ? "local" : "direct")},
      {"result", "DSC_OK"},
  });
  for (const auto& [key, value] : expected.items())
    if (!entry.contains(key) || entry.at(key) != value)
      return std::string(wanted.name) + ": " + key + " is " + entry.value(key, Json("missing")).dump() +
             ", expected " + value.dump();
  for (const char* time : {"time_created_ns", "time_discovered_started_ns", "time_met_ns",
                           "time_discovered_completed_ns", "duration_ms"})
    if (!entry.at(time).is_number()) return std::string(wanted.name) + ": " + time + " is no number";
  return "";
}

int operations_body(rank_t* self) {
  Buffers buffers;
  dsc_comm_t* group = split_off(self, "odd \"name\" \xc3\xa9\n");
  CHECK(self, group != nullptr);
  const std::vector<Wanted> operations = all_operations(*self, buffers);
  for (const Wanted& operation : operations) CHECK_OK(self, operation.call(group));
  const Json trace = trace_of(group);
  CHECK(self, trace.is_object());
  CHECK(self,
        trace.at("version") == "2.4" && trace.at("library").get<std::string>().rfind("libdsc ", 0) == 0);
  CHECK(self, trace.at("rank") == self->rank && trace.at("world_size") == self->size);
  CHECK(self, trace.at("pid") == getpid() && trace.at("reason") == "call");
  CHECK(self,
        trace.at("job").get<std::string>().size() == 32 && trace.at("host").get<std::string>().size() == 16);
  const std::vector<Json> entries = entries_of(trace, name_of(group));
  CHECK(self, entries.size() == operations.size());
  const int64_t dump_ns = trace.at("clock").at("dump_ns").get<int64_t>();
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string difference = first_difference(entries[i], operations[i], i + 1, self->size);
    if (!difference.empty()) FAIL(self, "%s", difference.c_str());
    CHECK(self, in_order(entries[i], dump_ns));
  }
  const std::string id = entries[0].at("pg_id").get<std::string>();
  CHECK(self, id != "0" && trace.at("pg_config").at(id).at("desc") == name_of(group));
  const Json& status = trace.at("pg_status").at(id);
  CHECK(self, status.at("last_enqueued_collective") == operations.size());
  CHECK(self, status.at("last_started_collective") == operations.size());
  CHECK(self, status.at("last_completed_collective") == operations.size());
  std::string ranks;
  for (int32_t rank = 0; rank < self->size; ++rank) ranks += (rank == 0 ? "" : ", ") + std::to_string(rank);
  CHECK(self, trace.at("pg_config").at(id).at("ranks") == "[" + ranks + "]");
  CHECK(self, trace.at("pg_config").at("0").at("desc") == "world");
  return 0;
}

void all_fields_of_all_operations(void**) {
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, operations_body, nullptr), 0);
}

// ---- operations of the library itself; algorithms ----

std::vector<std::string> names(const std::vector<Json>& entries) {
  std::vector<std::string> list;
  for (const Json& entry : entries) list.push_back(entry.at("profiling_name").get<std::string>());
  return list;
}

int internal_body(rank_t* self) {
  dsc_comm_t* group = split_off(self, "inner");
  void* memory = nullptr;
  CHECK(self, group != nullptr);
  CHECK_OK(self, dsc_mem_alloc(self->world, 1 << 20, DSC_MEMORY_KIND_HOST, &memory));
  CHECK_OK(self,
           dsc_all_reduce(self->world, memory, memory, 1 << 18, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, nullptr));
  std::vector<float> plain(1 << 18);
  CHECK_OK(self, dsc_all_reduce(self->world, plain.data(), plain.data(), plain.size(), DSC_DTYPE_F32,
                                DSC_OP_SUM, nullptr, nullptr));
  const std::vector<Json> entries = entries_of(trace_of(group), "world");
  const std::vector<std::string> expected = {
      "dsc:ready",     "dsc:bind_device", "dsc:split",     "dsc:split",      "dsc:split",
      "dsc:mem_alloc", "dsc:mem_alloc",   "dsc:mem_alloc", "dsc:all_reduce", "dsc:all_reduce"};
  CHECK(self, names(entries) == expected);
  CHECK(self, entries[0].at("collective_seq_id") == 0 && entries[0].at("op_id") == 1);
  CHECK(self, entries[2].at("collective_seq_id") == 1 && entries[9].at("collective_seq_id") == 8);
  const char* const shared = self->size == 1 ? "local" : "zero_copy";
  // "divided" and "claimed" are used where every rank has a processor.
  const Json& plainly = entries[9].at("algorithm");
  const bool is_staged = self->size == 1 ? plainly == "local" : plainly == "divided" || plainly == "claimed";
  CHECK(self, entries[8].at("algorithm") == shared);
  CHECK(self, is_staged);
  const Json algorithms = trace_of(group).at("algorithms");
  for (const Json& entry : {entries[8], entries[9]})
    CHECK(self, !algorithms.at(entry.at("algorithm").get<std::string>()).get<std::string>().empty());
  CHECK_OK(self, dsc_mem_free(memory));
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK(self, entries_of(trace_of(self->world), "inner").empty());  // a destroyed group has no entries
  return 0;
}

void the_librarys_own_operations_and_paths(void**) {
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, internal_body, nullptr), 0);
}

// ---- messages and work ----

int messages_body(rank_t* self) {
  dsc_comm_t* group = split_off(self, "pair");
  CHECK(self, group != nullptr);
  const int32_t peer = 1 - self->rank;
  float value[3] = {1, 2, 3}, other[3] = {};
  dsc_work_t* works[4] = {};
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(self, dsc_send(group, value, 3, DSC_DTYPE_F32, peer, nullptr, &works[2 * i]));
    CHECK_OK(self, dsc_recv(group, other, 3, DSC_DTYPE_F32, peer, nullptr, &works[2 * i + 1]));
  }
  for (dsc_work_t* work : works) CHECK_OK(self, dsc_work_synchronize(work, -1));
  for (dsc_work_t* work : works) CHECK_OK(self, dsc_work_destroy(work));
  dsc_work_t* queued[3] = {};
  if (self->rank == 1) CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  for (dsc_work_t*& work : queued)
    CHECK_OK(self, dsc_all_reduce(group, value, other, 3, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, &work));
  if (self->rank == 0) {
    // after this call the operation has started
    CHECK_RESULT(self, DSC_IN_PROGRESS, dsc_work_wait(queued[0], 1, nullptr));
    const std::vector<Json> waiting = entries_of(trace_of(group), "pair");
    CHECK(self, waiting.size() == 7 && waiting[4].at("state") == "started" && !waiting[4].at("retired"));
    CHECK(self,
          waiting[6].at("state") == "scheduled" && waiting[6].at("time_discovered_started_ns").is_null());
    CHECK(self, waiting[6].at("duration_ms").is_null() && waiting[6].at("result").is_null());
    const Json status = trace_of(group).at("pg_status").at(waiting[4].at("pg_id").get<std::string>());
    CHECK(self, status.at("last_enqueued_collective") == 3 && status.at("last_started_collective") == 1);
    CHECK(self, status.at("last_completed_collective") == 0);
    CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  }
  for (dsc_work_t* work : queued) CHECK_OK(self, dsc_work_synchronize(work, -1));
  for (dsc_work_t* work : queued) CHECK_OK(self, dsc_work_destroy(work));
  const Json trace = trace_of(group);
  const std::vector<Json> entries = entries_of(trace, "pair");
  CHECK(self, entries.size() == 7);
  for (size_t i = 0; i < 4; ++i) {
    const bool sends = i % 2 == 0;
    CHECK(self, entries[i].at("profiling_name") == (sends ? "dsc:send" : "dsc:recv"));
    CHECK(self, entries[i].at("is_p2p") == true && entries[i].at("peer") == peer &&
                    entries[i].at("root").is_null());
    CHECK(self, entries[i].at("p2p_seq_id") == i / 2 + 1 && entries[i].at("collective_seq_id") == 0);
    CHECK(self, entries[i].at(sends ? "input_sizes" : "output_sizes") == Json::parse("[[3]]"));
    CHECK(self, entries[i].at(sends ? "output_sizes" : "input_sizes").empty());
    CHECK(self, entries[i].at("algorithm") == "staged");
  }
  for (const Json& entry : entries) {
    CHECK(self, entry.at("state") == "completed" && entry.at("result") == "DSC_OK");
    CHECK(self, in_order(entry, trace.at("clock").at("dump_ns").get<int64_t>()));
  }
  CHECK(self, time_at(entries[6], "time_discovered_started_ns") >=
                  time_at(entries[5], "time_discovered_completed_ns"));
  return 0;
}

void messages_and_queued_work(void**) { assert_int_equal(run_ranks(2, messages_body, nullptr), 0); }

// ---- times of different ranks ----

// An operation does not start moving data before all ranks have started it, by the clock of any rank. This is
// true of most barriers: a rank shows its arrival before it reads the clock, and may lose its processor in
// between.
int clocks_body(rank_t* self) {
  constexpr size_t kRounds = 50;
  constexpr int64_t kToleranceNs = 200'000;
  dsc_comm_t* group = split_off(self, "clocks");
  CHECK(self, group != nullptr);
  for (size_t i = 0; i < kRounds; ++i) CHECK_OK(self, dsc_barrier(group, nullptr, nullptr));
  const std::vector<Json> entries = entries_of(trace_of(group), "clocks");
  CHECK(self, entries.size() == kRounds);
  std::vector<int64_t> started, latest(kRounds);
  for (const Json& entry : entries) started.push_back(time_at(entry, "time_discovered_started_ns"));
  CHECK_OK(self, dsc_all_reduce(group, started.data(), latest.data(), kRounds, DSC_DTYPE_I64, DSC_OP_MAX,
                                nullptr, nullptr));
  std::vector<int64_t> early;
  for (size_t i = 0; i < kRounds; ++i) early.push_back(latest[i] - time_at(entries[i], "time_met_ns"));
  std::nth_element(early.begin(), early.begin() + kRounds / 2, early.end());
  if (early[kRounds / 2] > kToleranceNs)
    FAIL(self, "half of the barriers were met %lld ns or more before the last rank started them",
         static_cast<long long>(early[kRounds / 2]));
  return 0;
}

void times_of_ranks_can_be_compared(void**) { assert_int_equal(run_ranks(3, clocks_body, nullptr), 0); }

// ---- failures ----

int mismatch_body(rank_t* self) {
  dsc_comm_t* group = split_off(self, "doomed");
  CHECK(self, group != nullptr);
  int32_t value = 0;
  CHECK_OK(self, dsc_barrier(group, nullptr, nullptr));
  const size_t count = self->rank == 0 ? 1 : 0;
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_all_reduce(group, &value, &value, count, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr));
  for (int i = 0; i < 5; ++i) CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(group, nullptr, nullptr));
  const Json trace = trace_of(group);
  const std::vector<Json> entries = entries_of(trace, "doomed");
  CHECK(self, entries.size() == 2);  // refused calls do not replace the important entries
  const Json& failed = entries[1];
  CHECK(self, failed.at("result") == "DSC_ERR_MISMATCH" && failed.at("state") == "started");
  CHECK(self, failed.at("retired") == true && failed.at("time_discovered_completed_ns").is_null());
  CHECK(self, time_at(failed, "time_failed_ns") >= time_at(failed, "time_met_ns"));
  CHECK(self, time_at(failed, "time_met_ns") > 0 && failed.at("algorithm").is_null());
  CHECK(self, failed.at("duration_ms").is_null());
  const Json& status = trace.at("pg_status").at(failed.at("pg_id").get<std::string>());
  CHECK(self, status.at("last_started_collective") == 2 && status.at("last_completed_collective") == 1);
  CHECK(self, !entries_of(trace_of(self->world), "doomed").empty());
  return 0;
}

void a_failed_operation_has_its_result(void**) { assert_int_equal(run_ranks(2, mismatch_body, nullptr), 0); }

// Returns 0 if the message does not say for how long a rank did not arrive.
double seconds_in(const char* message) {
  const char* const words = " did not arrive within ";
  const char* const place = std::strstr(message, words);
  return place ? std::atof(place + std::strlen(words)) : 0;
}

// The error names the rank that did not arrive, and says what the rank did instead.
int late_body(rank_t* self) {
  dsc_comm_t* group = split_off(self, "late");
  CHECK(self, group != nullptr);
  CHECK_OK(self, dsc_barrier(group, nullptr, nullptr));
  float value = 0;
  if (self->rank == 1) CHECK_OK(self, dsc_send(group, &value, 1, DSC_DTYPE_F32, 0, nullptr, nullptr));
  if (self->rank == 0) CHECK_OK(self, dsc_recv(group, &value, 1, DSC_DTYPE_F32, 1, nullptr, nullptr));
  if (self->rank == 0) {
    CHECK_OK(self, dsc_comm_set_timeout(group, 300));
    CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_barrier(group, nullptr, nullptr));
    const char* const message = dsc_last_error_message();
    if (!std::strstr(message, "ranks 1, 2 did not arrive within ") ||
        !std::strstr(message, " s; rank 1 (pid ") || seconds_in(message) < 0.3 ||
        !std::strstr(message, "): last send number 1 to rank 0; rank 2 (pid ") ||
        !std::strstr(message, "): last collective 1 (barrier)"))
      FAIL(self, "%s", message);
  }
  CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  dsc_comm_t* silent = split_off(self, "silent");
  CHECK(self, silent != nullptr);
  CHECK_OK(self, dsc_comm_set_timeout(silent, 300));
  if (self->rank == 0) {
    CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_recv(silent, &value, 1, DSC_DTYPE_F32, 2, nullptr, nullptr));
    CHECK(self, std::strstr(dsc_last_error_message(), " s; no call before") != nullptr);
    CHECK(self, seconds_in(dsc_last_error_message()) >= 0.3);
  }
  CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  return 0;
}

void time_outs_say_what_the_others_did(void**) { assert_int_equal(run_ranks(3, late_body, nullptr), 0); }

// ---- reading while others write ----

constexpr int kEnough = 3;  // traces that each rank reads

// Stores the first error in `wrong`.
void read_traces(dsc_comm_t* comm, const std::atomic<bool>& stop, std::string& wrong,
                 std::atomic<int>& traces) {
  while (!stop.load()) {
    const Json trace = trace_of(comm);
    if (!trace.is_object() || !trace.contains("entries")) {
      wrong = std::string("no trace: ") + dsc_last_error_message();
      traces.store(kEnough);
      return;
    }
    for (const Json& entry : trace.at("entries"))
      if (wrong.empty() && !in_order(entry, trace.at("clock").at("dump_ns").get<int64_t>()))
        wrong = trace.at("clock").dump() + entry.dump();
    traces.fetch_add(1);
  }
}

int run_a_round(rank_t* self, int32_t enough, int32_t& all_enough) {
  const int32_t right = (self->rank + 1) % self->size, left = (self->rank + self->size - 1) % self->size;
  int32_t in = 1, out = 0, token = 0;
  dsc_work_t* works[3] = {};
  CHECK_OK(self, dsc_all_reduce(self->world, &in, &out, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, &works[0]));
  CHECK_OK(self, dsc_send(self->world, &in, 1, DSC_DTYPE_I32, right, nullptr, &works[1]));
  CHECK_OK(self, dsc_recv(self->world, &token, 1, DSC_DTYPE_I32, left, nullptr, &works[2]));
  for (dsc_work_t* work : works) CHECK_OK(self, dsc_work_synchronize(work, -1));
  for (dsc_work_t* work : works) CHECK_OK(self, dsc_work_destroy(work));
  CHECK_OK(self,
           dsc_all_reduce(self->world, &enough, &all_enough, 1, DSC_DTYPE_I32, DSC_OP_MIN, nullptr, nullptr));
  return 0;
}

// The ranks continue until all readers have read enough traces. A short ring changes faster and is read
// faster.
int load_body(rank_t* self) {
  const int rounds = scaled_repetitions(2000, 16, 100);
  std::atomic<bool> stop{false};
  std::atomic<int> traces{0};
  std::string wrong;
  std::thread reader([&] { read_traces(self->world, stop, wrong, traces); });
  int32_t all_enough = 0;
  int failed = 0;
  for (int i = 0; failed == 0 && (i < rounds || all_enough == 0); ++i)
    failed = run_a_round(self, traces.load() >= kEnough ? 1 : 0, all_enough);
  stop.store(true);
  reader.join();
  if (!wrong.empty()) FAIL(self, "not whole: %s", wrong.c_str());
  return failed;
}

void traces_are_whole_under_load(void**) {
  setenv("DSC_TRACE_BUFFER_SIZE", "200", 1);
  assert_int_equal(run_ranks(2, load_body, nullptr), 0);
  unsetenv("DSC_TRACE_BUFFER_SIZE");
}

// ---- settings ----

int ring_body(rank_t* self) {
  const size_t room = *static_cast<const size_t*>(self->arg);
  const size_t operations = 2500;
  for (size_t i = 0; i < operations; ++i) CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  const Json trace = trace_of(self->world);
  const std::vector<Json> entries = entries_of(trace, "world");
  CHECK(self, entries.size() == room);
  if (room > 0) CHECK(self, entries.front().at("collective_seq_id") == operations - room + 1);
  if (room > 0) CHECK(self, entries.back().at("collective_seq_id") == operations);
  CHECK(self, trace.at("pg_status").at("0").at("last_completed_collective") == (room > 0 ? operations : 0));
  return 0;
}

void the_ring_has_the_length_that_was_asked_for(void**) {
  for (const size_t room : {size_t{2000}, size_t{10}, size_t{0}}) {
    if (room != 2000) setenv("DSC_TRACE_BUFFER_SIZE", std::to_string(room).c_str(), 1);
    assert_int_equal(run_ranks(1, ring_body, &room), 0);
    assert_int_equal(run_ranks(2, ring_body, &room), 0);
    unsetenv("DSC_TRACE_BUFFER_SIZE");
  }
}

int refused_body(rank_t* self) {
  CHECK_RESULT(self, DSC_ERR_CONFIG, dsc_init_distributed(&self->options, &self->world));
  CHECK(self, std::strstr(dsc_last_error_message(), "DSC_TRACE_BUFFER_SIZE is '") != nullptr);
  CHECK(self, std::strstr(dsc_last_error_message(), static_cast<const char*>(self->arg)) != nullptr);
  return 0;
}

void impossible_lengths_are_refused(void**) {
  for (const char* value : {"-1", "many", "10x", "1000001", "99999999999999999999", "1.5", " 7"}) {
    setenv("DSC_TRACE_BUFFER_SIZE", value, 1);
    assert_int_equal(run_without_world(1, refused_body, value), 0);
    unsetenv("DSC_TRACE_BUFFER_SIZE");
  }
}

int folder_body(rank_t* self) {
  CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  CHECK_OK(self, dsc_trace_dump(self->world, nullptr));
  const std::string path =
      *static_cast<const std::string*>(self->arg) + "/dsc_trace_rank_" + std::to_string(self->rank) + ".json";
  std::ifstream file(path);
  const Json trace = Json::parse_or_null(file);
  CHECK(self, trace.is_object() && trace.at("rank") == self->rank && trace.at("entries").size() == 3);
  struct stat status {};
  CHECK(self, stat(path.c_str(), &status) == 0 && (status.st_mode & 0777) == 0600);
  CHECK(self, unlink(path.c_str()) == 0);
  return 0;
}

void the_environment_names_a_folder(void**) {
  char top[] = "dsc_trace_XXXXXX";
  assert_non_null(mkdtemp(top));
  const std::string folder = std::string(top) + "/below";
  setenv("DSC_TRACE_DIR", folder.c_str(), 1);
  assert_int_equal(run_ranks(2, folder_body, &folder), 0);
  unsetenv("DSC_TRACE_DIR");
  assert_int_equal(rmdir(folder.c_str()), 0);  // fails if the folder is not empty
  assert_int_equal(rmdir(top), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_fields_of_all_operations),
      cmocka_unit_test(the_librarys_own_operations_and_paths),
      cmocka_unit_test(messages_and_queued_work),
      cmocka_unit_test(times_of_ranks_can_be_compared),
      cmocka_unit_test(a_failed_operation_has_its_result),
      cmocka_unit_test(time_outs_say_what_the_others_did),
      cmocka_unit_test(traces_are_whole_under_load),
      cmocka_unit_test(the_ring_has_the_length_that_was_asked_for),
      cmocka_unit_test(impossible_lengths_are_refused),
      cmocka_unit_test(the_environment_names_a_folder),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
