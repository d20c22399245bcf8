#include "bootstrap/launch_report.hpp"

#include "base/error.hpp"
#include "base/json.hpp"

namespace dsc {
namespace {

const char* word_for(SourceFinding::State state) {
  switch (state) {
    case SourceFinding::State::kChosen:
      return "chosen";
    case SourceFinding::State::kAbsent:
      return "absent";
    case SourceFinding::State::kIncomplete:
      return "incomplete";
    case SourceFinding::State::kExcluded:
      return "excluded";
    case SourceFinding::State::kFailed:
      return "failed";
    case SourceFinding::State::kBeaten:
      return "beaten";
  }
  return "unknown";
}

void write_text(JsonWriter& json, const char* key, const std::string& value) {
  json.key(key);
  if (value.empty())
    json.null();
  else
    json.text(value);
}

void write_number(JsonWriter& json, const char* key, int32_t value) {
  json.key(key);
  if (value < 0)
    json.null();
  else
    json.integer(value);
}

void write_source(JsonWriter& json, const SourceFinding& source) {
  json.begin_object();
  write_text(json, "name", source.name);
  write_text(json, "state", word_for(source.state));
  write_text(json, "why", source.why);
  json.key("variables");
  json.begin_object();
  for (const auto& [name, value] : source.variables) write_text(json, name.c_str(), value.value_or(""));
  json.end_object();
  json.end_object();
}

// Returns how ranks would meet; empty if start-up failed before it could choose.
std::string meeting_text(const Launch& launch) {
  if (launch.way == MeetingWay::kNobody) return launch.world_size == 1 ? "none: a world of one rank" : "";
  if (launch.way == MeetingWay::kOneHost) return "abstract unix socket";
  return launch.told_through.empty() ? "TCP" : "TCP, at a place that is told through " + launch.told_through;
}

void write_launch(JsonWriter& json, const Launch& launch) {
  json.begin_object();
  write_text(json, "source", launch.source);
  json.key("rank");
  json.integer(launch.rank);
  write_number(json, "world_size", launch.world_size);
  write_number(json, "local_rank", launch.local_rank);
  write_number(json, "local_world_size", launch.local_world_size);
  write_text(json, "master_addr", launch.master_addr);
  write_text(json, "master_addr_from", launch.master_addr_from);
  write_number(json, "master_port", launch.master_port);
  write_text(json, "master_port_from", launch.master_port_from);
  write_text(json, "job_id", launch.job_id);
  write_text(json, "job_id_from", launch.job_id_from);
  json.key("agent_store");
  json.boolean(launch.agent_store);
  write_text(json, "meeting", meeting_text(launch));
  write_text(json, "meeting_from", launch.way_from);
  write_text(json, "advice", launch.advice);
  json.end_object();
}

void write_error(JsonWriter& json, const LaunchFindings& findings) {
  json.begin_object();
  write_text(json, "code", result_name(findings.code));
  write_text(json, "text", findings.error);
  json.end_object();
}

}  // namespace

std::string launch_report(const LaunchFindings& findings) {
  JsonWriter json;
  json.begin_object();
  json.key("sources");
  json.begin_array();
  for (const SourceFinding& source : findings.sources) write_source(json, source);
  json.end_array();
  json.key("start");
  if (findings.has_address)
    write_launch(json, findings.launch);
  else
    json.null();
  json.key("error");
  if (findings.code != DSC_OK)
    write_error(json, findings);
  else
    json.null();
  json.end_object();
  return json.take();
}

}  // namespace dsc
