#include "bootstrap/launcher.hpp"

#include <charconv>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "bootstrap/init_method.hpp"
#include "bootstrap/launcher_table.hpp"

namespace dsc {
namespace {

constexpr uint32_t kAllSources =
    DSC_SOURCE_OPTIONS | DSC_SOURCE_ENV | DSC_SOURCE_PMIX | DSC_SOURCE_LAUNCHER | DSC_SOURCE_SINGLE;

void check_options(const LaunchOptions& options) {
  if ((options.sources & ~kAllSources) != 0)
    fail(DSC_ERR_INVALID_ARG, "sources is 0x%x, expected bits of 0x%x", options.sources, kAllSources);
  if (options.rank < -1) fail(DSC_ERR_INVALID_ARG, "rank is %d, expected 0 or more, or -1", options.rank);
  if (options.world_size == 0 || options.world_size < -1)
    fail(DSC_ERR_INVALID_ARG, "world_size is %d, expected 1 or more, or -1", options.world_size);
  if (options.local_rank < -1)
    fail(DSC_ERR_INVALID_ARG, "local_rank is %d, expected 0 or more, or -1", options.local_rank);
  if (options.port < 0 || options.port > 65535)
    fail(DSC_ERR_INVALID_ARG, "port is %d, expected 1 to 65535, or 0", options.port);
  const bool rank_given = options.rank >= 0;
  const bool size_given = options.world_size >= 0;
  if (rank_given != size_given)
    fail(DSC_ERR_CONFIG, "option %s is given without %s: give both or none",
         rank_given ? "rank" : "world_size", rank_given ? "world_size" : "rank");
  if (rank_given && options.sources != 0 && (options.sources & DSC_SOURCE_OPTIONS) == 0)
    fail(DSC_ERR_INVALID_ARG, "rank and world_size are given, but sources (0x%x) excludes the options",
         options.sources);
}

// One search through the sources.
class Search {
 public:
  Search(const LaunchOptions& options, const Environment& environment, const IsLocalAddress& is_local,
         const AskPmix& ask_pmix)
      : options_(options), environment_(environment), is_local_(is_local), ask_pmix_(ask_pmix) {}

  Launch run() {
    check_options(options_);
    find_rank_and_size();
    if (options_.local_rank >= 0) launch_.local_rank = options_.local_rank;
    check_local();
    find_job_id();
    find_address();
    check_one_host();
    note("chosen: rank " + std::to_string(launch_.rank) + " of " + std::to_string(launch_.world_size) +
         " from " + launch_.source + "; meeting at " + launch_.master_addr + ":" +
         std::to_string(launch_.master_port) + (launch_.job_id.empty() ? "" : ", job " + launch_.job_id));
    return std::move(launch_);
  }

 private:
  void find_rank_and_size();
  bool offers(const Launcher& launcher);
  void take(const Launcher& launcher, int32_t rank, int32_t size);
  void take_local(const Launcher& launcher);
  bool pmix_offers(const Launcher& launcher);
  std::optional<PmixJob> ask_pmix();
  void nobody_offers();
  void check_local() const;
  void find_job_id();
  void find_address();
  MasterAddress default_address() const;
  void check_one_host() const;
  std::optional<int32_t> number(const char* name) const;
  const char* name_or(const char* Launcher::*variable, const char* option) const;
  void note(const std::string& line) { launch_.report += (launch_.report.empty() ? "" : "\n") + line; }

  const LaunchOptions& options_;
  const Environment& environment_;
  const IsLocalAddress& is_local_;
  const AskPmix& ask_pmix_;
  const Launcher* winner_ = nullptr;  // null: the options, or one process
  dsc_result_t pmix_code_ = DSC_OK;   // why the PMIx server could not be asked
  std::string pmix_text_;
  std::optional<int32_t> hosts_;
  std::string half_set_;  // a launcher that set only one of rank and size
  Launch launch_;
};

std::optional<int32_t> Search::number(const char* name) const {
  const auto text = name != nullptr ? environment_(name) : std::nullopt;
  if (!text) return std::nullopt;
  int32_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc{} || stop != end)
    fail(DSC_ERR_CONFIG, "%s is '%.60s', expected a whole number", name, text->c_str());
  return value;
}

void Search::find_rank_and_size() {
  if (options_.rank >= 0) {
    launch_.rank = options_.rank;
    launch_.world_size = options_.world_size;
    launch_.source = "options";
    return;
  }
  note("options: rank and world_size are not given");
  for (const Launcher& launcher : kLaunchers)
    if (offers(launcher)) return;
  nobody_offers();
}

// Takes rank and size from this launcher if it gives both.
bool Search::offers(const Launcher& launcher) {
  const std::string name = launcher.name;
  const auto pass = [&](const std::string& reason) { return note(name + ": " + reason), false; };
  if (options_.sources != 0 && (options_.sources & launcher.source) == 0) return pass("excluded by sources");
  if (launcher.only_with != nullptr && !environment_(launcher.only_with))
    return pass(std::string(launcher.only_with) + " is not set");
  if (launcher.source == DSC_SOURCE_PMIX) return pmix_offers(launcher);
  const auto rank = number(launcher.rank);
  const auto size = number(launcher.world_size);
  if (rank && size) return take(launcher, *rank, *size), true;
  const std::string missing = rank ? launcher.world_size : launcher.rank;
  if (rank.has_value() != size.has_value()) {
    const std::string reason =
        std::string(rank ? launcher.rank : launcher.world_size) + " is set, but " + missing + " is not";
    // Who sets one of RANK and WORLD_SIZE means both. Leftovers of other launchers matter only if nobody else
    // offers.
    if (launcher.source == DSC_SOURCE_ENV) fail(DSC_ERR_CONFIG, "%s", reason.c_str());
    if (half_set_.empty() && rank) half_set_ = name + ": " + reason;
  }
  return pass(missing + " is not set");
}

// A server that cannot be asked is passed over, as long as somebody else offers.
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
  if (!job) return note(std::string(launcher.name) + ": " + pmix_text_), false;
  winner_ = &launcher;
  launch_.rank = job->rank;
  launch_.world_size = job->size;
  launch_.local_rank = job->local_rank;
  launch_.local_world_size = job->local_size;
  launch_.source = launcher.name;
  if (job->hosts >= 1) hosts_ = job->hosts;
  note(std::string(launcher.name) + ": the server was asked through " + job->version);
  return true;
}

void Search::take(const Launcher& launcher, int32_t rank, int32_t size) {
  if (size < 1) fail(DSC_ERR_CONFIG, "%s is %d, expected 1 or more", launcher.world_size, size);
  winner_ = &launcher;
  launch_.rank = rank;
  launch_.world_size = size;
  launch_.source = launcher.name;
  hosts_ = number(launcher.hosts);
  take_local(launcher);
}

void Search::take_local(const Launcher& launcher) {
  const int32_t size = launch_.world_size;
  if (const auto local_rank = number(launcher.local_rank)) {
    if (*local_rank < 0)
      fail(DSC_ERR_CONFIG, "%s is %d, expected 0 or more", launcher.local_rank, *local_rank);
    launch_.local_rank = *local_rank;
  }
  if (const auto local_size = number(launcher.local_world_size)) {
    if (*local_size < 1 || *local_size > size)
      fail(DSC_ERR_CONFIG, "%s is %d, expected 1 to %s (%d)", launcher.local_world_size, *local_size,
           launcher.world_size, size);
    launch_.local_world_size = *local_size;
  }
}

void Search::nobody_offers() {
  if (!half_set_.empty()) fail(DSC_ERR_CONFIG, "%s", half_set_.c_str());
  if (pmix_code_ != DSC_OK)
    fail(pmix_code_,
         "only PMIx says that this process is a rank of a job, but %.400s; set RANK and WORLD_SIZE, or "
         "exclude "
         "PMIx from sources",
         pmix_text_.c_str());
  if (options_.sources != 0 && (options_.sources & DSC_SOURCE_SINGLE) == 0)
    fail(DSC_ERR_CONFIG, "no allowed source gives rank and world size: %s", launch_.report.c_str());
  launch_.local_rank = 0;
  launch_.local_world_size = 1;
  launch_.source = "one process";
}

const char* Search::name_or(const char* Launcher::*variable, const char* option) const {
  return winner_ != nullptr && winner_->*variable != nullptr ? winner_->*variable : option;
}

// Rank against size is left to the meeting, which tells all ranks; a world of one has no meeting.
void Search::check_local() const {
  const bool known = launch_.local_world_size >= 0;
  const int32_t limit = known ? launch_.local_world_size : launch_.world_size;
  if (launch_.local_rank >= limit)
    fail(DSC_ERR_CONFIG, "%s is %d, expected 0 to %d (%s is %d)",
         options_.local_rank >= 0 ? "option local_rank" : name_or(&Launcher::local_rank, "local_rank"),
         launch_.local_rank, limit - 1,
         known ? name_or(&Launcher::local_world_size, "the world's size on this host")
               : name_or(&Launcher::world_size, "world_size"),
         limit);
  if (launch_.world_size == 1 && launch_.rank != 0)
    fail(DSC_ERR_CONFIG, "%s is %d, expected 0 (%s is 1)", name_or(&Launcher::rank, "option rank"),
         launch_.rank, name_or(&Launcher::world_size, "world_size"));
}

void Search::find_job_id() {
  if (options_.job_id != nullptr) {
    launch_.job_id = options_.job_id;
  } else if (const auto chosen = environment_("DSC_JOB_ID")) {
    launch_.job_id = *chosen;
  } else if (winner_ != nullptr) {
    for (const char* name : winner_->job_id)
      if (const auto part = name != nullptr ? environment_(name) : std::nullopt)
        launch_.job_id += (launch_.job_id.empty() ? "" : ".") + *part;
  }
}

MasterAddress Search::default_address() const {
  MasterAddress address{environment_("MASTER_ADDR").value_or(launch_.master_addr), options_.port};
  if (address.port != 0) return address;
  const auto text = environment_("MASTER_PORT");
  const auto port = text ? parse_port(*text) : launch_.master_port;
  if (!port) fail(DSC_ERR_CONFIG, "MASTER_PORT is '%.60s', expected 1 to 65535", text->c_str());
  address.port = *port;
  return address;
}

void Search::find_address() {
  const auto chosen = parse_init_method(options_.init_method);
  if (chosen && options_.port != 0 && options_.port != chosen->port)
    fail(DSC_ERR_INVALID_ARG, "port is %d, but init_method says %d", options_.port, chosen->port);
  const MasterAddress address = chosen ? *chosen : default_address();
  // The address is part of the meeting's name, so its usual spellings must be one.
  launch_.master_addr = address.host == "localhost" ? "127.0.0.1" : address.host;
  launch_.master_port = address.port;
}

void Search::check_one_host() const {
  if (launch_.world_size == 1) return;
  constexpr const char* kOneHost = "this version joins ranks of one host only";
  if (launch_.local_world_size >= 0 && launch_.local_world_size < launch_.world_size)
    fail(DSC_ERR_UNSUPPORTED, "%s, but %s is %d and %s is %d", kOneHost,
         name_or(&Launcher::local_world_size, "local_world_size"), launch_.local_world_size,
         name_or(&Launcher::world_size, "world_size"), launch_.world_size);
  if (hosts_.value_or(1) > 1)
    fail(DSC_ERR_UNSUPPORTED, "%s, but %s is %d", kOneHost, name_or(&Launcher::hosts, "the number of hosts"),
         *hosts_);
  // With all ranks known to be here the address is only a name.
  const bool known = launch_.local_world_size == launch_.world_size || hosts_.has_value();
  if (!known && !is_local_(launch_.master_addr))
    fail(DSC_ERR_UNSUPPORTED, "%s, but the master address %.100s is not this host's", kOneHost,
         launch_.master_addr.c_str());
}

}  // namespace

Launch find_launch(const LaunchOptions& options, const Environment& environment,
                   const IsLocalAddress& is_local, const AskPmix& ask_pmix) {
  LaunchOptions wanted = options;
  if (options.init_method != nullptr && options.init_method == kPmixMethod) {
    if (options.sources != 0 && (options.sources & DSC_SOURCE_PMIX) == 0)
      fail(DSC_ERR_INVALID_ARG, "init_method is pmix://, but sources (0x%x) excludes PMIx", options.sources);
    wanted.sources = DSC_SOURCE_PMIX;
  }
  return Search(wanted, environment, is_local, ask_pmix).run();
}

}  // namespace dsc
