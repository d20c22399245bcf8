#include "control/trace.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/joined.hpp"
#include "base/json.hpp"
#include "control/host_group.hpp"
#include "control/iteration_source.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

int64_t wall_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * kNsPerSecond + time.tv_nsec;
}

// Converts ticks to Unix time. Reads both clocks several times and keeps the reading that took the shortest
// time, because the thread was most likely not preempted during it.
class Clock {
 public:
  Clock() {
    int64_t least = INT64_MAX;
    for (int i = 0; i < kReadings; ++i) {
      const int64_t before = now_ns();
      const int64_t wall = wall_ns();
      const int64_t width = now_ns() - before;
      if (width >= least) continue;
      least = width;
      unix_ns = wall;
      monotonic_ns = before + width / 2;
    }
  }
  int64_t unix_ns_of(int64_t ticks) const noexcept { return scale_.ns_of(ticks) + unix_ns - monotonic_ns; }

  int64_t unix_ns = 0;
  int64_t monotonic_ns = 0;

 private:
  static constexpr int kReadings = 8;
  const TickScale scale_ = tick_scale();
};

// The key and the description by which c10d's format identifies a group. The description is the name given by
// the program.
struct GroupNames {
  std::string key, text;
};

// A group as it is shown in the trace. A group with operations on devices is shown twice, because these
// operations have separate sequence numbers.
struct ShownGroup {
  explicit ShownGroup(const GroupRecord& record)
      : record(&record),
        on_host{std::to_string(record.host.id), record.host.name},
        on_devices{std::to_string(record.devices.id) + ":devices", record.devices.name + " (devices)"} {}
  bool has_devices() const noexcept { return !record->devices.global_ranks.empty(); }

  const GroupRecord* record;
  GroupNames on_host, on_devices;
};
using Groups = std::vector<ShownGroup>;

// An operation together with the group that recorded it.
struct Entry {
  const GroupNames* group;
  RecordedOperation operation;
};

std::string hex64(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string version_text(uint32_t version) {
  return "libdsc " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff) + "." +
         std::to_string(version & 0xff);
}

void write_config(JsonWriter& json, const GroupNames& names, const std::vector<int32_t>& global_ranks) {
  json.begin_object(names.key);
  json.field("name", names.key);
  json.field("desc", names.text);
  json.field("ranks", "[" + joined(global_ranks, ", ") + "]");  // written as a text, as c10d does
  json.end_object();
}

void write_status(JsonWriter& json, const GroupNames& names, const RecordedProgress& progress,
                  uint64_t omitted) {
  json.begin_object(names.key);
  json.field("last_enqueued_collective", progress.enqueued);
  json.field("last_started_collective", progress.started);
  json.field("last_completed_collective", progress.completed);
  json.field("omitted", omitted);
  json.end_object();
}

void write_groups(JsonWriter& json, const Groups& groups) {
  json.begin_object("pg_config");
  for (const ShownGroup& group : groups) {
    write_config(json, group.on_host, group.record->host.global_ranks);
    if (group.has_devices()) write_config(json, group.on_devices, group.record->devices.global_ranks);
  }
  json.end_object();
  json.begin_object("pg_status");
  for (const ShownGroup& group : groups) {
    const Recorder& recorder = *group.record->recorder;
    write_status(json, group.on_host, recorder.progress(), recorder.omitted());
    if (group.has_devices())
      write_status(json, group.on_devices, recorder.progress(true), recorder.omitted(true));
  }
  json.end_object();
}

// Explains the names of algorithms that appear in entries.
void write_algorithms(JsonWriter& json) {
  json.begin_object("algorithms");
  for (const Algorithm algorithm : kAlgorithms)
    json.field(algorithm_name(algorithm), algorithm_rule(algorithm));
  json.end_object();
}

// Writes the size and type of one buffer. If this rank has no such buffer, writes empty lists. Operations of
// kind `never` do not have this buffer on any rank.
void write_buffer(JsonWriter& json, const char* side, const RecordedCall& call, size_t bytes, OpKind never) {
  const bool empty = call.send_bytes == 0 && call.recv_bytes == 0;
  const bool has_one = call.dtype != 0 && (bytes > 0 || (empty && call.kind != never));
  const size_t element = call.dtype != 0 ? dtype_bytes(call.dtype) : 1;
  json.begin_array(std::string(side) + "_sizes");
  if (has_one) {
    json.begin_array();
    json.integer(static_cast<int64_t>(bytes / element));
    json.end_array();
  }
  json.end_array();
  json.begin_array(std::string(side) + "_dtypes");
  if (has_one) json.text(dtype_name(call.dtype));
  json.end_array();
}

// "scheduled", "started" and "completed" are the states of c10d, where a collective that started and never
// completed counts as hanging. "launched" and "captured" are additional states.
const char* state_of(const RecordedOperation& operation) noexcept {
  if (operation.ended != 0 && operation.result == DSC_OK) return "completed";
  if (operation.ended == 0 && operation.detach != Detached::kNo)
    return operation.detach == Detached::kCaptured ? "captured" : "launched";
  return operation.started != 0 ? "started" : "scheduled";
}

void write_times(JsonWriter& json, const RecordedOperation& operation, const Clock& clock) {
  const auto time = [&](const char* name, int64_t ticks) {
    json.field_or_null(name, ticks != 0, ticks != 0 ? clock.unix_ns_of(ticks) : 0);
  };
  const bool completed = operation.ended != 0 && operation.result == DSC_OK;
  const bool failed = operation.ended != 0 && operation.result != DSC_OK;
  time("time_created_ns", operation.created);
  time("time_discovered_started_ns", operation.started);
  time("time_met_ns", operation.met);
  time("time_discovered_completed_ns", completed ? operation.ended : 0);
  time("time_failed_ns", failed ? operation.ended : 0);
  json.key("duration_ms");
  // For an operation on a device, only the device knows the real start and end.
  if (completed && !operation.call.on_device)
    json.number(static_cast<double>(ticks_to_ns(operation.ended - operation.started)) / kNsPerMs, 6);
  else
    json.null();
  json.field("timeout_ms", operation.call.timeout_ms);
  json.field("state", state_of(operation));
  json.field("retired", operation.ended != 0 || operation.detach != Detached::kNo);
}

void write_entry(JsonWriter& json, const Entry& entry, size_t record_id, const Clock& clock) {
  const RecordedOperation& operation = entry.operation;
  const RecordedCall& call = operation.call;
  const bool message = is_message(call.kind);
  const auto sequence = static_cast<int64_t>(call.sequence);
  json.begin_object();
  json.field("record_id", record_id);
  json.field("pg_id", entry.group->key);
  json.begin_array("process_group");
  json.text(entry.group->key);
  json.text(entry.group->text);
  json.end_array();
  json.field("collective_seq_id", message ? 0 : sequence);
  json.field("p2p_seq_id", message ? sequence : 0);
  json.field("op_id", operation.id);
  json.field("is_p2p", message);
  json.field("profiling_name", std::string("dsc:") + op_kind_name(call.kind));
  write_buffer(json, "input", call, call.send_bytes, OpKind::kRecv);
  write_buffer(json, "output", call, call.recv_bytes, OpKind::kSend);
  write_times(json, operation, clock);
  json.begin_array("frames");
  json.end_array();
  json.field_or_null("reduce_op", call.op == 0 ? nullptr : call.op == kUserOp ? "custom" : op_name(call.op));
  json.field_or_null("root", !message && call.root >= 0, call.root);
  json.field_or_null("peer", message, call.root);
  json.field("device", call.on_device);
  json.field("bytes", std::max(call.send_bytes, call.recv_bytes));
  json.field_or_null("algorithm", algorithm_name(operation.algorithm));
  json.field_or_null("result", operation.ended != 0 ? result_name(operation.result) : nullptr);
  json.end_object();
}

void write_iteration(JsonWriter& json, const RecordedIteration& iteration, const Clock& clock) {
  const auto time = [&](const char* name, int64_t ticks) {
    json.field_or_null(name, ticks != 0, ticks != 0 ? clock.unix_ns_of(ticks) : 0);
  };
  json.begin_object();
  json.field("pg_id", std::to_string(iteration.group));
  json.field("number", iteration.number);
  time("time_begun_ns", iteration.begun);
  time("time_finishing_ns", iteration.finishing);
  time("time_finished_ns", iteration.finished);
  json.begin_array("gradients");
  for (const RecordedIteration::Gradient& gradient : iteration.gradients) {
    json.begin_object();
    json.field("name", gradient.name);
    json.field("bucket", gradient.bucket);
    time("time_ready_ns", gradient.ready);
    json.end_object();
  }
  json.end_array();
  json.begin_array("buckets");
  for (const RecordedIteration::Bucket& bucket : iteration.buckets) {
    json.begin_object();
    json.field("bytes", bucket.bytes);
    time("time_launched_ns", bucket.launched);
    time("time_reduced_ns", bucket.reduced);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

std::vector<Entry> read_entries(const Groups& groups) {
  std::vector<Entry> entries;
  for (const ShownGroup& group : groups)
    for (RecordedOperation& operation : group.record->recorder->read())
      entries.push_back({operation.call.on_device ? &group.on_devices : &group.on_host, operation});
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.operation.created < b.operation.created; });
  return entries;
}

}  // namespace

std::string trace_text(const HostGroup& host, const std::vector<GroupRecord>& groups,
                       const std::string& reason) {
  const Member& self = host.members()[static_cast<size_t>(host.rank())];
  const Groups shown(groups.begin(), groups.end());
  const std::vector<Entry> entries = read_entries(shown);
  const Clock clock;
  JsonWriter json;
  json.begin_object();
  json.field("version", "2.4");
  json.field("library", version_text(host.library_version()));
  json.field("rank", self.rank);
  json.field("world_size", host.layout().world_size());
  json.field("pid", getpid());
  json.field("host", hex64(fnv1a(self.host)));
  json.field("job", hex(host.nonce()));
  json.field("reason", reason);
  json.begin_object("clock");
  json.field("dump_ns", clock.unix_ns);
  json.field("monotonic_ns", clock.monotonic_ns);
  json.end_object();
  write_groups(json, shown);
  write_algorithms(json);
  json.begin_array("entries");
  for (size_t i = 0; i < entries.size(); ++i) write_entry(json, entries[i], i, clock);
  json.end_array();
  json.begin_array("iterations");
  for (const RecordedIteration& iteration : host.iterations()) write_iteration(json, iteration, clock);
  json.end_array();
  json.end_object();
  return json.take();
}

std::string trace_path(const std::string& folder, int rank) {
  return folder + "/dsc_trace_rank_" + std::to_string(rank) + ".json";
}

}  // namespace dsc
