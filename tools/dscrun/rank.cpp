#include "dscrun/rank.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace dscrun {
namespace {

struct Pipe {
  UniqueFd read_end, write_end;
};

[[noreturn]] void fail_start(const std::string& what, int error) {
  throw StartError(what + ": " + strerror(error), kOwnFailure);
}

Pipe make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) fail_start("cannot create a pipe", errno);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::string random_id() {
  std::array<unsigned char, 16> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail_start("cannot get a random job id", errno);
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

void set_variable(std::vector<std::string>& environment, const std::string& assignment) {
  const std::string_view name_equals = std::string_view(assignment).substr(0, assignment.find('=') + 1);
  std::erase_if(environment,
                [name_equals](const std::string& entry) { return entry.rfind(name_equals, 0) == 0; });
  environment.push_back(assignment);
}

std::vector<std::string> make_environment(const Options& options, int rank, const std::string& job_id) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  const std::string number = std::to_string(rank);
  const std::string count = std::to_string(options.ranks);
  const std::array own = {"RANK=" + number,
                          "WORLD_SIZE=" + count,
                          "LOCAL_RANK=" + number,
                          "LOCAL_WORLD_SIZE=" + count,
                          std::string("DSC_LAUNCHER=dscrun"),
                          "DSC_JOB_ID=" + job_id,
                          std::string("MASTER_ADDR=127.0.0.1"),
                          "MASTER_PORT=" + std::to_string(options.port)};
  for (const std::string& assignment : own) set_variable(environment, assignment);
  for (const std::string& assignment : options.extra_env) set_variable(environment, assignment);
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// The usual signals start afresh; what the user had ignored (nohup, shell background) stays ignored.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction old {};
    if (sigaction(number, nullptr, &old) != 0) continue;
    const bool may_stay_ignored = number == SIGHUP || number == SIGINT || number == SIGQUIT;
    if (old.sa_handler == SIG_IGN && !may_stay_ignored) signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Everything the child needs, made before the fork.
struct Launch {
  pid_t parent;
  pid_t group;  // 0: its own
  bool keep_stdin;
  char** argv;
  char** envp;
  int out, err, failure;  // writing ends
};

// Runs in the child; returns only if something failed, with errno set.
void enter_command(const Launch& launch) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (getppid() != launch.parent) _exit(kOwnFailure);  // the parent died before the line above could tell us
  setpgid(0, launch.group);
  reset_signals();
  if (!launch.keep_stdin) {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0) return;
  }
  if (dup2(launch.out, STDOUT_FILENO) < 0 || dup2(launch.err, STDERR_FILENO) < 0) return;
  environ = launch.envp;  // before the search, so that --env PATH=... counts
  execvp(launch.argv[0], launch.argv);
}

[[noreturn]] void run_child(const Launch& launch) {
  enter_command(launch);
  const int error = errno;
  if (write(launch.failure, &error, sizeof error) != static_cast<ssize_t>(sizeof error)) _exit(kOwnFailure);
  _exit(kNotFound);
}

[[noreturn]] void fail_exec(const std::string& command, int error) {
  const bool is_path = command.find('/') != std::string::npos;
  if (error == ENOENT && !is_path) throw StartError(command + ": command not found", kNotFound);
  if (error == ENOENT && access(command.c_str(), F_OK) == 0) {
    throw StartError("cannot run " + command + ": its interpreter was not found", kNotFound);
  }
  throw StartError("cannot run " + command + ": " + strerror(error),
                   error == ENOENT ? kNotFound : kNotExecutable);
}

}  // namespace

void Rank::send_signal(int signal) const {
  if (running()) kill(in_front_group ? pid : -pid, signal);
}

RankStarter::RankStarter(const Options& options, pid_t front_group)
    : options_(options), front_group_(front_group), job_id_(random_id()) {}

Rank RankStarter::start(int number) const {
  Pipe out = make_pipe(), err = make_pipe(), failure = make_pipe();
  std::vector<std::string> command = options_.command;
  std::vector<std::string> environment = make_environment(options_, number, job_id_);
  std::vector<char*> argv = pointers(command), envp = pointers(environment);
  const pid_t group = number == 0 ? front_group_ : 0;
  const Launch launch = {.parent = getpid(),
                         .group = group,
                         .keep_stdin = number == 0,
                         .argv = argv.data(),
                         .envp = envp.data(),
                         .out = out.write_end.get(),
                         .err = err.write_end.get(),
                         .failure = failure.write_end.get()};
  Rank rank;
  rank.number = number;
  rank.in_front_group = group != 0;
  rank.pid = fork();
  if (rank.pid < 0) fail_start("cannot start rank " + std::to_string(number), errno);
  if (rank.pid == 0) run_child(launch);

  failure.write_end.reset();  // closed by a successful exec in the child too, which ends the read below
  int error = 0;
  ssize_t bytes = 0;
  do bytes = read(failure.read_end.get(), &error, sizeof error);
  while (bytes < 0 && errno == EINTR);
  if (bytes == static_cast<ssize_t>(sizeof error)) {
    waitpid(rank.pid, nullptr, 0);
    fail_exec(command.front(), error);
  }
  rank.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, rank.pid, 0)));
  if (!rank.pidfd) fail_start("cannot watch rank " + std::to_string(number) + " (pidfd_open)", errno);
  rank.out = std::move(out.read_end);
  rank.err = std::move(err.read_end);
  return rank;
}

}  // namespace dscrun
