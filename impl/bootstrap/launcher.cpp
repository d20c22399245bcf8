#include "bootstrap/launcher.hpp"

#include <iterator>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "bootstrap/init_method.hpp"
#include "bootstrap/master_address.hpp"

namespace dsc {
namespace {

constexpr uint32_t kAllSources =
    DSC_SOURCE_OPTIONS | DSC_SOURCE_ENV | DSC_SOURCE_PMIX | DSC_SOURCE_LAUNCHER | DSC_SOURCE_SINGLE;

constexpr const char* kOneProcess = "one process";

void check_options(const LaunchOptions& options) {
  if ((options.sources & ~kAllSources) != 0)
    fail(DSC_ERR_INVALID_ARG, "options->sources is 0x%x, expected bits of 0x%x", options.sources,
         kAllSources);
  if (options.rank < -1)
    fail(DSC_ERR_INVALID_ARG, "options->rank is %d, expected 0 or more, or -1", options.rank);
  if (options.world_size == 0 || options.world_size < -1)
    fail(DSC_ERR_INVALID_ARG, "options->world_size is %d, expected 1 or more, or -1", options.world_size);
  if (options.local_rank < -1)
    fail(DSC_ERR_INVALID_ARG, "options->local_rank is %d, expected 0 or more, or -1", options.local_rank);
  if (options.port < 0 || options.port > 65535)
    fail(DSC_ERR_INVALID_ARG, "options->port is %d, expected 1 to 65535, or 0", options.port);
  const bool rank_given = options.rank >= 0;
  const bool size_given = options.world_size >= 0;
  if (rank_given != size_given)
    fail(DSC_ERR_CONFIG, "options->%s is given without options->%s: give both or neither",
         rank_given ? "rank" : "world_size", rank_given ? "world_size" : "rank");
  if (rank_given && options.sources != 0 && (options.sources & DSC_SOURCE_OPTIONS) == 0)
    fail(DSC_ERR_INVALID_ARG,
         "options->rank and options->world_size are given, but options->sources (0x%x) excludes "
         "DSC_SOURCE_OPTIONS",
         options.sources);
  if (options.init_method != nullptr && options.init_method == kPmixMethod && options.sources != 0 &&
      (options.sources & DSC_SOURCE_PMIX) == 0)
    fail(DSC_ERR_INVALID_ARG,
         "options->init_method is pmix://, but options->sources (0x%x) excludes DSC_SOURCE_PMIX",
         options.sources);
}

using State = SourceFinding::State;

// One search for the source of rank and world size.
class Search {
 public:
  Search(const LaunchOptions& options, const Environment& environment, const LocateAddress& locate,
         const AskPmix& ask_pmix, LaunchFindings& findings)
      : options_(options),
        environment_(environment),
        locate_(locate),
        ask_pmix_(ask_pmix),
        findings_(findings),
        launch_(findings.launch) {}

  void run();
  // Examines the sources that run() did not need, for the report.
  void look_at_the_rest();

 private:
  void find_rank_and_size();
  bool offers(const Launcher& launcher);
  void take(const Launcher& launcher, const RowFindings& row);
  bool pmix_offers(const Launcher& launcher);
  std::optional<PmixJob> ask_pmix();
  void nobody_offers();
  void check_local() const;
  void find_job_id();
  void find_address();
  HostSource launchers_master() const;
  SourceFinding look_at(const Launcher& launcher) const;
  std::string not_needed() const {
    return launch_.source.empty() ? "not reached" : launch_.source + " has priority";
  }
  void find_way();
  std::optional<bool> has_many_hosts(std::string& why) const;
  std::string told_through() const;
  bool has_token() const;
  bool excluded(const Launcher& launcher) const {
    return options_.sources != 0 && (options_.sources & launcher.source) == 0;
  }
  void note(const std::string& name, State state, const std::string& why = "");
  void tell(const std::string& line) { launch_.report += (launch_.report.empty() ? "" : "\n") + line; }

  LaunchOptions options_;
  const Environment& environment_;
  const LocateAddress& locate_;
  const AskPmix& ask_pmix_;
  LaunchFindings& findings_;
  Launch& launch_;
  // The launcher that provided rank and world size; null if there was none.
  const Launcher* winner_ = nullptr;
  RowFindings row_;                  // the numbers that winner_ provided
  dsc_result_t pmix_code_ = DSC_OK;  // why the query to the PMIx server failed
  std::string pmix_text_;
  std::string half_set_;  // error text for a launcher that set only one of rank and world size
};

void Search::note(const std::string& name, State state, const std::string& why) {
  findings_.sources.push_back({name, state, why, {}});
  if (!why.empty() && state != State::kBeaten) tell(name + ": " + why);
}

// Fills launch_ step by step, so that the report of a failed search contains what was found until then.
void Search::run() {
  check_options(options_);
  if (options_.init_method != nullptr && options_.init_method == kPmixMethod)
    options_.sources = DSC_SOURCE_PMIX;
  find_rank_and_size();
  if (options_.local_rank >= 0) launch_.local_rank = options_.local_rank;
  check_local();
  find_job_id();
  find_address();
  findings_.has_address = true;
  find_way();
  tell("chosen: rank " + std::to_string(launch_.rank) + " of " + std::to_string(launch_.world_size) +
       " from " + launch_.source + "; meeting at " + launch_.master_addr + ":" +
       std::to_string(launch_.master_port) + (launch_.job_id.empty() ? "" : ", job " + launch_.job_id));
}

void Search::find_rank_and_size() {
  if (options_.rank >= 0) {
    launch_.rank = options_.rank;
    launch_.world_size = options_.world_size;
    launch_.source = "options";
    return note("options", State::kChosen);
  }
  note("options", State::kAbsent, "rank and world_size are not given");
  for (const Launcher& launcher : kLaunchers)
    if (offers(launcher)) return;
  nobody_offers();
}

// Takes rank and world size from this launcher if it provides both.
bool Search::offers(const Launcher& launcher) {
  const auto pass = [&](State state, const std::string& why) {
    return note(launcher.name, state, why), false;
  };
  if (excluded(launcher)) return pass(State::kExcluded, "excluded by sources");
  if (launcher.source == DSC_SOURCE_PMIX && environment_(launcher.only_with)) return pmix_offers(launcher);
  const RowFindings row = read_row(launcher, environment_);
  if (row.missing.empty()) return take(launcher, row), true;
  // A user who sets only one of RANK and WORLD_SIZE has forgotten the other one. Incomplete variables of
  // other launchers are an error only if no source is complete.
  if (row.half_set && launcher.source == DSC_SOURCE_ENV) fail(DSC_ERR_CONFIG, "%s", row.missing.c_str());
  if (half_set_.empty() && row.half_set) half_set_ = std::string(launcher.name) + ": " + row.missing;
  return pass(row.half_set ? State::kIncomplete : State::kAbsent, row.missing);
}

void Search::take(const Launcher& launcher, const RowFindings& row) {
  winner_ = &launcher;
  row_ = row;
  launch_.rank = row.rank.value;
  launch_.world_size = row.world_size.value;
  launch_.local_rank = row.local_rank.value;
  launch_.local_world_size = row.local_world_size.value;
  launch_.source = launcher.name;
  note(launcher.name, State::kChosen);
}

// A PMIx server that does not answer is skipped if another source provides rank and world size.
std::optional<PmixJob> Search::ask_pmix() {
  std::optional<PmixJob> job;
  capture([&] { job = ask_pmix_(); },
          [&](dsc_result_t code, const char* text) {
            pmix_code_ = code;
            pmix_text_ = text;
          });
  return job;
}

bool Search::pmix_offers(const Launcher& launcher) {
  const auto job = ask_pmix();
  if (!job) return note(launcher.name, State::kFailed, pmix_text_), false;
  winner_ = &launcher;
  launch_.rank = job->rank;
  launch_.world_size = job->size;
  launch_.local_rank = job->local_rank;
  launch_.local_world_size = job->local_size;
  launch_.source = launcher.name;
  if (job->hosts >= 1) row_.hosts = {"the number of hosts", job->hosts};
  note(launcher.name, State::kChosen, "the server was asked through " + job->version);
  return true;
}

// Assumes a world of one process, unless something shows that this process belongs to a larger job.
void Search::nobody_offers() {
  if (!half_set_.empty()) fail(DSC_ERR_CONFIG, "%s", half_set_.c_str());
  if (pmix_code_ != DSC_OK)
    fail(pmix_code_,
         "only PMIx shows that this process is a rank of a job, but %.400s; set RANK and WORLD_SIZE, or "
         "exclude PMIx from options->sources",
         pmix_text_.c_str());
  if (options_.sources != 0 && (options_.sources & DSC_SOURCE_SINGLE) == 0)
    fail(DSC_ERR_CONFIG, "no source that options->sources allows gives the rank and the world size: %s",
         launch_.report.c_str());
  launch_.local_rank = 0;
  launch_.local_world_size = 1;
  launch_.source = kOneProcess;
  note(kOneProcess, State::kChosen);
}

// Returns what is known of a source that the search did not need.
SourceFinding Search::look_at(const Launcher& launcher) const {
  SourceFinding finding{launcher.name, State::kAbsent, "", {}};
  capture(
      [&] {
        const RowFindings row = read_row(launcher, environment_);
        finding.why = row.missing;
        if (row.half_set) finding.state = State::kIncomplete;
      },
      [&](dsc_result_t, const char* text) {
        finding.state = State::kFailed;
        finding.why = text;
      });
  if (excluded(launcher)) finding = {finding.name, State::kExcluded, "excluded by sources", {}};
  const bool is_pmix = launcher.source == DSC_SOURCE_PMIX && environment_(launcher.only_with);
  if (finding.state == State::kAbsent && (finding.why.empty() || is_pmix)) {
    finding.state = State::kBeaten;
    finding.why = not_needed();
  }
  return finding;
}

void Search::look_at_the_rest() {
  if (findings_.sources.empty()) note("options", State::kFailed, findings_.error);
  for (size_t i = findings_.sources.size() - 1; i < std::size(kLaunchers); ++i)
    findings_.sources.push_back(look_at(kLaunchers[i]));
  for (size_t i = 0; i < std::size(kLaunchers); ++i)
    findings_.sources[1 + i].variables = row_variables(kLaunchers[i], environment_);
  if (launch_.source == kOneProcess) return;
  if (options_.sources != 0 && (options_.sources & DSC_SOURCE_SINGLE) == 0)
    note(kOneProcess, State::kExcluded, "excluded by sources");
  else
    note(kOneProcess, State::kBeaten, not_needed());
}

// Checks the local rank. A rank outside the world is not checked here, because the meeting reports it to all
// ranks. A world of one rank has no meeting, so there it is checked.
void Search::check_local() const {
  const auto name_of = [](const Finding& found, const char* other) { return found ? found.variable : other; };
  const bool known = launch_.local_world_size >= 0;
  const int32_t limit = known ? launch_.local_world_size : launch_.world_size;
  if (launch_.local_rank >= limit)
    fail(DSC_ERR_CONFIG, "%s is %d, expected 0 to %d (%s is %d)",
         options_.local_rank >= 0 ? "options->local_rank" : name_of(row_.local_rank, "local_rank"),
         launch_.local_rank, limit - 1,
         known ? name_of(row_.local_world_size, "the number of ranks on this host")
               : name_of(row_.world_size, "world_size"),
         limit);
  if (launch_.world_size == 1 && launch_.rank != 0)
    fail(DSC_ERR_CONFIG, "%s is %d, expected 0 (%s is 1)", name_of(row_.rank, "options->rank"), launch_.rank,
         name_of(row_.world_size, "world_size"));
}

void Search::find_job_id() {
  if (options_.job_id != nullptr) {
    launch_.job_id = options_.job_id;
    launch_.job_id_from = "option job_id";
  } else if (const auto chosen = environment_("DSC_JOB_ID")) {
    launch_.job_id = *chosen;
    launch_.job_id_from = "DSC_JOB_ID";
  } else if (winner_ != nullptr) {
    launch_.job_id = row_job_id(*winner_, environment_);
    if (!launch_.job_id.empty()) launch_.job_id_from = winner_->name;
  }
}

// PMIx provides rank and world size, but no address. Another launcher in the table with the same rank and
// world size describes the same job, so its address is used.
HostSource Search::launchers_master() const {
  const bool one_host = launch_.local_world_size == launch_.world_size;
  for (const Launcher& launcher : kLaunchers) {
    const bool is_winner = &launcher == winner_;
    if (launcher.master.variable == nullptr || excluded(launcher)) continue;
    if (!is_winner && (winner_ == nullptr || winner_->source != DSC_SOURCE_PMIX)) continue;
    const RowFindings row = is_winner ? row_ : read_row(launcher, environment_);
    if (!row.missing.empty() || row.rank.value != launch_.rank || row.world_size.value != launch_.world_size)
      continue;
    return one_host && launcher.one_host_master.variable != nullptr ? launcher.one_host_master
                                                                    : launcher.master;
  }
  return {};
}

void Search::find_address() {
  const MasterFinding found =
      find_master(options_.init_method, options_.port, environment_, launchers_master());
  launch_.master_addr = found.host;
  launch_.master_addr_from = found.host_from;
  launch_.master_port = found.port;
  launch_.master_port_from = found.port_from;
  launch_.agent_store = winner_ != nullptr && winner_->agent_store != nullptr &&
                        environment_(winner_->agent_store) == "True" && found.port_from == "MASTER_PORT";
}

// Returns whether the job has several hosts, and sets `why` to the reason. Returns nullopt if this is
// unknown.
std::optional<bool> Search::has_many_hosts(std::string& why) const {
  const auto say = [](const Finding& found, const char* other, int32_t value) {
    return std::string(found ? found.variable : other) + " is " + std::to_string(value);
  };
  if (launch_.local_world_size >= 0 && launch_.local_world_size <= launch_.world_size) {
    why = say(row_.local_world_size, "local_world_size", launch_.local_world_size) + ", " +
          say(row_.world_size, "world_size", launch_.world_size);
    return launch_.local_world_size < launch_.world_size;
  }
  if (!row_.hosts) return std::nullopt;
  why = say(row_.hosts, "hosts", row_.hosts.value);
  return row_.hosts.value > 1;
}

std::string Search::told_through() const {
  const std::string_view method = options_.init_method == nullptr ? "" : options_.init_method;
  if (options_.has_store) return "the given store";
  if (method.starts_with(kFileMethod)) return std::string(method.substr(kFileMethod.size() - 1));
  if (launch_.agent_store) return "the store of torchrun's agent";
  return winner_ != nullptr && winner_->source == DSC_SOURCE_PMIX ? "PMIx" : "";
}

// Returns whether there is a token. Without a token, TCP is refused except on loopback.
bool Search::has_token() const {
  for (const char* variable : {"DSC_TOKEN_FD", "DSC_TOKEN_FILE", "DSC_TOKEN"})
    if (environment_(variable)) return true;
  return options_.has_token || environment_("DSC_ALLOW_UNAUTHENTICATED") == "1";
}

// Chooses how the ranks meet. If no source provides the number of hosts, ranks meet over TCP if the caller
// has given a store or a file:// init method. Otherwise the address of rank 0 and the token decide.
void Search::find_way() {
  if (launch_.world_size == 1) return;
  const auto take = [this](MeetingWay way, const std::string& why) {
    launch_.way = way;
    launch_.way_from = why;
    if (way == MeetingWay::kTcp) launch_.told_through = told_through();
  };
  std::string why;
  if (const auto many = has_many_hosts(why)) {
    if (*many && launch_.master_addr_from == "default" && told_through().empty())
      fail(DSC_ERR_CONFIG,
           "the job has several hosts (%s), but the address of rank 0 is not known: set MASTER_ADDR",
           why.c_str());
    return take(*many ? MeetingWay::kTcp : MeetingWay::kOneHost, why);
  }
  const std::string through = told_through();
  if (options_.has_store || (!through.empty() && through.front() == '/'))
    return take(MeetingWay::kTcp,
                "the number of hosts is not known, and the address is exchanged through " + through);
  const std::string address = "the master address " + launch_.master_addr;
  switch (locate_(launch_.master_addr)) {
    case AddressLocation::kElsewhere:
      return take(MeetingWay::kTcp, address + " is that of another host");
    case AddressLocation::kLoopback:
      return take(MeetingWay::kOneHost, address + " is loopback");
    case AddressLocation::kThisHost:
      if (has_token())
        return take(MeetingWay::kTcp, address + " can be reached from other hosts, and there is a token");
      return take(MeetingWay::kOneHost, address + " is that of this host, and no other hosts are known");
  }
}

}  // namespace

Launch find_launch(const LaunchOptions& options, const Environment& environment, const LocateAddress& locate,
                   const AskPmix& ask_pmix) {
  LaunchFindings findings;
  Search(options, environment, locate, ask_pmix, findings).run();
  return std::move(findings.launch);
}

LaunchFindings explain_launch(const LaunchOptions& options, const Environment& environment,
                              const LocateAddress& locate, const AskPmix& ask_pmix) {
  LaunchFindings findings;
  Search search(options, environment, locate, ask_pmix, findings);
  capture([&] { search.run(); },
          [&](dsc_result_t code, const char* text) {
            findings.code = code;
            findings.error = text;
          });
  // In a real start the meeting reports a rank outside the world to all ranks. A report without a meeting has
  // to check it here.
  const Launch& launch = findings.launch;
  if (findings.code == DSC_OK && (launch.rank < 0 || launch.rank >= launch.world_size)) {
    findings.code = DSC_ERR_CONFIG;
    findings.error = "rank " + std::to_string(launch.rank) + " is outside its world: expected 0 to " +
                     std::to_string(launch.world_size - 1);
  }
  search.look_at_the_rest();
  return findings;
}

}  // namespace dsc
