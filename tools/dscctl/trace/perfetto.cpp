#include "dscctl/trace/perfetto.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "dscctl/trace/reader.hpp"

namespace dscctl::trace {
namespace {

constexpr const char* kMessages = "messages";
constexpr const char* kOnDevice = "on device";
constexpr const char* kBuckets = "gradient buckets";
constexpr const char* kGradients = "gradients";

struct Slice {
  TimeNs begin = 0;
  TimeNs end = 0;
};

// Returns the time from a rank's arrival to the end of the operation. An operation that has not ended lasts
// until the dump.
std::optional<Slice> slice_of(const Dump& dump, const Entry& entry) {
  if (!entry.started) return std::nullopt;
  if (entry.end_unknown) return Slice{*entry.started, *entry.started};
  return Slice{*entry.started, std::max(*entry.started, entry.completed.value_or(dump.time))};
}

Json arguments_of(const Trace& trace, const Entry& entry) {
  Json args = {{"group", trace.groups[entry.group].name},
               {"number", entry.sequence},
               {"bytes", entry.bytes},
               {"state", entry.failed()      ? "failed"
                         : entry.completed   ? "completed"
                         : entry.captured    ? "captured, end unknown"
                         : entry.end_unknown ? "launched, end unknown"
                         : entry.started     ? "started"
                                             : "scheduled"}};
  const std::pair<const char*, const std::string&> texts[] = {{"dtype", entry.dtype},
                                                              {"reduce_op", entry.reduce_op},
                                                              {"algorithm", entry.algorithm},
                                                              {"result", entry.result}};
  for (const auto& [name, value] : texts)
    if (!value.empty()) args[name] = value;
  if (entry.input_elements) args["input_elements"] = *entry.input_elements;
  if (entry.output_elements) args["output_elements"] = *entry.output_elements;
  if (entry.on_device) args["device"] = true;
  if (entry.root) args["root"] = *entry.root;
  if (entry.peer) args["peer"] = *entry.peer;
  return args;
}

class PerfettoWriter {
 public:
  PerfettoWriter(std::ostream& out, const Trace& trace)
      : out_(out), trace_(trace), base_(first_time(trace)) {}

  void write(const std::vector<Operation>& operations) {
    out_ << "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"base_unix_ns\":" << base_
         << "},\"traceEvents\":[\n";
    for (const Dump& dump : trace_.dumps) write_rank(dump);
    write_arrows(operations);
    out_ << "\n]}\n";
  }

 private:
  void event(const Json& json) {
    if (std::exchange(wrote_, true)) out_ << ",\n";
    out_ << text_of(json);
  }

  double microseconds(TimeNs time) const { return static_cast<double>(time - base_) / 1000.0; }

  void name_track(int rank, size_t track, const std::string& name) {
    event({{"ph", "M"}, {"name", "thread_name"}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}});
    event({{"ph", "M"},
           {"name", "thread_sort_index"},
           {"pid", rank},
           {"tid", track},
           {"args", {{"sort_index", track}}}});
  }

  void write_rank(const Dump& dump) {
    const std::string name = "rank " + std::to_string(dump.rank);
    event({{"ph", "M"}, {"name", "process_name"}, {"pid", dump.rank}, {"args", {{"name", name}}}});
    event({{"ph", "M"},
           {"name", "process_sort_index"},
           {"pid", dump.rank},
           {"args", {{"sort_index", dump.rank}}}});
    for (const auto& [group, progress] : dump.groups)
      name_track(dump.rank, group + 1, trace_.groups[group].name);
    std::vector<const Entry*> entries;
    for (const Entry& entry : dump.entries) entries.push_back(&entry);
    std::stable_sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
      return a->started.value_or(a->created) < b->started.value_or(b->created);
    });
    Lanes lanes;
    for (const Entry* entry : entries) write_entry(dump, *entry, lanes);
    for (const Iteration& iteration : dump.iterations) write_iteration(dump, iteration, lanes);
  }

  struct Lane {
    const char* kind;
    int number;  // its number among the lanes of this kind
    TimeNs end;  // the end of its latest slice
  };
  using Lanes = std::vector<Lane>;

  size_t track_of(const Dump& dump, const Entry& entry, const Slice& slice, Lanes& lanes) {
    if (!entry.is_message && !entry.on_device) return entry.group + 1;
    return free_track(dump, entry.on_device ? kOnDevice : kMessages, slice, lanes);
  }

  // Slices of one track must not overlap. Messages, buckets and operations on devices may overlap, so each
  // goes to the first free track of its kind.
  size_t free_track(const Dump& dump, const char* kind, const Slice& slice, Lanes& lanes) {
    int number = 1;
    auto free = lanes.begin();
    for (; free != lanes.end() && (free->kind != kind || free->end > slice.begin); ++free)
      if (free->kind == kind) ++number;
    const size_t track = trace_.groups.size() + 1 + static_cast<size_t>(free - lanes.begin());
    if (free != lanes.end()) {
      free->end = slice.end;
      return track;
    }
    lanes.push_back({kind, number, slice.end});
    name_track(dump.rank, track, kind + (number == 1 ? std::string() : " " + std::to_string(number)));
    return track;
  }

  void write_entry(const Dump& dump, const Entry& entry, Lanes& lanes) {
    write_queueing(dump, entry);
    const std::optional<Slice> slice = slice_of(dump, entry);
    if (!slice) return;
    const size_t track = track_of(dump, entry, *slice, lanes);
    tracks_[&entry] = track;
    write_slice(dump.rank, track, entry.name, "operation", *slice, arguments_of(trace_, entry));
    if (entry.on_device) return;  // on a device it is not known when waiting ends and moving begins
    const TimeNs met = std::clamp(entry.met.value_or(slice->end), slice->begin, slice->end);
    write_slice(dump.rank, track, "wait", "wait", {slice->begin, met}, Json::object());
    if (entry.met) write_slice(dump.rank, track, "move", "move", {met, slice->end}, Json::object());
  }

  // Writes the latest iteration of a reducer: gradients as instants, and reductions of buckets as slices.
  void write_iteration(const Dump& dump, const Iteration& iteration, Lanes& lanes) {
    const std::string reducer = trace_.groups[iteration.group].name;
    const TimeNs end = iteration.finished.value_or(dump.time);
    const size_t track = free_track(dump, kGradients, {iteration.begun, end}, lanes);
    write_slice(dump.rank, track, "iteration of " + reducer, "reducer", {iteration.begun, end},
                {{"number", iteration.number}, {"finished", iteration.finished.has_value()}});
    for (const Iteration::Gradient& gradient : iteration.gradients)
      if (gradient.ready)
        event({{"ph", "i"},
               {"s", "t"},
               {"name", gradient.name},
               {"cat", "gradient"},
               {"pid", dump.rank},
               {"tid", track},
               {"ts", microseconds(*gradient.ready)},
               {"args", {{"bucket", gradient.bucket}}}});
    for (size_t b = 0; b < iteration.buckets.size(); ++b) {
      const Iteration::Bucket& bucket = iteration.buckets[b];
      if (!bucket.launched) continue;
      const Slice slice{*bucket.launched, std::max(*bucket.launched, bucket.reduced.value_or(end))};
      write_slice(dump.rank, free_track(dump, kBuckets, slice, lanes), "bucket " + std::to_string(b),
                  "reducer", slice, {{"bytes", bucket.bytes}, {"end_known", bucket.reduced.has_value()}});
    }
  }

  void write_slice(int rank, size_t track, const std::string& name, const char* category, const Slice& slice,
                   Json args) {
    event({{"ph", "X"},
           {"name", name},
           {"cat", category},
           {"pid", rank},
           {"tid", track},
           {"ts", microseconds(slice.begin)},
           {"dur", static_cast<double>(slice.end - slice.begin) / 1000.0},
           {"args", std::move(args)}});
  }

  // An operation may be queued while the operations before it run, so queueing is an asynchronous slice.
  void write_queueing(const Dump& dump, const Entry& entry) {
    const TimeNs end = entry.started.value_or(entry.completed.value_or(dump.time));
    if (end <= entry.created) return;
    const std::string id = std::to_string(++queue_id_);
    const Json common = {{"name", "queue of " + trace_.groups[entry.group].name},
                         {"cat", "queue"},
                         {"id", id},
                         {"pid", dump.rank},
                         {"tid", entry.group + 1}};
    Json begin = common, finish = common;
    begin.update({{"ph", "b"},
                  {"ts", microseconds(entry.created)},
                  {"args", {{"operation", entry.name}, {"number", entry.sequence}}}});
    finish.update({{"ph", "e"}, {"ts", microseconds(end)}});
    event(begin);
    event(finish);
  }

  void write_arrows(const std::vector<Operation>& operations) {
    for (size_t i = 0; i < operations.size(); ++i) {
      if (!operations[i].is_message) continue;
      const Participant& sender = operations[i].participants[0];
      const Participant& receiver = operations[i].participants[1];
      if (!sender.entry || !receiver.entry || !sender.entry->started || !receiver.entry->started) continue;
      const Json common = {{"name", "message"}, {"cat", "message"}, {"id", i}};
      Json start = common, finish = common;
      add_end(start, "s", sender);
      add_end(finish, "f", receiver);
      finish["bp"] = "e";
      event(start);
      event(finish);
    }
  }

  // Perfetto attaches an arrow to the slice that is open at the arrow's time.
  void add_end(Json& arrow, const char* phase, const Participant& end) {
    const Slice slice = *slice_of(*end.dump, *end.entry);
    const bool is_start = phase[0] == 's';
    arrow.update({{"ph", phase},
                  {"pid", end.rank},
                  {"tid", tracks_.at(end.entry)},
                  {"ts", microseconds(is_start ? slice.begin : slice.end)}});
  }

  std::ostream& out_;
  const Trace& trace_;
  const TimeNs base_;
  bool wrote_ = false;
  int64_t queue_id_ = 0;
  std::unordered_map<const Entry*, size_t> tracks_;
};

}  // namespace

TimeNs first_time(const Trace& trace) {
  TimeNs first = 0;
  const auto take = [&](TimeNs time) { first = first == 0 ? time : std::min(first, time); };
  for (const Dump& dump : trace.dumps) {
    for (const Entry& entry : dump.entries) take(entry.created);
    for (const Iteration& iteration : dump.iterations) take(iteration.begun);
  }
  if (first != 0) return first;
  for (const Dump& dump : trace.dumps) take(dump.time);
  return first;
}

void write_perfetto(std::ostream& out, const Trace& trace, const std::vector<Operation>& operations) {
  PerfettoWriter(out, trace).write(operations);
}

}  // namespace dscctl::trace
