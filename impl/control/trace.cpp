#include "control/trace.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "control/iteration_source.hpp"
#include "control/world.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

int64_t wall_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * kNsPerSecond + time.tv_nsec;
}

// Converts ticks to Unix time. It reads both clocks several times and keeps the reading with the shortest
// interval, which is least likely to have been preempted.
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

// The key and the description by which c10d's format identifies a group; the description is the name that the
// program gave.
struct GroupNames {
  std::string key, text;
};

// A group appears twice if it has operations on devices, because these have their own numbers.
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

// Ranks are written as text, as c10d does.
std::string rank_list_text(const std::vector<int32_t>& global_ranks) {
  std::string text = "[";
  for (const int32_t rank : global_ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

void field(JsonWriter& json, const char* name, int64_t value) {
  json.key(name);
  json.integer(value);
}

void field(JsonWriter& json, const char* name, const std::string& value) {
  json.key(name);
  json.text(value);
}

void field_or_null(JsonWriter& json, const char* name, const char* value) {
  json.key(name);
  value ? json.text(value) : json.null();
}

void field_or_null(JsonWriter& json, const char* name, bool known, int64_t value) {
  json.key(name);
  known ? json.integer(value) : json.null();
}

void write_config(JsonWriter& json, const GroupNames& names, const std::vector<int32_t>& global_ranks) {
  json.key(names.key);
  json.begin_object();
  field(json, "name", names.key);
  field(json, "desc", names.text);
  field(json, "ranks", rank_list_text(global_ranks));
  json.end_object();
}

void write_status(JsonWriter& json, const GroupNames& names, const RecordedProgress& progress,
                  uint64_t omitted) {
  json.key(names.key);
  json.begin_object();
  field(json, "last_enqueued_collective", static_cast<int64_t>(progress.enqueued));
  field(json, "last_started_collective", static_cast<int64_t>(progress.started));
  field(json, "last_completed_collective", static_cast<int64_t>(progress.completed));
  field(json, "omitted", static_cast<int64_t>(omitted));
  json.end_object();
}

void write_groups(JsonWriter& json, const Groups& groups) {
  json.key("pg_config");
  json.begin_object();
  for (const ShownGroup& group : groups) {
    write_config(json, group.on_host, group.record->host.global_ranks);
    if (group.has_devices()) write_config(json, group.on_devices, group.record->devices.global_ranks);
  }
  json.end_object();
  json.key("pg_status");
  json.begin_object();
  for (const ShownGroup& group : groups) {
    const Recorder& recorder = *group.record->recorder;
    write_status(json, group.on_host, recorder.progress(), recorder.omitted());
    if (group.has_devices())
      write_status(json, group.on_devices, recorder.progress(true), recorder.omitted(true));
  }
  json.end_object();
}

// Explains the algorithm names that entries contain.
void write_algorithms(JsonWriter& json) {
  json.key("algorithms");
  json.begin_object();
  for (const Algorithm algorithm : kAlgorithms)
    field(json, algorithm_name(algorithm), std::string(algorithm_rule(algorithm)));
  json.end_object();
}

// Writes the size and type of one buffer, or empty lists if this rank has no such buffer.
void write_buffer(JsonWriter& json, const char* side, const RecordedCall& call, size_t bytes, OpKind never) {
  const bool empty = call.send_bytes == 0 && call.recv_bytes == 0;
  const bool has_one = call.dtype != 0 && (bytes > 0 || (empty && call.kind != never));
  const size_t element = call.dtype != 0 ? dtype_bytes(call.dtype) : 1;
  json.key(std::string(side) + "_sizes");
  json.begin_array();
  if (has_one) {
    json.begin_array();
    json.integer(static_cast<int64_t>(bytes / element));
    json.end_array();
  }
  json.end_array();
  json.key(std::string(side) + "_dtypes");
  json.begin_array();
  if (has_one) json.text(dtype_name(call.dtype));
  json.end_array();
}

// The first three states are those of c10d, where a collective that started and never completed counts as
// hanging; "launched" and "captured" are added.
const char* state_of(const RecordedOperation& operation) noexcept {
  if (operation.ended != 0 && operation.result == DSC_OK) return "completed";
  if (operation.ended == 0 && operation.detach != Detached::kNo)
    return operation.detach == Detached::kCaptured ? "captured" : "launched";
  return operation.started != 0 ? "started" : "scheduled";
}

void write_times(JsonWriter& json, const RecordedOperation& operation, const Clock& clock) {
  const auto time = [&](const char* name, int64_t ticks) {
    field_or_null(json, name, ticks != 0, ticks != 0 ? clock.unix_ns_of(ticks) : 0);
  };
  const bool completed = operation.ended != 0 && operation.result == DSC_OK;
  const bool failed = operation.ended != 0 && operation.result != DSC_OK;
  time("time_created_ns", operation.created);
  time("time_discovered_started_ns", operation.started);
  time("time_met_ns", operation.met);
  time("time_discovered_completed_ns", completed ? operation.ended : 0);
  time("time_failed_ns", failed ? operation.ended : 0);
  json.key("duration_ms");
  // the real start and end of a device operation are known only to the device
  if (completed && !operation.call.on_device)
    json.number(static_cast<double>(ticks_to_ns(operation.ended - operation.started)) / kNsPerMs, 6);
  else
    json.null();
  field(json, "timeout_ms", operation.call.timeout_ms);
  field(json, "state", state_of(operation));
  json.key("retired");
  json.boolean(operation.ended != 0 || operation.detach != Detached::kNo);
}

void write_entry(JsonWriter& json, const Entry& entry, size_t record_id, const Clock& clock) {
  const RecordedOperation& operation = entry.operation;
  const RecordedCall& call = operation.call;
  const bool message = is_message(call.kind);
  const auto sequence = static_cast<int64_t>(call.sequence);
  json.begin_object();
  field(json, "record_id", static_cast<int64_t>(record_id));
  field(json, "pg_id", entry.group->key);
  json.key("process_group");
  json.begin_array();
  json.text(entry.group->key);
  json.text(entry.group->text);
  json.end_array();
  field(json, "collective_seq_id", message ? 0 : sequence);
  field(json, "p2p_seq_id", message ? sequence : 0);
  field(json, "op_id", static_cast<int64_t>(operation.id));
  json.key("is_p2p");
  json.boolean(message);
  field(json, "profiling_name", std::string("dsc:") + op_kind_name(call.kind));
  write_buffer(json, "input", call, call.send_bytes, OpKind::kRecv);
  write_buffer(json, "output", call, call.recv_bytes, OpKind::kSend);
  write_times(json, operation, clock);
  json.key("frames");
  json.begin_array();
  json.end_array();
  field_or_null(json, "reduce_op", call.op == 0 ? nullptr : call.op == kUserOp ? "custom" : op_name(call.op));
  field_or_null(json, "root", !message && call.root >= 0, call.root);
  field_or_null(json, "peer", message, call.root);
  json.key("device");
  json.boolean(call.on_device);
  field(json, "bytes", static_cast<int64_t>(std::max(call.send_bytes, call.recv_bytes)));
  field_or_null(json, "algorithm", algorithm_name(operation.algorithm));
  field_or_null(json, "result", operation.ended != 0 ? result_name(operation.result) : nullptr);
  json.end_object();
}

void write_iteration(JsonWriter& json, const RecordedIteration& iteration, const Clock& clock) {
  const auto time = [&](const char* name, int64_t ticks) {
    field_or_null(json, name, ticks != 0, ticks != 0 ? clock.unix_ns_of(ticks) : 0);
  };
  json.begin_object();
  field(json, "pg_id", std::to_string(iteration.group));
  field(json, "number", static_cast<int64_t>(iteration.number));
  time("time_begun_ns", iteration.begun);
  time("time_finishing_ns", iteration.finishing);
  time("time_finished_ns", iteration.finished);
  json.key("gradients");
  json.begin_array();
  for (const RecordedIteration::Gradient& gradient : iteration.gradients) {
    json.begin_object();
    field(json, "name", gradient.name);
    field(json, "bucket", static_cast<int64_t>(gradient.bucket));
    time("time_ready_ns", gradient.ready);
    json.end_object();
  }
  json.end_array();
  json.key("buckets");
  json.begin_array();
  for (const RecordedIteration::Bucket& bucket : iteration.buckets) {
    json.begin_object();
    field(json, "bytes", static_cast<int64_t>(bucket.bytes));
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

std::string trace_text(const World& world, const std::vector<GroupRecord>& groups,
                       const std::string& reason) {
  const Member& self = world.members()[static_cast<size_t>(world.rank())];
  const Groups shown(groups.begin(), groups.end());
  const std::vector<Entry> entries = read_entries(shown);
  const Clock clock;
  JsonWriter json;
  json.begin_object();
  field(json, "version", "2.4");
  field(json, "library", version_text(world.library_version()));
  field(json, "rank", self.rank);
  field(json, "world_size", world.layout().world_size());
  field(json, "pid", getpid());
  field(json, "host", hex64(fnv1a(self.host)));
  field(json, "job", hex(world.nonce()));
  field(json, "reason", reason);
  json.key("clock");
  json.begin_object();
  field(json, "dump_ns", clock.unix_ns);
  field(json, "monotonic_ns", clock.monotonic_ns);
  json.end_object();
  write_groups(json, shown);
  write_algorithms(json);
  json.key("entries");
  json.begin_array();
  for (size_t i = 0; i < entries.size(); ++i) write_entry(json, entries[i], i, clock);
  json.end_array();
  json.key("iterations");
  json.begin_array();
  for (const RecordedIteration& iteration : world.iterations()) write_iteration(json, iteration, clock);
  json.end_array();
  json.end_object();
  return json.take();
}

std::string trace_path(const std::string& folder, int rank) {
  return folder + "/dsc_trace_rank_" + std::to_string(rank) + ".json";
}

}  // namespace dsc
