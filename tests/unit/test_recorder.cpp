// The flight recorder of one group: what it keeps, what a reader sees while other threads write, and its
// output as JSON.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/guard.hpp"
#include "base/json.hpp"
#include "control/recorder.hpp"
#include "json.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::Algorithm;
using dsc::Record;
using dsc::RecordedCall;
using dsc::RecordedOperation;
using dsc::Recorder;

// Returns a call whose fields are all computed from its number.
RecordedCall call_of(uint64_t number, dsc::OpKind kind = dsc::OpKind::kAllReduce) {
  RecordedCall call;
  call.kind = kind;
  call.dtype = static_cast<int32_t>(number % 13);
  call.op = static_cast<int32_t>(number % 8);
  call.root = static_cast<int32_t>(number % 64);
  call.sequence = number;
  call.send_bytes = number * 3;
  call.recv_bytes = number * 5;
  call.timeout_ms = static_cast<int32_t>(number % 1000);
  return call;
}

void run_to_its_end(Recorder& recorder, uint64_t number) {
  const auto time = static_cast<int64_t>(number * 10);
  Record record = recorder.open(call_of(number), time + 1);
  record.start(time + 2);
  record.meet(time + 3);
  record.move_by(Algorithm::kDirect);
  record.end(time + 4, DSC_OK);
}

// Returns whether run_to_its_end() can have written the operation that was read, at any moment of its run.
bool is_whole(const RecordedOperation& operation) {
  const RecordedCall& call = operation.call;
  const RecordedCall expected = call_of(call.sequence);
  const auto time = static_cast<int64_t>(call.sequence * 10);
  const auto now_or_later = [](int64_t came, int64_t written, bool must) {
    return came == written || (came == 0 && !must);
  };
  return call.kind == expected.kind && call.dtype == expected.dtype && call.op == expected.op &&
         call.root == expected.root && call.send_bytes == expected.send_bytes &&
         call.recv_bytes == expected.recv_bytes && call.timeout_ms == expected.timeout_ms &&
         operation.created == time + 1 && now_or_later(operation.ended, time + 4, false) &&
         now_or_later(operation.met, time + 3, operation.ended != 0) &&
         now_or_later(operation.started, time + 2, operation.met != 0) &&
         (operation.algorithm == Algorithm::kDirect || operation.ended == 0);
}

void keeps_the_last(void**) {
  constexpr size_t kRoom = 2000;
  Recorder recorder(kRoom);
  assert_int_equal(recorder.read().size(), 0);
  for (uint64_t number = 1; number <= 2 * kRoom + 345; ++number) {
    run_to_its_end(recorder, number);
    if (number == kRoom - 1) assert_int_equal(recorder.read().size(), kRoom - 1);
  }
  const std::vector<RecordedOperation> operations = recorder.read();
  assert_int_equal(operations.size(), kRoom);
  for (size_t i = 0; i < kRoom; ++i) {
    assert_int_equal(operations[i].call.sequence, kRoom + 346 + i);
    assert_int_equal(operations[i].id, kRoom + 346 + i);
    assert_true(is_whole(operations[i]));
    assert_int_equal(operations[i].ended, operations[i].created + 3);
    assert_int_equal(operations[i].result, DSC_OK);
  }
  assert_int_equal(recorder.omitted(), 0);
}

void shows_how_far_an_operation_is(void**) {
  Recorder recorder(4);
  Record record = recorder.open(call_of(7), 100);
  RecordedOperation operation = recorder.read().at(0);
  assert_true(operation.started == 0 && operation.met == 0 && operation.ended == 0);
  assert_true(operation.algorithm == Algorithm::kNone);
  record.start(200);
  assert_int_equal(recorder.read().at(0).started, 200);
  record.meet(300);
  record.move_by(Algorithm::kZeroCopy);
  operation = recorder.read().at(0);
  assert_true(operation.met == 300 && operation.algorithm == Algorithm::kZeroCopy && operation.ended == 0);
  record.end(400, DSC_ERR_TIMEOUT);
  operation = recorder.read().at(0);
  assert_true(operation.created == 100 && operation.started == 200 && operation.met == 300);
  assert_true(operation.ended == 400 && operation.result == DSC_ERR_TIMEOUT);
}

// Processors that read their counters early can give another thread a time slightly in the past. The recorded
// times must still be in order.
void times_stand_in_their_order(void**) {
  Recorder recorder(4);
  Record record = recorder.open(call_of(7), 100);
  record.start(99);
  record.meet(300);
  record.end(290, DSC_OK);
  const RecordedOperation operation = recorder.read().at(0);
  assert_int_equal(operation.started, 100);
  assert_int_equal(operation.met, 300);
  assert_int_equal(operation.ended, 300);
}

void counts_collectives_and_not_messages(void**) {
  Recorder recorder(8);
  Record first = recorder.open(call_of(1), 1), second = recorder.open(call_of(2), 2);
  Record message = recorder.open(call_of(77, dsc::OpKind::kSend), 3);
  message.start(4);
  message.end(5, DSC_OK);
  first.start(6);
  assert_int_equal(recorder.progress().enqueued, 2);
  assert_int_equal(recorder.progress().started, 1);
  assert_int_equal(recorder.progress().completed, 0);
  first.end(7, DSC_OK);
  second.start(8);
  second.end(9, DSC_ERR_PEER_DEAD);  // this operation was started and never completed
  assert_int_equal(recorder.progress().started, 2);
  assert_int_equal(recorder.progress().completed, 1);
}

// A record of an operation that still runs is never reused, because the stuck operation is the interesting
// one.
void never_gives_up_one_that_runs(void**) {
  Recorder recorder(4);
  Record stuck = recorder.open(call_of(1), 11);
  for (uint64_t number = 2; number <= 50; ++number) run_to_its_end(recorder, number);
  std::vector<RecordedOperation> operations = recorder.read();
  assert_int_equal(operations.size(), 4);
  assert_int_equal(operations[0].call.sequence, 1);
  assert_int_equal(operations[3].call.sequence, 50);
  std::vector<Record> running;
  for (uint64_t number = 51; number <= 53; ++number) running.push_back(recorder.open(call_of(number), 1));
  assert_int_equal(recorder.omitted(), 0);
  Record without = recorder.open(call_of(54), 1);  // no entry is free
  without.start(2);
  without.end(3, DSC_OK);
  assert_int_equal(recorder.omitted(), 1);
  stuck.end(5, DSC_OK);
  run_to_its_end(recorder, 55);
  operations = recorder.read();
  assert_int_equal(operations.size(), 4);
  assert_int_equal(operations[3].call.sequence, 55);
}

RecordedCall device_call_of(uint64_t number) {
  RecordedCall call = call_of(number);
  call.on_device = true;
  return call;
}

// Host and device operations share the entries. An operation without an entry is counted as omitted for its
// own kind.
void omits_on_devices_apart(void**) {
  Recorder recorder(2);
  recorder.open(call_of(1), 1);
  recorder.open(device_call_of(1), 1);
  recorder.open(device_call_of(2), 1);
  recorder.open(device_call_of(3), 1);
  recorder.open(call_of(2), 1);
  assert_int_equal(recorder.omitted(true), 2);
  assert_int_equal(recorder.omitted(), 1);
}

// The end of a detached operation is not observed. It is never reported as completed, and its entry is the
// first to be reused.
void lets_go_of_what_nobody_follows(void**) {
  Recorder recorder(4);
  for (uint64_t number = 1; number <= 9; ++number) {
    Record record = recorder.open(device_call_of(number), 10);
    record.start(20);
    record.detach(number == 8 ? dsc::Detached::kCaptured : dsc::Detached::kLaunched);
    record.end(30, DSC_OK);  // ending a detached record changes nothing
  }
  const std::vector<RecordedOperation> operations = recorder.read();
  assert_int_equal(operations.size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    assert_int_equal(operations[i].call.sequence, 6 + i);
    assert_true(operations[i].started == 20 && operations[i].ended == 0);
    assert_true(operations[i].detach == (i == 2 ? dsc::Detached::kCaptured : dsc::Detached::kLaunched));
  }
  assert_int_equal(recorder.omitted(), 0);
  for (uint64_t number = 1; number <= 4; ++number) run_to_its_end(recorder, number);
  for (const RecordedOperation& operation : recorder.read())
    assert_true(operation.detach == dsc::Detached::kNo && !operation.call.on_device && is_whole(operation));
}

void counts_devices_apart(void**) {
  Recorder recorder(8);
  Record host = recorder.open(call_of(2), 1);
  host.start(2);
  Record first = recorder.open(device_call_of(5), 3), second = recorder.open(device_call_of(6), 4);
  first.start(5);
  second.start(6);
  second.end(7, DSC_OK);  // the end of the later one may be seen first
  first.end(8, DSC_OK);
  const dsc::RecordedProgress on_host = recorder.progress(), on_device = recorder.progress(true);
  assert_true(on_host.enqueued == 2 && on_host.started == 2 && on_host.completed == 0);
  assert_true(on_device.enqueued == 6 && on_device.started == 6 && on_device.completed == 6);
}

void knows_later_what_has_failed(void**) {
  Recorder recorder(8);
  for (uint64_t number = 1; number <= 4; ++number) {
    Record record = recorder.open(device_call_of(number), 10);
    record.start(20);
    record.detach(number == 4 ? dsc::Detached::kCaptured : dsc::Detached::kLaunched);
  }
  [[maybe_unused]] const Record message = recorder.open(call_of(9, dsc::OpKind::kSend), 11);
  [[maybe_unused]] const Record running = recorder.open(call_of(9), 12);
  assert_int_equal(recorder.fail_detached(2, 3, 15, DSC_ERR_TIMEOUT), 2);
  assert_int_equal(recorder.fail_detached(2, 3, 16, DSC_ERR_TIMEOUT), 0);
  const std::vector<RecordedOperation> operations = recorder.read();
  assert_int_equal(operations.size(), 6);
  for (const RecordedOperation& operation : operations) {
    const bool failed = operation.call.sequence == 2 || operation.call.sequence == 3;
    assert_int_equal(operation.ended, failed ? 20 : 0);  // an end is never before the start, here 20
    const dsc_result_t behind = failed ? DSC_ERR_REVOKED : DSC_OK;
    assert_int_equal(operation.result, operation.call.sequence == 2 ? DSC_ERR_TIMEOUT : behind);
  }
  assert_int_equal(recorder.progress(true).completed, 0);
}

// The failure happened in an earlier operation whose end is observed, so these later operations are revoked.
void what_stands_behind_a_followed_one_is_revoked(void**) {
  Recorder recorder(8);
  for (uint64_t number = 3; number <= 4; ++number)
    recorder.open(device_call_of(number), 10).detach(dsc::Detached::kLaunched);
  assert_int_equal(recorder.fail_detached(1, 2, 15, DSC_ERR_TIMEOUT), 3);
  for (const RecordedOperation& operation : recorder.read())
    assert_int_equal(operation.result, DSC_ERR_REVOKED);
}

void records_nothing_without_room(void**) {
  Recorder recorder(0);
  run_to_its_end(recorder, 1);
  assert_int_equal(recorder.read().size(), 0);
  assert_int_equal(recorder.omitted(), 0);
}

struct Crowd {
  Recorder recorder{64};
  std::atomic<uint64_t> next{1};
  std::atomic<int> writing{4};
  std::atomic<int> torn{0};
  std::atomic<uint64_t> read{0};
};

void write_much(Crowd& crowd, uint64_t last) {
  for (uint64_t number = crowd.next.fetch_add(1); number <= last; number = crowd.next.fetch_add(1))
    run_to_its_end(crowd.recorder, number);
  crowd.writing.fetch_sub(1);
}

void read_all_the_time(Crowd& crowd) {
  while (crowd.writing.load() > 0) {
    const std::vector<RecordedOperation> operations = crowd.recorder.read();
    for (size_t i = 0; i < operations.size(); ++i) {
      if (!is_whole(operations[i])) crowd.torn.fetch_add(1);
      if (i > 0 && operations[i].id <= operations[i - 1].id) crowd.torn.fetch_add(1);
    }
    crowd.read.fetch_add(operations.size());
  }
}

// Four threads write to a small ring as fast as they can, so that entries are reused while they are read.
void nobody_reads_half_an_operation(void**) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr uint64_t kOperations = 100'000;
#else
  constexpr uint64_t kOperations = 2'000'000;
#endif
  Crowd crowd;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { write_much(crowd, kOperations); });
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { read_all_the_time(crowd); });
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(crowd.torn.load(), 0);
  assert_true(crowd.read.load() > 0);
  const std::vector<RecordedOperation> operations = crowd.recorder.read();
  assert_true(operations.size() >= 60);  // a delayed thread may have been too late to get an entry
  for (const RecordedOperation& operation : operations)
    assert_true(is_whole(operation) && operation.ended != 0);
}

// Converted ticks of the present and of the past are between the clock readings around them.
void ticks_become_times(void**) {
  constexpr int64_t kTolerance = 50'000;
  const int64_t before = dsc::now_ns();
  const int64_t tick = dsc::tick_now();
  const int64_t after = dsc::now_ns();
  for (int i = 0; i < 5; ++i) {
    usleep(3000);
    const int64_t ns = dsc::tick_scale().ns_of(tick);
    if (ns < before - kTolerance || ns > after + kTolerance)
      fail_msg("%lld ns is not between %lld and %lld", static_cast<long long>(ns),
               static_cast<long long>(before), static_cast<long long>(after));
  }
}

void json_is_what_was_meant(void**) {
  const std::string odd =
      "quote \" backslash \\ line \n notifier \x07 euro \xe2\x82\xac bad \xff cut \xe2\x82";
  dsc::JsonWriter json;
  json.begin_object();
  json.key("text \"key\"");
  json.text(odd);
  json.key("list");
  json.begin_array();
  json.integer(-5);
  json.begin_array();
  json.end_array();
  json.null();
  json.boolean(true);
  json.number(0.0125, 6);
  json.begin_object();
  json.end_object();
  json.text("");
  json.end_array();
  json.key("last");
  json.integer(INT64_MAX);
  json.end_object();
  const auto parsed = support::Json::parse(json.take());
  assert_string_equal(parsed.at("text \"key\"").get<std::string>().c_str(),
                      "quote \" backslash \\ line \n notifier \x07 euro \xe2\x82\xac bad \xef\xbf\xbd cut "
                      "\xef\xbf\xbd\xef\xbf\xbd");
  assert_true(parsed.at("list") == support::Json::parse("[-5, [], null, true, 0.0125, {}, \"\"]"));
  assert_true(parsed.at("last").get<int64_t>() == INT64_MAX);
}

// Every sequence of up to three bytes is either a valid character or is replaced.
void json_is_always_utf8(void**) {
  for (unsigned first = 0; first < 256; ++first)
    for (unsigned second = 0; second < 256; second += second < 0x7f ? 25 : 1)
      for (const unsigned third : {0x00u, 0x41u, 0x7fu, 0x80u, 0xbfu, 0xc2u, 0xf5u}) {
        const std::string text{static_cast<char>(first), static_cast<char>(second), static_cast<char>(third)};
        dsc::JsonWriter json;
        json.text(text);
        const std::string written = json.take();
        if (!support::Json::accept(written))
          fail_msg("%02x %02x %02x: %s", first, second, third, written.c_str());
      }
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void a_file_is_replaced_as_a_whole(void**) {
  char folder[] = "dsc_file_XXXXXX";
  assert_non_null(mkdtemp(folder));
  const std::string inner = std::string(folder) + "/a/b", path = inner + "/file";
  dsc::replace_file(path, "first");
  assert_string_equal(content(path).c_str(), "first");
  struct stat status {};
  assert_int_equal(stat(path.c_str(), &status), 0);
  assert_int_equal(status.st_mode & 0777, 0600);
  std::ifstream old(path);
  dsc::replace_file(path, std::string(100'000, 'x'));
  std::string word;
  old >> word;
  // a reader that had the old file open still reads the old content
  assert_string_equal(word.c_str(), "first");
  assert_int_equal(content(path).size(), 100'000);
  dsc_result_t code = DSC_OK;
  std::string text;
  dsc::capture([&] { dsc::replace_file(path + "/below", ""); },
               [&](dsc_result_t came, const char* words) { code = came, text = words; });
  assert_int_equal(code, DSC_ERR_SYSTEM);
  assert_non_null(std::strstr(text.c_str(), path.c_str()));
  const std::string link = inner + "/link", fifo = inner + "/fifo";
  assert_int_equal(symlink("file", link.c_str()), 0);
  assert_int_equal(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& special : {link, fifo, inner}) {
    struct stat before {
    }, after{};
    assert_int_equal(lstat(special.c_str(), &before), 0);
    code = DSC_OK;
    dsc::capture([&] { dsc::replace_file(special, "other"); },
                 [&](dsc_result_t came, const char* words) { code = came, text = words; });
    assert_int_equal(code, DSC_ERR_INVALID_ARG);
    assert_non_null(std::strstr(text.c_str(), special.c_str()));
    assert_int_equal(lstat(special.c_str(), &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_mode == after.st_mode);
  }
  assert_int_equal(content(path).size(), 100'000);  // nothing was written through the link
  assert_int_equal(unlink(link.c_str()), 0);
  assert_int_equal(unlink(fifo.c_str()), 0);
  assert_int_equal(unlink(path.c_str()), 0);
  assert_int_equal(rmdir(inner.c_str()), 0);  // fails if the folder is not empty
  assert_int_equal(rmdir((std::string(folder) + "/a").c_str()), 0);
  assert_int_equal(rmdir(folder), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(keeps_the_last),
      cmocka_unit_test(shows_how_far_an_operation_is),
      cmocka_unit_test(times_stand_in_their_order),
      cmocka_unit_test(counts_collectives_and_not_messages),
      cmocka_unit_test(never_gives_up_one_that_runs),
      cmocka_unit_test(omits_on_devices_apart),
      cmocka_unit_test(lets_go_of_what_nobody_follows),
      cmocka_unit_test(counts_devices_apart),
      cmocka_unit_test(knows_later_what_has_failed),
      cmocka_unit_test(what_stands_behind_a_followed_one_is_revoked),
      cmocka_unit_test(records_nothing_without_room),
      cmocka_unit_test(nobody_reads_half_an_operation),
      cmocka_unit_test(ticks_become_times),
      cmocka_unit_test(json_is_what_was_meant),
      cmocka_unit_test(json_is_always_utf8),
      cmocka_unit_test(a_file_is_replaced_as_a_whole),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
