#include "dscctl/trace/timeline.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "dscctl/trace/page.hpp"
#include "dscctl/trace/perfetto.hpp"
#include "dscctl/trace/reader.hpp"

namespace dscctl::trace {
namespace {

constexpr int64_t kNever = -1;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

// Values that many entries share. Each is written once, and entries refer to it by its index.
class Shared {
 public:
  int64_t index_of(Json value) {
    const auto [found, is_new] = known_.try_emplace(text_of(value), list_.size());
    if (is_new) list_.push_back(std::move(value));
    return static_cast<int64_t>(found->second);
  }
  Json take() { return std::move(list_); }

 private:
  std::map<std::string, size_t> known_;
  Json list_ = Json::array();
};

// Returns the key of an operation in the format of page/model.js.
Json key_of(const Operation* operation) {
  if (operation == nullptr) return nullptr;
  std::string key = std::to_string(operation->group);
  if (operation->is_message)
    for (const Participant& end : operation->participants) key += "|" + std::to_string(end.rank);
  return key + "|" + std::to_string(operation->sequence);
}

// Writes the seven numbers of an entry: number, kind, creation time, how long it was queued, waited and moved
// data, and the result. Each time is relative to the one before it. On a device, waiting and moving cannot be
// distinguished. An operation whose end was not tracked is shown as an instant.
class EntryWriter {
 public:
  explicit EntryWriter(TimeNs base) : base_(base) {}

  void write(const Entry& entry, Json& data) {
    TimeNs last = entry.created;
    const auto since_last = [&](const std::optional<TimeNs>& time) {
      if (!time) return kNever;
      const int64_t passed = std::max<int64_t>(0, *time - last);
      last += passed;
      return passed;
    };
    data.push_back(entry.sequence);
    data.push_back(kinds_.index_of(kind_of(entry)));
    data.push_back(entry.created - base_);
    data.push_back(since_last(entry.started));
    data.push_back(since_last(!entry.started ? std::nullopt : entry.on_device ? entry.started : entry.met));
    data.push_back(entry.end_unknown ? 0 : since_last(entry.completed));
    data.push_back(entry.result.empty() ? kNever : results_.index_of(entry.result));
  }

  Json kinds() { return kinds_.take(); }
  Json results() { return results_.take(); }
  void add_success() { results_.index_of("DSC_OK"); }  // index 0, which no failure may have

 private:
  static Json kind_of(const Entry& entry) {
    return {{"name", entry.name},
            {"dtype", entry.dtype},
            {"in", or_null(entry.input_elements)},
            {"out", or_null(entry.output_elements)},
            {"bytes", entry.bytes},
            {"reduce_op", entry.reduce_op},
            {"root", or_null(entry.root)},
            {"peer", or_null(entry.peer)},
            {"is_send", entry.is_send()},
            {"algorithm", entry.algorithm},
            {"device", entry.on_device ? 1 : 0},
            {"unknown_end", entry.captured      ? "captured"
                            : entry.end_unknown ? "launched"
                                                : ""},
            {"timeout_ms", entry.timeout_ms}};
  }

  const TimeNs base_;
  Shared kinds_, results_;
};

Json groups_json(const Trace& trace) {
  Json list = Json::array();
  for (const Group& group : trace.groups) list.push_back({{"name", group.name}, {"ranks", group.ranks}});
  return list;
}

Json ranks_json(const Trace& trace, TimeNs base) {
  Json list = Json::array();
  for (int rank = 0; rank < trace.world_size; ++rank) {
    const Dump* dump = trace.of_rank(rank);
    if (dump == nullptr) list.push_back({{"dump", false}, {"time", 0}});
    if (dump != nullptr)
      list.push_back(
          {{"dump", true}, {"time", dump->time - base}, {"pid", dump->pid}, {"reason", dump->reason}});
  }
  return list;
}

// Returns one track per rank, group and kind (collectives or messages). Empty tracks of messages are left
// out.
Json tracks_json(const Trace& trace, EntryWriter& writer) {
  std::map<std::tuple<int, size_t, bool>, Json> tracks;
  for (const Dump& dump : trace.dumps) {
    for (const auto& [group, progress] : dump.groups) tracks[{dump.rank, group, false}] = Json::array();
    for (const Entry& entry : dump.entries) {
      Json& data = tracks[{dump.rank, entry.group, entry.is_message}];
      if (data.is_null()) data = Json::array();
      writer.write(entry, data);
    }
  }
  Json list = Json::array();
  for (auto& [key, data] : tracks) {
    const auto& [rank, group, is_messages] = key;
    list.push_back({{"rank", rank}, {"group", group}, {"messages", is_messages}, {"data", std::move(data)}});
  }
  return list;
}

Json findings_json(const Report& report) {
  Json list = Json::array();
  for (const Finding& finding : report.findings)
    list.push_back({{"kind", kind_name(finding.kind)},
                    {"text", finding.text},
                    {"ranks", finding.ranks},
                    {"operation", key_of(finding.operation)}});
  return list;
}

std::string start_text(TimeNs base) {
  const std::time_t seconds = base / 1'000'000'000;
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[64];
  std::strftime(text, sizeof text, "from %Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

Json page_data(const Report& report) {
  const Trace& trace = report.trace;
  const TimeNs base = first_time(trace);
  TimeNs end = base;
  for (const Dump& dump : trace.dumps) end = std::max(end, dump.time);
  EntryWriter writer(base);
  writer.add_success();
  Json data = report_json(report);
  data["problems"] = std::move(data["unused_files"]);
  data["findings"] = findings_json(report);
  for (size_t i = 0; i < report.lateness.size(); ++i)
    data["lateness"][i]["worst"] = key_of(report.lateness[i].worst);
  data["started"] = start_text(base);
  data["end"] = end - base;
  data["groups"] = groups_json(trace);
  data["ranks"] = ranks_json(trace, base);
  data["tracks"] = tracks_json(trace, writer);
  data["kinds"] = writer.kinds();
  data["results"] = writer.results();
  return data;
}

// Escapes "<", which is the only character that could end a script element or open a comment.
std::string for_script(std::string text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) c == '<' ? safe += "\\u003c" : safe += c;
  return safe;
}

}  // namespace

void write_timeline(std::ostream& out, const Report& report) {
  out << kPageHead << for_script(text_of(page_data(report))) << kPageTail;
}

}  // namespace dscctl::trace
