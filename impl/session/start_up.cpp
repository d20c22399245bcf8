#include "session/start_up.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/log_rank.hpp"
#include "bootstrap/host_identity.hpp"
#include "bootstrap/launch_report.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/local_address.hpp"
#include "engine_host/host_engine.hpp"
#include "session/engine_table.hpp"

namespace dsc {
namespace {

constexpr int kPmixPatienceMs = 10'000;          // short, because the PMIx server runs on this host
constexpr size_t kMostTraceEntries = 1'000'000;  // this many entries take 122 MiB per group

void check_range(const char* name, int64_t value, int64_t least, int64_t most, const char* expected) {
  if (value < least || value > most)
    fail(DSC_ERR_INVALID_ARG, "options->%s is %lld, expected %s", name, static_cast<long long>(value),
         expected);
}

void check_settings(const std::map<std::string, std::string>& settings) {
  for (const auto& [name, value] : settings)
    if (value.empty())
      fail(DSC_ERR_INVALID_ARG, "setting %s is empty, expected a file or NULL", name.c_str());
}

bool may_use_device(const InitOptions& options) {
  return !device_libraries().empty() &&
         (options.backend == DSC_BACKEND_AUTO || options.backend == DSC_BACKEND_DEVICE);
}

LaunchOptions launch_options(const InitOptions& options) {
  LaunchOptions launch;
  launch.init_method = options.init_method ? options.init_method->c_str() : nullptr;
  launch.job_id = options.job_id ? options.job_id->c_str() : nullptr;
  launch.rank = options.rank;
  launch.world_size = options.world_size;
  launch.local_rank = options.local_rank;
  launch.port = options.port;
  launch.sources = options.sources;
  launch.has_token = options.token.has_value();
  launch.has_store = options.store != nullptr;
  return launch;
}

std::string advice(const InitOptions& options, const Launch& launch, const Environment& environment,
                   Deadline deadline) {
  std::string text;
  if (!may_use_device(options)) return text;
  for (const DeviceLibrary& library : device_libraries())
    if (text.empty()) text = library.advice(launch, environment, deadline);
  return text;
}

const char* backend_name(int32_t backend) {
  constexpr std::array kNames = {"auto", "host", "device", "inter_host"};
  static_assert(kNames.size() == DSC_BACKEND_INTER_HOST + 1);
  return kNames[static_cast<size_t>(backend)];
}

// Returns the settings that must be equal on all ranks, as one text.
std::string config_text(const InitOptions& options, const TuningOverrides& tuning) {
  std::string text = "backend=" + std::to_string(options.backend) +
                     ";timeout_ms=" + std::to_string(options.timeout_ms) +
                     ";stall_timeout_ms=" + std::to_string(options.stall_timeout_ms) +
                     ";rank_per_thread=" + std::to_string(options.rank_per_thread);
  if (!tuning.empty()) text += ";DSC_TUNING=" + tuning_text(tuning);
  return text;
}

TraceSettings trace_settings(const Environment& environment) {
  TraceSettings trace;
  trace.folder = environment("DSC_TRACE_DIR").value_or("");
  const auto given = environment("DSC_TRACE_BUFFER_SIZE");
  if (!given) return trace;
  const char* end = given->data() + given->size();
  const auto [stop, error] = std::from_chars(given->data(), end, trace.entries);
  if (error != std::errc{} || stop != end || trace.entries > kMostTraceEntries)
    fail(DSC_ERR_CONFIG,
         "DSC_TRACE_BUFFER_SIZE is '%.60s', expected a number of operations from 0 (off) to %zu",
         given->c_str(), kMostTraceEntries);
  return trace;
}

HostGroupSettings host_group_settings(const InitOptions& options, const Launch& launch,
                                      const Environment& environment, uint32_t library_version,
                                      Deadline deadline) {
  HostGroupSettings settings;
  settings.stall_timeout_ms = options.stall_timeout_ms;
  settings.tuning = parse_tuning(environment("DSC_TUNING").value_or(""));
  settings.trace = trace_settings(environment);
  MeetingSettings& meeting = settings.meeting;
  meeting.master_addr = launch.master_addr;
  meeting.master_port = launch.master_port;
  meeting.job_id = launch.job_id;
  meeting.rank = launch.rank;
  meeting.world_size = launch.world_size;
  meeting.local_rank = launch.local_rank;
  meeting.library_version = library_version;
  meeting.host = host_identity(environment);
  if (launch.way == MeetingWay::kTcp) meeting.host_name = host_name(environment);
  meeting.config = config_text(options, settings.tuning);
  meeting.deadline = deadline;
  return settings;
}

std::shared_ptr<HostGroup> join_host_group(const InitOptions& options, const Launch& launch,
                                           const HostGroupSettings& settings,
                                           std::shared_ptr<JobStore>& job) {
  if (launch.way != MeetingWay::kTcp) return HostGroup::join(settings);
  RendezvousSettings rendezvous;
  rendezvous.launch = launch;
  rendezvous.environment = process_environment();
  rendezvous.token = options.token ? options.token->c_str() : nullptr;
  rendezvous.out_of_band = options.store;
  return HostGroup::join(settings, [&](const MeetingSettings& meeting) {
    Rendezvous done = meet_through_tcp(rendezvous, meeting);
    job = std::move(done.job);
    return std::move(done.met);
  });
}

std::shared_ptr<WorldInfo> describe_world(const InitOptions& options, const Launch& launch,
                                          const HostGroup& host) {
  auto info = std::make_shared<WorldInfo>();
  info->world_size = launch.world_size;
  info->local_rank = host.members()[static_cast<size_t>(host.rank())].local_rank;
  info->local_size = host.size();
  info->master_addr = launch.master_addr;
  info->master_port = launch.master_port;
  info->source = launch.source;
  info->report = launch.report;
  info->progress_thread = options.progress_thread != 0;
  return info;
}

}  // namespace

void check_options(const InitOptions& options) {
  constexpr int64_t kMost = INT32_MAX;
  check_range("backend", options.backend, DSC_BACKEND_AUTO, DSC_BACKEND_INTER_HOST,
              "0 (auto), 1 (host), 2 (device) or 3 (inter_host)");
  check_range("rank", options.rank, -1, kMost, "0 or more, or -1 for the environment's");
  if (options.world_size != -1)
    check_range("world_size", options.world_size, 1, kMost, "1 or more, or -1 for the environment's");
  check_range("local_rank", options.local_rank, -1, kMost, "0 or more, or -1 for the environment's");
  check_range("device", options.device, -1, kMost,
              "0 or more, or -1 for the device that the backend chooses");
  check_range("port", options.port, 0, 65535, "1 to 65535, or 0 for MASTER_PORT");
  check_range("sources", options.sources, 0, 31, "bits of dsc_source, or 0 for all");
  check_range("require_existing", options.require_existing, 0, 1, "0 or 1");
  check_range("rank_per_thread", options.rank_per_thread, 0, 1, "0 or 1");
  check_range("init_timeout_ms", options.init_timeout_ms, 1, kMost, "1 or more");
  check_range("timeout_ms", options.timeout_ms, 1, kMost, "1 or more");
  check_range("stall_timeout_ms", options.stall_timeout_ms, 0, kMost, "1 or more, or 0 for never");
  check_range("progress_thread", options.progress_thread, 0, 1, "0 or 1");
  check_settings(options.device_settings);
  if (device_libraries().empty() && (options.backend == DSC_BACKEND_DEVICE || options.device >= 0))
    fail(
        DSC_ERR_UNSUPPORTED,
        "this library was built without an engine for devices: expected backend auto or host, and no device");
  if (options.device >= 0 && options.backend != DSC_BACKEND_AUTO && options.backend != DSC_BACKEND_DEVICE)
    fail(DSC_ERR_INVALID_ARG,
         "options->device is %d, but options->backend %d uses no device; expected 0 (auto) or 2 (device) "
         "with a device",
         options.device, options.backend);
}

std::optional<std::string> first_difference(const InitOptions& world, const InitOptions& wanted) {
  const InitOptions unset;
  const auto differs = [&](auto InitOptions::*option) {
    return wanted.*option != unset.*option && wanted.*option != world.*option;
  };
  for (const auto& [name, value] : wanted.device_settings)
    if (const auto found = world.device_settings.find(name);
        found == world.device_settings.end() || found->second != value)
      return name;
  if (differs(&InitOptions::init_method)) return "init_method";
  if (differs(&InitOptions::job_id)) return "job_id";
  if (differs(&InitOptions::token)) return "token";
  if (differs(&InitOptions::store_handle)) return "store";
  if (differs(&InitOptions::backend)) return "backend";
  if (differs(&InitOptions::rank)) return "rank";
  if (differs(&InitOptions::world_size)) return "world_size";
  if (differs(&InitOptions::local_rank)) return "local_rank";
  if (differs(&InitOptions::device)) return "device";
  if (differs(&InitOptions::port)) return "port";
  if (differs(&InitOptions::sources)) return "sources";
  if (differs(&InitOptions::rank_per_thread)) return "rank_per_thread";
  if (differs(&InitOptions::init_timeout_ms)) return "init_timeout_ms";
  if (differs(&InitOptions::timeout_ms)) return "timeout_ms";
  if (differs(&InitOptions::stall_timeout_ms)) return "stall_timeout_ms";
  if (differs(&InitOptions::progress_thread)) return "progress_thread";
  return std::nullopt;
}

std::string explain_start(const InitOptions& options) {
  check_options(options);
  const Environment environment = process_environment();
  const Deadline deadline = Deadline::after_ms(std::min(options.init_timeout_ms, kPmixPatienceMs));
  LaunchFindings findings = explain_launch(
      launch_options(options), environment,
      [deadline](const std::string& address) { return locate_address(address, deadline); },
      [&] { return ask_pmix(environment, deadline); });
  findings.launch.advice = advice(options, findings.launch, environment, deadline);
  return launch_report(findings);
}

std::shared_ptr<Comm> start_world(const InitOptions& options, uint32_t library_version) {
  const Deadline deadline = Deadline::after_ms(options.init_timeout_ms);
  const Environment environment = process_environment();
  Launch launch = find_launch(
      launch_options(options), environment,
      [deadline](const std::string& address) { return locate_address(address, deadline); },
      [&] { return ask_pmix(environment, sooner(deadline, Deadline::after_ms(kPmixPatienceMs))); });
  launch.advice = advice(options, launch, environment, deadline);
  if (!launch.advice.empty()) launch.report += "\nadvice: " + launch.advice;
  set_log_rank(launch.rank, options.rank_per_thread != 0);
  log(DSC_LOG_LEVEL_DEBUG, "start-up: %s", launch.report.c_str());
  std::shared_ptr<JobStore> job;
  const auto host = join_host_group(
      options, launch, host_group_settings(options, launch, environment, library_version, deadline), job);
  std::vector<int32_t> everybody(static_cast<size_t>(host->size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  auto group = Group::create(host, kWorldId, "world", std::move(everybody));
  auto local =
      HostEngine::create_world(group, describe_world(options, launch, *host), options.timeout_ms, deadline);
  Engines engines;
  engines.group = open_group_engine(
      {host, std::move(local), std::move(job), options.backend, options.stall_timeout_ms, deadline});
  if (may_use_device(options)) {
    // If binding fails, the program may start again immediately with the same name.
    host->set_tentative(true);
    const DeviceRequest request{options.backend == DSC_BACKEND_DEVICE, options.device,
                                options.device_settings};
    for (const DeviceLibrary& library : device_libraries())
      if (!engines.device) engines.device = library.bind(engines.group, request, environment, deadline);
    host->set_tentative(false);
  }
  auto comm = std::make_shared<Comm>(std::move(engines));
  log(DSC_LOG_LEVEL_INFO, "rank %d of %d is ready (%s, %s:%d)", launch.rank, launch.world_size,
      launch.source.c_str(), launch.master_addr.c_str(), launch.master_port);
  if (launch.rank == 0)
    log(DSC_LOG_LEVEL_INFO, "distributed backend: %s (asked for: %s)", backend_name(comm->backend()),
        backend_name(options.backend));
  return comm;
}

}  // namespace dsc
