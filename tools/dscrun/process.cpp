#include "dscrun/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "dscrun/options.hpp"

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

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Resets signals to their defaults. Signals that the user has ignored (nohup, shell background) stay ignored.
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

// All data that the child needs. It is prepared before the fork.
struct Launch {
  pid_t parent;
  pid_t group;
  int in;  // -1: unchanged
  int out, err, kept, failure;
  char** argv;
  char** envp;
};

// Runs in the child. It returns only after an error, with errno set.
void enter_command(const Launch& launch) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (getppid() != launch.parent) _exit(kOwnFailure);  // the parent died before PR_SET_PDEATHSIG was set
  setpgid(0, launch.group);
  reset_signals();
  if (launch.in >= 0 && dup2(launch.in, STDIN_FILENO) < 0) return;
  if (dup2(launch.out, STDOUT_FILENO) < 0 || dup2(launch.err, STDERR_FILENO) < 0) return;
  if (launch.kept >= 0 && fcntl(launch.kept, F_SETFD, 0) != 0) return;
  environ = launch.envp;  // set before the program is searched, so that --env PATH=... has an effect
  execvp(launch.argv[0], launch.argv);
}

[[noreturn]] void run_child(const Launch& launch) {
  enter_command(launch);
  const int error = errno;
  if (write(launch.failure, &error, sizeof error) != static_cast<ssize_t>(sizeof error)) _exit(kOwnFailure);
  _exit(kNotFound);
}

// Suggests a command for a file in the current folder or a Python program that is not executable. torchrun
// and deepspeed run both with Python, but dscrun does not.
std::string suggest_command(const std::string& command) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(command, ignored)) return "";
  if (command.ends_with(".py")) return "; did you mean 'python3 " + command + "'?";
  return access(command.c_str(), X_OK) == 0 ? "; did you mean './" + command + "'?" : "";
}

[[noreturn]] void fail_exec(const std::string& command, int error) {
  const bool is_path = command.find('/') != std::string::npos;
  if (error == ENOENT && !is_path)
    throw StartError(command + ": command not found" + suggest_command(command), kNotFound);
  if (error == ENOENT && access(command.c_str(), F_OK) == 0) {
    throw StartError("cannot run " + command + ": its interpreter was not found", kNotFound);
  }
  const std::string hint = command.ends_with(".py") ? suggest_command(command) : "";
  throw StartError("cannot run " + command + ": " + strerror(error) + hint,
                   error == ENOENT ? kNotFound : kNotExecutable);
}

// Returns the errno of a failed exec, or 0. A successful exec closes the pipe, so its end means success.
int read_failure(int fd) {
  int error = 0;
  ssize_t bytes = 0;
  do bytes = read(fd, &error, sizeof error);
  while (bytes < 0 && errno == EINTR);
  return bytes == static_cast<ssize_t>(sizeof error) ? error : 0;
}

// Makes the child's standard input; for a pipe, also the end to which this process writes.
Pipe make_input(Input input) {
  if (input == Input::kPipe) return make_pipe();
  Pipe pipe;
  if (input == Input::kNothing) {
    pipe.read_end = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!pipe.read_end) fail_start("cannot open /dev/null", errno);
  }
  return pipe;
}

}  // namespace

Process start_process(const ProcessSpec& spec) {
  Pipe in = make_input(spec.input), out = make_pipe(), err = make_pipe(), failure = make_pipe();
  std::vector<std::string> command = spec.command, environment = spec.environment;
  std::vector<char*> argv = pointers(command), envp = pointers(environment);
  const Launch launch = {.parent = getpid(),
                         .group = spec.group,
                         .in = in.read_end.get(),
                         .out = out.write_end.get(),
                         .err = err.write_end.get(),
                         .kept = spec.kept_fd,
                         .failure = failure.write_end.get(),
                         .argv = argv.data(),
                         .envp = envp.data()};
  Process process;
  process.pid = fork();
  if (process.pid < 0) fail_start("cannot start " + spec.name, errno);
  if (process.pid == 0) run_child(launch);

  failure.write_end.reset();
  if (const int error = read_failure(failure.read_end.get())) {
    waitpid(process.pid, nullptr, 0);
    fail_exec(command.front(), error);
  }
  process.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!process.pidfd) fail_start("cannot watch " + spec.name + " (pidfd_open)", errno);
  process.out = std::move(out.read_end);
  process.err = std::move(err.read_end);
  process.in = std::move(in.write_end);
  return process;
}

}  // namespace dscrun
