#include "dscctl/bench/measure.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "dscctl/bench/exit_codes.hpp"

namespace dscctl::bench {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> rank_command(const Job& job) {
  std::string cases;
  for (const Case& one : job.cases) cases += (cases.empty() ? "" : ",") + case_text(one);
  std::vector<std::string> command{"dscctl", "bench",       "--as-rank",
                                   cases,    "--budget-ms", std::to_string(job.budget_ms)};
  if (job.explain) command.emplace_back("--verbose");
  return command;
}

// Returns the environment of this process, with the variables that make a process a rank.
std::vector<std::string> rank_environment(const Job& job, int rank) {
  static int jobs = 0;
  if (rank == 0) ++jobs;
  const std::string number = std::to_string(rank), count = std::to_string(job.ranks);
  std::vector<std::string> entries{
      "RANK=" + number,
      "WORLD_SIZE=" + count,
      "LOCAL_RANK=" + number,
      "LOCAL_WORLD_SIZE=" + count,
      "MASTER_ADDR=127.0.0.1",
      "MASTER_PORT=29500",
      "DSC_JOB_ID=dscctl-" + std::to_string(getpid()) + "-" + std::to_string(jobs)};
  if (job.tuning) entries.push_back("DSC_TUNING=" + *job.tuning);
  const size_t own = entries.size();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (size_t i = 0; i < own; ++i) replaced = replaced || entries[i].rfind(name, 0) == 0;
    if (!replaced) entries.push_back(text);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> found;
  found.reserve(strings.size() + 1);
  for (std::string& text : strings) found.push_back(text.data());
  found.push_back(nullptr);
  return found;
}

// The ranks of one measurement. The destructor kills those that still run.
class Ranks {
 public:
  explicit Ranks(const Job& job) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("cannot create a pipe");
    lines_ = ends[0];
    for (int rank = 0; rank < job.ranks; ++rank) start(job, rank, ends[1]);
    close(ends[1]);
  }
  ~Ranks() {
    for (const Process& process : running_) kill(process.pid, SIGKILL);
    for (const Process& process : running_) {
      waitpid(process.pid, nullptr, 0);
      close(process.errors);
    }
    close(lines_);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Reads a line of rank 0's output. Returns false at the end.
  bool read_line(std::string& line) {
    for (size_t end; (end = pending_.find('\n')) == std::string::npos;) {
      char part[4096];
      const ssize_t got = read(lines_, part, sizeof part);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      pending_.append(part, static_cast<size_t>(got));
    }
    const size_t end = pending_.find('\n');
    line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return true;
  }

  // Waits for all ranks. Returns false if they refused their settings. Throws for any other failure. The
  // first output of a failing rank explains why the other ranks, which lost their connection to it, failed
  // too.
  bool finish() {
    bool refused = false;
    std::string cause;
    for (; !running_.empty(); running_.erase(running_.begin())) {
      const auto [pid, errors] = running_.front();
      int status = 0;
      while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
      const std::string words = read_all(errors);
      close(errors);
      if (status == 0) {
        write_all(words);
        continue;
      }
      refused = refused || (WIFEXITED(status) && WEXITSTATUS(status) == kRefused);
      if (cause.empty() || WIFSIGNALED(status) || words.find("PEER_") == std::string::npos)
        cause =
            WIFSIGNALED(status) ? std::string("a rank was killed by ") + strsignal(WTERMSIG(status)) : words;
    }
    if (!refused && !cause.empty()) throw std::runtime_error(cause);
    refusal_ = cause;
    return !refused;
  }
  const std::string& refusal() const { return refusal_; }

 private:
  struct Process {
    pid_t pid;
    int errors;  // the rank's stderr
  };

  void start(const Job& job, int rank, int output) {
    std::vector<std::string> command = rank_command(job), environment = rank_environment(job, rank);
    std::vector<char*> argv = pointers(command), envp = pointers(environment);
    const int errors = memfd_create("dscctl-stderr", MFD_CLOEXEC);
    const pid_t parent = getpid(), pid = errors < 0 ? -1 : fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent || dup2(errors, STDERR_FILENO) < 0) _exit(kFailed);
      if (dup2(rank == 0 ? output : errors, STDOUT_FILENO) < 0) _exit(kFailed);
      execve("/proc/self/exe", argv.data(), envp.data());
      _exit(kFailed);
    }
    if (pid < 0) {
      const std::string reason = std::strerror(errno);
      if (errors >= 0) close(errors);
      throw std::runtime_error("cannot start a rank: " + reason);
    }
    running_.push_back({pid, errors});
  }

  static std::string read_all(int fd) {
    std::string text;
    char part[4096];
    for (ssize_t got; (got = pread(fd, part, sizeof part, static_cast<off_t>(text.size()))) > 0;)
      text.append(part, static_cast<size_t>(got));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  static void write_all(const std::string& words) {
    if (!words.empty()) std::fprintf(stderr, "%s\n", words.c_str());
  }

  int lines_ = -1;
  std::string pending_;
  std::string refusal_;
  std::vector<Process> running_;
};

Settings parse_settings(const std::string& text) {
  Settings settings;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
    settings.emplace_back(text.substr(at, equals - at),
                          std::stoul(text.substr(equals + 1, comma - equals - 1)));
    at = comma + 1;
  }
  return settings;
}

}  // namespace

std::string settings_text(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings)
    text += (text.empty() ? "" : ",") + key + "=" + std::to_string(value);
  return text;
}

std::optional<Facts> measure(const Job& job, const OnRow& tell) {
  Ranks ranks(job);
  Facts facts;
  std::string line;
  if (ranks.read_line(line)) {
    const Json json = Json::parse(line);
    facts = {parse_settings(json.at("tuning")), json.at("algorithms")};
  }
  while (ranks.read_line(line)) {
    const Json json = Json::parse(line);
    tell(facts,
         {job.cases.at(json.at("case")), json.at("median_us"), json.at("algorithm"), json.at("switches")});
  }
  if (ranks.finish()) return facts;
  if (!job.tuning) throw std::invalid_argument(ranks.refusal());  // the environment holds wrong settings
  return std::nullopt;
}

}  // namespace dscctl::bench
