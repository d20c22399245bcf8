#include "dscctl/launch.hpp"

#include "dsc/init.h"
#include "dscctl/library_text.hpp"

namespace dscctl {
namespace {

std::string padded(const std::string& text, size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

// Returns the variables of the chosen source; JSON's null if no source was chosen.
Json chosen_variables(const Json& sources) {
  for (const Json& source : sources)
    if (source["state"] == "chosen") return source["variables"];
  return nullptr;
}

std::string format_source(const Json& source, const Json& chosen) {
  const std::string state = source["state"];
  std::string text = (state == "chosen" ? "* " : "  ") + padded(source["name"], 16) + padded(state, 12) +
                     (source["why"].is_null() ? "" : source["why"].get<std::string>());
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n";
  // Variables of an absent source can be set if it shares them with another source, which then shows them.
  if (state == "absent") return text;
  std::string missing;
  for (const auto& [name, value] : source["variables"].items()) {
    if (value.is_string() && (state == "chosen" || !chosen.contains(name)))
      text += "      " + name + " = " + value.get<std::string>() + "\n";
    if (value.is_null()) missing += (missing.empty() ? "" : ", ") + name;
  }
  // Variables that are not set are shown only for the launcher that was chosen.
  if (!missing.empty() && state == "chosen") text += "      not set: " + missing + "\n";
  return text;
}

std::string format_local_rank(const Json& start) {
  const Json &rank = start["local_rank"], &size = start["local_world_size"];
  if (rank.is_null()) return "known when all ranks have joined";
  return rank.dump() + (size.is_null() ? "" : " of " + size.dump());
}

std::string format_start(const Json& start) {
  if (start.is_null()) return "";
  const auto line = [](const char* name, const std::string& value, const Json& from) {
    return "  " + padded(name, 18) + value +
           (from.is_null() ? "" : " (from " + from.get<std::string>() + ")") + "\n";
  };
  const auto text_or = [](const Json& value, const char* without) {
    return value.is_null() ? without : value.get<std::string>();
  };
  return line("rank", start["rank"].dump() + " of " + start["world_size"].dump(), start["source"]) +
         line("local rank", format_local_rank(start), nullptr) +
         line("address", start["master_addr"], start["master_addr_from"]) +
         line("port", start["master_port"].dump(), start["master_port_from"]) +
         (start["agent_store"]
              ? line("", "the agent of torchrun listens on this port, with its own store", nullptr)
              : "") +
         line("job id", text_or(start["job_id"], "none"), start["job_id_from"]) +
         line("meeting", text_or(start["meeting"], "unknown"), nullptr) +
         (start["advice"].is_null() ? "" : line("advice", start["advice"], nullptr));
}

}  // namespace

Json collect_launch() {
  return Json::parse(library_text([](char* text, size_t capacity, size_t* bytes) {
    return dsc_launch_json(nullptr, text, capacity, bytes);
  }));
}

std::string format_launch(const Json& launch) {
  std::string text = "sources of rank and size, in order\n";
  const Json chosen = chosen_variables(launch["sources"]);
  for (const Json& source : launch["sources"]) text += format_source(source, chosen);
  const Json& error = launch["error"];
  text += error.is_null() ? "init would join\n" : "init would fail\n";
  if (!error.is_null())
    text += "  " + error["code"].get<std::string>() + ": " + error["text"].get<std::string>() + "\n";
  return text + format_start(launch["start"]);
}

}  // namespace dscctl
