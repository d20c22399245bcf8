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

void write_source(JsonWriter& json, const SourceFinding& source) {
  json.begin_object();
  json.field_or_null("name", source.name);
  json.field_or_null("state", word_for(source.state));
  json.field_or_null("why", source.why);
  json.begin_object("variables");
  for (const auto& [name, value] : source.variables) json.field_or_null(name.c_str(), value.value_or(""));
  json.end_object();
  json.end_object();
}

// Returns how the ranks would meet. The text is empty if start-up failed before it could choose.
std::string meeting_text(const Launch& launch) {
  if (launch.way == MeetingWay::kNobody) return launch.world_size == 1 ? "none: a world of one rank" : "";
  if (launch.way == MeetingWay::kOneHost) return "abstract unix socket";
  return launch.told_through.empty() ? "TCP"
                                     : "TCP, at an address that is told through " + launch.told_through;
}

void write_launch(JsonWriter& json, const Launch& launch) {
  json.begin_object();
  json.field_or_null("source", launch.source);
  json.field("rank", launch.rank);
  json.field_or_null("world_size", launch.world_size >= 0, launch.world_size);
  json.field_or_null("local_rank", launch.local_rank >= 0, launch.local_rank);
  json.field_or_null("local_world_size", launch.local_world_size >= 0, launch.local_world_size);
  json.field_or_null("master_addr", launch.master_addr);
  json.field_or_null("master_addr_from", launch.master_addr_from);
  json.field_or_null("master_port", launch.master_port >= 0, launch.master_port);
  json.field_or_null("master_port_from", launch.master_port_from);
  json.field_or_null("job_id", launch.job_id);
  json.field_or_null("job_id_from", launch.job_id_from);
  json.field("agent_store", launch.agent_store);
  json.field_or_null("meeting", meeting_text(launch));
  json.field_or_null("meeting_from", launch.way_from);
  json.field_or_null("advice", launch.advice);
  json.end_object();
}

void write_error(JsonWriter& json, const LaunchFindings& findings) {
  json.begin_object();
  json.field_or_null("code", result_name(findings.code));
  json.field_or_null("text", findings.error);
  json.end_object();
}

}  // namespace

std::string launch_report(const LaunchFindings& findings) {
  JsonWriter json;
  json.begin_object();
  json.begin_array("sources");
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
