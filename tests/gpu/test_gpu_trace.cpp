// What the flight recorder reports about operations on devices: only what is known. Ranks are processes.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "json.hpp"

extern "C" {
#include "gpu.h"
#include "ranks.h"

#include "cmocka_c.h"  // included last because it defines a macro fail()
}

namespace {

using support::Json;

constexpr size_t kCount = 24;
constexpr int kPatienceMs = 20000;

Json trace_of(dsc_comm_t* comm) {
  std::string text;
  size_t bytes = 0;
  while (dsc_trace_json(comm, text.data(), text.size(), &bytes) == DSC_OK && bytes > text.size())
    text.resize(bytes + 4096);
  return Json::parse_or_null(text.c_str());
}

// Returns the entries on devices, oldest first.
std::vector<Json> on_devices(const Json& trace) {
  std::vector<Json> found;
  for (const Json& entry : trace.at("entries"))
    if (entry.at("device") == true) found.push_back(entry);
  return found;
}

int64_t time_at(const Json& entry, const char* name) { return entry.at(name).get<int64_t>(); }

// Returns "all_reduce 3 launched", with the result if there is one.
std::string word_of(const Json& entry) {
  const char* const number = entry.at("is_p2p") == true ? "p2p_seq_id" : "collective_seq_id";
  std::string word = entry.at("profiling_name").get<std::string>().substr(4) + " " + entry.at(number).dump() +
                     " " + entry.at("state").get<std::string>();
  if (!entry.at("result").is_null() && entry.at("result") != "DSC_OK")
    word += " " + entry.at("result").get<std::string>();
  return word;
}

std::string words_of(const Json& trace) {
  std::string text;
  for (const Json& entry : on_devices(trace)) text += (text.empty() ? "" : ", ") + word_of(entry);
  return text;
}

int expect_words(rank_t* self, const Json& trace, const std::string& expected) {
  const std::string came = words_of(trace);
  if (came != expected)
    FAIL(self, "expected \"%s\", but the trace has \"%s\"", expected.c_str(), came.c_str());
  return 0;
}

// The watching thread sees the end of an operation, because it looks every few milliseconds.
int await_words(rank_t* self, dsc_comm_t* comm, const std::string& expected) {
  const int64_t begin = now_ms();
  while (words_of(trace_of(comm)) != expected && now_ms() - begin < kPatienceMs) usleep(2000);
  return expect_words(self, trace_of(comm), expected);
}

Json progress_of(dsc_comm_t* comm) {
  const Json trace = trace_of(comm);
  const std::vector<Json> entries = on_devices(trace);
  return entries.empty() ? Json() : trace.at("pg_status").at(entries[0].at("pg_id").get<std::string>());
}

dsc_result_t sum(dsc_comm_t* comm, float* data, void* stream, dsc_work_t** work) {
  return dsc_all_reduce(comm, data, data, kCount, DSC_DTYPE_F32, DSC_OP_SUM, stream, work);
}

// ---- what is known

// The end of the first operation is not observed. The second operation has a work.
int with_and_without_work(rank_t* self) {
  float* const data = static_cast<float*>(gpu_alloc(kCount * self->size * sizeof(float)));
  CHECK(self, data != nullptr);
  CHECK_OK(self, dsc_broadcast(self->world, data, data, kCount, DSC_DTYPE_F32, 0, nullptr, nullptr));
  CHECK(self, gpu_synchronize(nullptr));
  PASS_ON(expect_words(self, trace_of(self->world), "broadcast 1 launched"));
  dsc_work_t* work = nullptr;
  CHECK_OK(self, sum(self->world, data, nullptr, &work));
  CHECK_OK(self, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  PASS_ON(expect_words(self, trace_of(self->world), "broadcast 1 launched, all_reduce 2 completed"));
  const Json known = progress_of(self->world);
  CHECK(self, known.at("last_enqueued_collective") == 2 && known.at("last_started_collective") == 2);
  CHECK(self, known.at("last_completed_collective") == 2);
  CHECK_OK(self, sum(self->world, data, nullptr, nullptr));
  CHECK(self, progress_of(self->world).at("last_enqueued_collective") == 3);
  CHECK(self, progress_of(self->world).at("last_completed_collective") == 2);
  CHECK(self, gpu_synchronize(nullptr));
  gpu_free(data);
  return 0;
}

int facts_body(rank_t* self) {
  PASS_ON(with_and_without_work(self));
  const std::vector<Json> entries = on_devices(trace_of(self->world));
  CHECK(self, entries.size() == 3);
  const Json& first = entries[0];
  CHECK(self, first.at("root") == 0 && first.at("reduce_op").is_null() && first.at("bytes") == kCount * 4);
  CHECK(self, first.at("retired") == true && first.at("result").is_null() && first.at("algorithm").is_null());
  CHECK(self, first.at("time_discovered_completed_ns").is_null() && first.at("time_met_ns").is_null());
  CHECK(self, time_at(first, "time_discovered_started_ns") >= time_at(first, "time_created_ns"));
  CHECK(self, first.at("process_group").at(1) == "world (devices)");
  const Json& second = entries[1];
  CHECK(self, second.at("reduce_op") == "sum" && second.at("input_sizes") == Json::parse("[[24]]"));
  CHECK(self, second.at("input_dtypes") == Json::parse("[\"f32\"]") && second.at("timeout_ms") > 0);
  CHECK(self,
        time_at(second, "time_discovered_completed_ns") >= time_at(second, "time_discovered_started_ns"));
  CHECK(self, second.at("result") == "DSC_OK" && second.at("duration_ms").is_null());
  return 0;
}

void says_what_is_known(void**) {
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, facts_body, nullptr), 0);
}

// Calls of one group, with and without a work, and calls on host memory in between.
int groups_body(rank_t* self) {
  float here = 1;
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  for (int i = 0; i < 2; ++i) {
    dsc_work_t* work = nullptr;
    CHECK_OK(self, dsc_batch_begin(self->world));
    for (int j = 0; j < 6; ++j) CHECK_OK(self, sum(self->world, data, nullptr, nullptr));
    CHECK_OK(self, dsc_batch_end(self->world, nullptr, i == 0 ? nullptr : &work));
    if (work != nullptr) CHECK_OK(self, dsc_work_synchronize(work, -1));
    CHECK_OK(self, dsc_work_destroy(work));
    CHECK_OK(self, dsc_all_reduce(self->world, &here, &here, 1, DSC_DTYPE_F32, DSC_OP_MAX, nullptr, nullptr));
  }
  CHECK_OK(self, dsc_barrier(self->world, gpu_stream(), nullptr));
  CHECK(self, gpu_synchronize(nullptr));
  std::string expected;
  for (int number = 1; number <= 6; ++number)
    expected += "all_reduce " + std::to_string(number) + " launched, ";
  for (int number = 8; number <= 13; ++number)
    expected += "all_reduce " + std::to_string(number) + " completed, ";
  gpu_free(data);
  return expect_words(self, trace_of(self->world), expected + "barrier 15 launched");
}

void groups_are_recorded_in_their_order(void**) { assert_int_equal(run_ranks(2, groups_body, nullptr), 0); }

int messages_body(rank_t* self) {
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  const bool sends = self->rank == 0;
  for (int i = 0; i < 2; ++i) {
    dsc_work_t* work = nullptr;
    dsc_work_t** const wanted = i == 0 ? nullptr : &work;
    if (sends)
      CHECK_OK(self, dsc_send(self->world, data, kCount, DSC_DTYPE_F32, 1, nullptr, wanted));
    else
      CHECK_OK(self, dsc_recv(self->world, data, kCount, DSC_DTYPE_F32, 0, nullptr, wanted));
    CHECK_OK(self, dsc_work_destroy(work));
  }
  CHECK(self, gpu_synchronize(nullptr));
  PASS_ON(await_words(self, self->world,
                      sends ? "send 1 completed, send 2 completed" : "recv 1 completed, recv 2 completed"));
  const Json entry = on_devices(trace_of(self->world))[1];
  CHECK(self, entry.at("peer") == 1 - self->rank && entry.at("root").is_null() && entry.at("is_p2p") == true);
  CHECK(self, entry.at(sends ? "output_sizes" : "input_sizes").empty());
  gpu_free(data);
  return 0;
}

// The ends of messages are always observed.
void messages_are_recorded(void**) { assert_int_equal(run_ranks(2, messages_body, nullptr), 0); }

int captured_body(rank_t* self) {
  void* const stream = gpu_stream();
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, stream != nullptr && data != nullptr);
  CHECK_OK(self, sum(self->world, data, stream, nullptr));
  CHECK(self, gpu_begin_capture(stream));
  dsc_work_t* work = nullptr;
  CHECK_OK(self, sum(self->world, data, stream, nullptr));
  CHECK_OK(self, sum(self->world, data, stream, &work));
  CHECK_OK(self, dsc_work_wait(work, 0, stream));
  void* const graph = gpu_end_capture(stream);
  CHECK(self, graph != nullptr);
  CHECK_OK(self, dsc_work_destroy(work));
  for (int i = 0; i < 3; ++i) CHECK(self, gpu_run_graph(graph, stream));
  CHECK(self, gpu_synchronize(stream));
  PASS_ON(expect_words(self, trace_of(self->world),
                       "all_reduce 1 launched, all_reduce 2 captured, all_reduce 3 captured"));
  gpu_graph_free(graph);
  gpu_free(data);
  return 0;
}

void captures_are_recorded_once(void**) { assert_int_equal(run_ranks(2, captured_body, nullptr), 0); }

// More operations than the recorder can hold: entries without an end make room for later ones.
int many_body(rank_t* self) {
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  for (int i = 0; i < 100; ++i) CHECK_OK(self, sum(self->world, data, nullptr, nullptr));
  CHECK(self, gpu_synchronize(nullptr));
  const Json trace = trace_of(self->world);
  const std::vector<Json> entries = on_devices(trace);
  CHECK(self, entries.size() == 20 && word_of(entries[0]) == "all_reduce 81 launched");
  for (const auto& [id, status] : trace.at("pg_status").items()) CHECK(self, status.at("omitted") == 0);
  gpu_free(data);
  return 0;
}

void what_has_no_end_gives_up_its_place(void**) {
  setenv("DSC_TRACE_BUFFER_SIZE", "20", 1);
  assert_int_equal(run_ranks(2, many_body, nullptr), 0);
  unsetenv("DSC_TRACE_BUFFER_SIZE");
}

// The buckets of a reducer are operations of its own group.
int reducer_body(rank_t* self) {
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  const dsc_tensor_t tensor = {sizeof tensor,        nullptr, nullptr, "w", kCount, DSC_DTYPE_F32, 0,
                               self->options.device, 0};
  dsc_bucket_reducer_options_t options;
  dsc_bucket_reducer_t* reducer = nullptr;
  CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
  options.sync = 0;
  CHECK_OK(self, dsc_bucket_reducer_create(self->world, &tensor, 1, &options, &reducer));
  for (int step = 0; step < 3; ++step) {
    CHECK_OK(self, dsc_bucket_reducer_begin(reducer, nullptr));
    CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, 0, data, nullptr));
    CHECK_OK(self, dsc_bucket_reducer_finish(reducer, nullptr));
    CHECK_OK(self, dsc_bucket_reducer_synchronize(reducer, -1));
  }
  PASS_ON(await_words(self, self->world,
                      "all_reduce 2 completed, all_reduce 3 completed, all_reduce 4 completed"));
  for (const Json& entry : on_devices(trace_of(self->world))) {
    if (entry.at("bytes") != kCount * sizeof(float) || entry.at("reduce_op") != "sum")
      FAIL(self, "%s", entry.dump().c_str());
  }
  CHECK_OK(self, dsc_bucket_reducer_destroy(reducer));
  gpu_free(data);
  return 0;
}

void buckets_are_recorded(void**) { assert_int_equal(run_ranks(2, reducer_body, nullptr), 0); }

// ---- failures

// Waits until the trace that this rank has written by itself has the expected content.
int await_file(rank_t* self, const std::string& expected) {
  const std::string path =
      std::string(getenv("DSC_TRACE_DIR")) + "/dsc_trace_rank_" + std::to_string(self->rank) + ".json";
  Json trace;
  for (const int64_t begin = now_ms(); now_ms() - begin < kPatienceMs; usleep(5000)) {
    std::ifstream file(path);
    trace = Json::parse_or_null(file);
    if (!trace.is_null() && words_of(trace) == expected) return 0;
  }
  if (trace.is_null()) FAIL(self, "there is no %s", path.c_str());
  return expect_words(self, trace, expected);
}

// Rank 1 does not call the second operation. The other ranks have put it on a stream, with or without a work,
// and two later operations, which never began.
int late_body(rank_t* self) {
  const bool with_work = self->arg != nullptr;
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  dsc_work_t* work = nullptr;
  CHECK_OK(self, sum(self->world, data, nullptr, &work));
  CHECK_OK(self, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, 1000));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) PASS_ON(await_file(self, "all_reduce 1 completed"));
  if (self->rank == 1) return ranks_meet(self);
  CHECK_OK(self, sum(self->world, data, nullptr, with_work ? &work : nullptr));
  for (int i = 0; i < 2; ++i) CHECK_OK(self, sum(self->world, data, nullptr, nullptr));
  const std::string expected =
      "all_reduce 1 completed, all_reduce 2 started DSC_ERR_TIMEOUT, "
      "all_reduce 3 started DSC_ERR_REVOKED, all_reduce 4 started DSC_ERR_REVOKED";
  if (with_work) CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_work_synchronize(work, -1));
  if (with_work) CHECK_OK(self, dsc_work_destroy(work));
  CHECK(self, gpu_synchronize(nullptr));
  PASS_ON(await_file(self, expected));
  CHECK(self, sum(self->world, data, nullptr, nullptr) != DSC_OK);
  PASS_ON(expect_words(self, trace_of(self->world), expected));
  return ranks_meet(self);
}

void in_a_folder(int32_t size, rank_body_t body, const void* arg) {
  char folder[] = "gpu_trace_XXXXXX";
  assert_non_null(mkdtemp(folder));
  setenv("DSC_TRACE_DIR", folder, 1);
  const int failed = run_ranks(size, body, arg);
  unsetenv("DSC_TRACE_DIR");
  for (int32_t rank = 0; rank < size; ++rank)
    unlink((std::string(folder) + "/dsc_trace_rank_" + std::to_string(rank) + ".json").c_str());
  assert_int_equal(rmdir(folder), 0);
  assert_int_equal(failed, 0);
}

void a_time_out_ends_the_record(void**) {
  in_a_folder(3, late_body, nullptr);
  in_a_folder(2, late_body, "with a work");
}

// Rank 1 sums fewer elements. The rank that calls second starts nothing.
int mismatch_body(rank_t* self) {
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  CHECK_OK(self, sum(self->world, data, nullptr, nullptr));
  CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  dsc_work_t* work = nullptr;
  dsc_result_t result = dsc_all_reduce(self->world, data, data, kCount - static_cast<size_t>(self->rank),
                                       DSC_DTYPE_F32, DSC_OP_SUM, nullptr, &work);
  const char* const state = result == DSC_OK ? "started" : "scheduled";
  if (result == DSC_OK) result = dsc_work_synchronize(work, -1);
  CHECK(self, result == DSC_ERR_MISMATCH);
  CHECK_OK(self, dsc_work_destroy(work));
  return await_file(self, "all_reduce 1 launched, all_reduce 3 " + std::string(state) + " DSC_ERR_MISMATCH");
}

void a_mismatch_ends_the_record(void**) { in_a_folder(2, mismatch_body, nullptr); }

// An operation that was complete before is not reported as failed: rank 0's device had ended the first one
// before rank 1 gave up.
int done_before_body(rank_t* self) {
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  dsc_work_t *first = nullptr, *second = nullptr;
  CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  CHECK_OK(self, sum(self->world, data, nullptr, &first));
  if (self->rank == 0) CHECK_OK(self, sum(self->world, data, nullptr, &second));
  if (self->rank == 1) CHECK_OK(self, dsc_work_synchronize(first, -1));
  if (self->rank == 0) {  // the wait is on the device, so the library has not seen the end
    CHECK_OK(self, dsc_work_wait(first, -1, nullptr));
    CHECK(self, gpu_synchronize(nullptr));
  }
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) CHECK_OK(self, dsc_comm_abort(self->world));
  if (self->rank == 0) CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_work_synchronize(second, -1));
  if (self->rank == 0) CHECK_OK(self, dsc_work_synchronize(first, -1));
  CHECK_OK(self, dsc_work_destroy(second));
  CHECK_OK(self, dsc_work_destroy(first));
  if (self->rank == 0)
    PASS_ON(await_file(self, "all_reduce 2 completed, all_reduce 3 started DSC_ERR_REVOKED"));
  return ranks_meet(self);
}

void what_was_done_before_has_not_failed(void**) { in_a_folder(2, done_before_body, nullptr); }

// Rank 1 ends the communicator while operations run.
int aborted_body(rank_t* self) {
  float* const data = static_cast<float*>(gpu_alloc(kCount * sizeof(float)));
  CHECK(self, data != nullptr);
  CHECK_OK(self, dsc_barrier(self->world, nullptr, nullptr));
  if (self->rank == 1) {
    PASS_ON(ranks_await(self, 1));
    usleep(300000);  // gives rank 0 time to start the receive
    CHECK_OK(self, dsc_comm_abort(self->world));
    return ranks_meet(self);
  }
  dsc_work_t* work = nullptr;
  CHECK_OK(self, sum(self->world, data, nullptr, &work));
  ranks_note(self, 1);
  const dsc_result_t called =
      dsc_recv(self->world, data, kCount, DSC_DTYPE_F32, 1, gpu_stream(), nullptr);  // waits for rank 1
  CHECK(self, called == DSC_ERR_REVOKED);
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  std::string expected = "all_reduce 2 started DSC_ERR_REVOKED";
  if (on_devices(trace_of(self->world)).size() == 2)  // otherwise it was too late and was refused
    expected += ", recv 1 scheduled DSC_ERR_REVOKED";
  PASS_ON(await_file(self, expected));
  return ranks_meet(self);
}

void an_abort_ends_the_record(void**) { in_a_folder(2, aborted_body, nullptr); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(says_what_is_known),
      cmocka_unit_test(groups_are_recorded_in_their_order),
      cmocka_unit_test(messages_are_recorded),
      cmocka_unit_test(captures_are_recorded_once),
      cmocka_unit_test(what_has_no_end_gives_up_its_place),
      cmocka_unit_test(buckets_are_recorded),
      cmocka_unit_test(a_time_out_ends_the_record),
      cmocka_unit_test(a_mismatch_ends_the_record),
      cmocka_unit_test(what_was_done_before_has_not_failed),
      cmocka_unit_test(an_abort_ends_the_record),
  };
  return cmocka_run_group_tests_name("gpu_trace", tests, nullptr, nullptr);
}
