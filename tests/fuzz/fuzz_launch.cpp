// Every environment gives a valid launch, or an error that names what is wrong. The report agrees with the
// search, and rank and size are those of the first source that gives both.
#include <charconv>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "bootstrap/launcher.hpp"
#include "fuzz.hpp"

namespace dsc::fuzz {
namespace {

const char* const kOptions[] = {"rank",        "world_size", "local_rank", "port",     "sources",
                                "init_method", "job_id",     "has_store",  "has_token"};
const char* const kPmix[] = {"pmix_rank",       "pmix_size",  "pmix_local_rank",
                             "pmix_local_size", "pmix_hosts", "pmix_refuses"};

std::vector<std::string> variable_names() {
  std::vector<std::string> names = {"MASTER_ADDR",
                                    "MASTER_PORT",
                                    "DSC_JOB_ID",
                                    "DSC_TOKEN_FD",
                                    "DSC_TOKEN_FILE",
                                    "DSC_TOKEN",
                                    "DSC_ALLOW_UNAUTHENTICATED"};
  const Environment nothing = [](const char*) { return std::nullopt; };
  for (const Launcher& launcher : kLaunchers)
    for (const auto& [name, value] : row_variables(launcher, nothing)) names.push_back(name);
  return names;
}

const std::vector<std::string>& known_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = variable_names();
    all.insert(all.end(), std::begin(kOptions), std::end(kOptions));
    all.insert(all.end(), std::begin(kPmix), std::end(kPmix));
    all.push_back("is_local");
    all.push_back("is_loopback");
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }();
  return names;
}

// Returns the index of a name in known_names(), or their number if the name is unknown.
size_t place_of(std::string_view name) {
  static const std::unordered_map<std::string_view, size_t> places = [] {
    std::unordered_map<std::string_view, size_t> all;
    for (const std::string& known : known_names()) all.emplace(known, all.size());
    return all;
  }();
  const auto place = places.find(name);
  return place == places.end() ? known_names().size() : place->second;
}

// The input as lines NAME=VALUE. An unknown name is mapped to a known one.
class Setting {
 public:
  explicit Setting(Input input) : values_(known_names().size()) {
    while (!input.empty()) {
      Input line(input.until('\n'));
      const size_t place = known(line.until('='));
      const Bytes value = line.rest();
      values_[place] = value.substr(0, value.find('\0'));
    }
  }

  std::optional<std::string> find(std::string_view name) const {
    const size_t place = place_of(name);
    const bool is_set = place < values_.size() && values_[place] && !values_[place]->empty();
    return is_set ? values_[place] : std::nullopt;
  }

  int32_t number(const char* name, int32_t otherwise) const {
    const std::string text = find(name).value_or("");
    int32_t value = otherwise;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  const char* text(const char* name) const {
    const auto& value = values_[place_of(name)];
    return value ? value->c_str() : nullptr;
  }

 private:
  static size_t known(Bytes name) {
    if (const size_t place = place_of(name); place < known_names().size()) return place;
    size_t sum = 0;
    for (const char c : name) sum = sum * 31 + static_cast<uint8_t>(c);
    return sum % known_names().size();
  }

  std::vector<std::optional<std::string>> values_;  // in the order of known_names()
};

LaunchOptions options_of(const Setting& setting) {
  LaunchOptions options;
  options.init_method = setting.text("init_method");
  options.job_id = setting.text("job_id");
  options.rank = setting.number("rank", -1);
  options.world_size = setting.number("world_size", -1);
  options.local_rank = setting.number("local_rank", -1);
  options.port = setting.number("port", 0);
  options.has_store = setting.find("has_store").has_value();
  options.has_token = setting.find("has_token").has_value();
  options.sources = static_cast<uint32_t>(setting.number("sources", 0));
  return options;
}

// The answer of a PMIx server, limited to what ask_pmix() can return.
PmixJob answer_of_pmix(const Setting& setting) {
  if (setting.find("pmix_refuses")) throw Error(DSC_ERR_NO_BACKEND, "libpmix refuses");
  PmixJob job;
  job.size = std::max(1, setting.number("pmix_size", 1));
  job.rank = std::clamp(setting.number("pmix_rank", 0), 0, job.size - 1);
  job.local_size = std::clamp(setting.number("pmix_local_size", -1), -1, job.size);
  if (job.local_size == 0) job.local_size = -1;
  job.local_rank = std::clamp(setting.number("pmix_local_rank", -1), -1, std::max(job.local_size, 1) - 1);
  job.hosts = std::max(-1, setting.number("pmix_hosts", -1));
  return job;
}

// All inputs of the search, computed from one setting.
struct World {
  explicit World(const Setting& given) : setting(given) {}

  const Setting& setting;
  const LaunchOptions options = options_of(setting);
  const Environment environment = [this](const char* name) { return setting.find(name); };
  const LocateAddress locate = [this](const std::string&) {
    if (setting.find("is_loopback")) return AddressLocation::kLoopback;
    return setting.find("is_local") ? AddressLocation::kThisHost : AddressLocation::kElsewhere;
  };
  const AskPmix ask_pmix = [this] { return answer_of_pmix(setting); };
};

bool known_source(const std::string& source) {
  for (const Launcher& launcher : kLaunchers)
    if (source == launcher.name) return true;
  return source == "options" || source == "one process";
}

void check_launch(const Launch& launch) {
  FUZZ_REQUIRE(known_source(launch.source));
  FUZZ_REQUIRE(launch.world_size >= 1);
  FUZZ_REQUIRE(launch.local_world_size == -1 ||
               (launch.local_world_size >= 1 && launch.local_world_size <= launch.world_size));
  FUZZ_REQUIRE(launch.local_rank >= -1 && launch.local_rank < launch.world_size);
  if (launch.local_world_size > 0) FUZZ_REQUIRE(launch.local_rank < launch.local_world_size);
  if (launch.world_size == 1) FUZZ_REQUIRE(launch.rank == 0);
  FUZZ_REQUIRE(launch.master_port >= 1 && launch.master_port <= 65535);
  FUZZ_REQUIRE(!launch.master_addr.empty() && launch.master_addr != "localhost");
  FUZZ_REQUIRE(!launch.master_addr_from.empty() && !launch.master_port_from.empty());
  FUZZ_REQUIRE(launch.job_id.empty() || !launch.job_id_from.empty());
  FUZZ_REQUIRE(!launch.report.empty());
  FUZZ_REQUIRE((launch.way == MeetingWay::kNobody) == (launch.world_size == 1));
  const bool many = launch.local_world_size > 0 && launch.local_world_size < launch.world_size;
  if (many) FUZZ_REQUIRE(launch.way == MeetingWay::kTcp);
  if (launch.world_size > 1 && launch.local_world_size == launch.world_size)
    FUZZ_REQUIRE(launch.way == MeetingWay::kOneHost);
  if (launch.way != MeetingWay::kTcp) FUZZ_REQUIRE(launch.told_through.empty());
}

// The error must tell a user where to look.
void check_error(dsc_result_t code, const std::string& text) {
  FUZZ_REQUIRE(code == DSC_ERR_INVALID_ARG || code == DSC_ERR_CONFIG || code == DSC_ERR_UNSUPPORTED ||
               code == DSC_ERR_NO_BACKEND);
  const auto named = [&](const std::string& name) { return text.find(name) != std::string::npos; };
  FUZZ_REQUIRE(std::ranges::any_of(known_names(), named) || named("master address") || named("libpmix"));
}

std::optional<int32_t> whole_number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  return error == std::errc() && end == text->data() + text->size() ? std::optional(value) : std::nullopt;
}

// Checks that the rank is from the first source that gives one. Covers only the options and RANK with
// WORLD_SIZE.
void check_precedence(const World& world, const Launch& launch) {
  if (world.options.rank >= 0) {
    FUZZ_REQUIRE(launch.source == "options" && launch.rank == world.options.rank);
    return;
  }
  const auto rank = whole_number(world.environment("RANK")),
             size = whole_number(world.environment("WORLD_SIZE"));
  const bool only_pmix =
      world.options.init_method != nullptr && std::string_view(world.options.init_method) == "pmix://";
  const bool allowed = world.options.sources == 0 || (world.options.sources & DSC_SOURCE_ENV) != 0;
  if (!rank || !size || !allowed || only_pmix) return;
  FUZZ_REQUIRE(launch.rank == *rank && launch.world_size == *size);
  const std::string expected = world.environment("TORCHELASTIC_RUN_ID") ? "torchrun"
                               : world.environment("CROSS_SIZE")        ? "deepspeed"
                               : world.environment("DSC_LAUNCHER")      ? "dscrun"
                                                                        : "environment";
  FUZZ_REQUIRE(launch.source == expected);
}

void check_findings(const LaunchFindings& findings) {
  FUZZ_REQUIRE(findings.sources.size() == std::size(kLaunchers) + 2);
  for (size_t i = 0; i < std::size(kLaunchers); ++i)
    FUZZ_REQUIRE(findings.sources[1 + i].name == kLaunchers[i].name);
  size_t chosen = 0;
  for (const SourceFinding& source : findings.sources) {
    const bool is_chosen = source.state == SourceFinding::State::kChosen;
    FUZZ_REQUIRE(!source.name.empty());
    FUZZ_REQUIRE(is_chosen || !source.why.empty());
    if (is_chosen) FUZZ_REQUIRE(source.name == findings.launch.source);
    chosen += is_chosen;
  }
  FUZZ_REQUIRE(chosen <= 1 && (chosen == 1 || findings.code != DSC_OK));
}

}  // namespace

void fuzz_launch(Bytes bytes) {
  const Setting setting{Input(bytes)};
  const World world(setting);
  std::optional<Launch> launch;
  dsc_result_t code = DSC_OK;
  std::string text;
  capture([&] { launch = find_launch(world.options, world.environment, world.locate, world.ask_pmix); },
          [&](dsc_result_t failed, const char* why) {
            code = failed;
            text = why;
          });
  if (launch) {
    check_launch(*launch);
    check_precedence(world, *launch);
  } else {
    check_error(code, text);
  }
  const LaunchFindings findings =
      explain_launch(world.options, world.environment, world.locate, world.ask_pmix);
  check_findings(findings);
  // A rank outside of its world is an error only in the report. Ranks that start detect it when they meet.
  const bool outside = launch && (launch->rank < 0 || launch->rank >= launch->world_size);
  FUZZ_REQUIRE(findings.code == (outside ? DSC_ERR_CONFIG : code));
  if (!outside) FUZZ_REQUIRE(findings.error == text);
  if (launch) FUZZ_REQUIRE(findings.has_address && findings.launch.report.starts_with(launch->report));
}

}  // namespace dsc::fuzz
