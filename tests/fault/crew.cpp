#include "crew.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>

namespace fault {
namespace {

[[noreturn]] void run_rank(Rank rank, const std::function<int(Rank&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The child must not use cmocka's signal handlers: after a crash they would continue with the test.
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS}) std::signal(crash, SIG_DFL);
  const int status = body(rank);
  if (status == kExitInOrder) std::exit(0);
  _exit(status);
}

}  // namespace

int64_t now_us() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1'000'000} + time.tv_nsec / 1000;
}

void sleep_ms(int ms) {
  timespec time{ms / 1000, ms % 1000 * 1'000'000L};
  nanosleep(&time, nullptr);
}

int64_t setting(const char* variable, int64_t fallback) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtoll(text, nullptr, 0) : fallback;
}

int slowdown() {
#if defined(__SANITIZE_THREAD__)
  return 8;
#elif defined(__SANITIZE_ADDRESS__)
  return 4;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return 8;
#elif __has_feature(address_sanitizer)
  return 4;
#else
  return 1;
#endif
#else
  return 1;
#endif
}

std::string format(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string describe(int rank, const Outcome& outcome) {
  if (!outcome.made) return format("rank %d: the call has not returned", rank);
  return format("rank %d: %s, cause %s of rank %d: %s", rank, dsc_result_name(outcome.result),
                dsc_result_name(outcome.code), outcome.culprit, outcome.text);
}

dsc_init_options_t Rank::options() const {
  dsc_init_options_t options;
  dsc_init_options_init(&options, sizeof options);
  options.job_id = board_.job;
  options.rank = rank;
  options.world_size = size;
  options.sources = DSC_SOURCE_OPTIONS;
  options.init_timeout_ms = 40'000 * slowdown();
  options.timeout_ms = 40'000 * slowdown();
  return options;
}

bool Rank::join(const dsc_init_options_t& options) {
  const dsc_result_t result = dsc_init_distributed(&options, &world);
  if (result == DSC_OK) return true;
  note("init: %s: %s", dsc_result_name(result), dsc_last_error_message());
  return false;
}

bool Rank::await_order(int32_t order, int timeout_ms) const {
  for (const int64_t end = now_ms() + timeout_ms; board_.order.load() < order; sleep_ms(1))
    if (now_ms() > end) return false;
  return true;
}

bool Rank::await_stage_of_all(int32_t stage, int timeout_ms) const {
  const int64_t end = now_ms() + timeout_ms;
  for (int other = 0; other < size; ++other)
    for (; board_.reports[other].stage.load() < stage; sleep_ms(1))
      if (now_ms() > end) return false;
  return true;
}

void Rank::record(size_t index, dsc_result_t result, dsc_comm_t* comm) {
  Outcome& outcome = report.outcomes[index];
  outcome.end_us = now_us();
  outcome.result = result;
  if (result < 0) std::snprintf(outcome.text, sizeof outcome.text, "%s", dsc_last_error_message());
  dsc_error_info_t info{};
  info.struct_size = sizeof info;
  outcome.culprit = -1;
  if (comm && dsc_comm_error_info(comm, &info) == DSC_OK) {
    outcome.culprit = info.rank;
    outcome.code = info.code;
    outcome.revoked = info.revoked;
    std::snprintf(outcome.operation, sizeof outcome.operation, "%s", info.operation);
  }
  outcome.made = 1;
}

void Rank::note(const char* format, ...) {
  if (report.note[0] != 0) return;  // only the first note is kept
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(report.note, sizeof report.note, format, arguments);
  va_end(arguments);
}

int end_everything(void**) {
  for (bool any = true; any;) {  // an orphan becomes a child of this process when its parent ends
    any = false;
    std::ifstream children(format("/proc/self/task/%d/children", static_cast<int>(getpid())));
    for (pid_t child = 0; children >> child; any = true) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  return 0;
}

Crew::Crew(int size, const std::function<int(Rank&)>& body, int job) {
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  board_ = new (shared) Board{};
  std::snprintf(board_->job, sizeof board_->job, "fault-%d-%d", static_cast<int>(getpid()), job);
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) run_rank(Rank(rank, size, *board_), body);
    members_.push_back({pid, static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), -1, 0});
  }
}

Crew::~Crew() {
  for (int rank = 0; rank < size(); ++rank) {
    signal(rank, SIGKILL);
    await_end(rank, 60'000);
    close(members_[static_cast<size_t>(rank)].pidfd);
  }
  munmap(board_, sizeof(Board));
}

int64_t Crew::signal(int rank, int number) {
  const int64_t sent = now_us();
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.status == -1) syscall(SYS_pidfd_send_signal, member.pidfd, number, nullptr, 0);
  return sent;
}

void Crew::signal_all(int number) {
  for (int rank = 0; rank < size(); ++rank) signal(rank, number);
}

bool Crew::await_stage(int rank, int32_t stage, int timeout_ms) {
  for (const int64_t end = now_ms() + timeout_ms; report(rank).stage.load() < stage; sleep_ms(1)) {
    pollfd ended{members_[static_cast<size_t>(rank)].pidfd, POLLIN, 0};
    if (now_ms() > end || poll(&ended, 1, 0) == 1) return report(rank).stage.load() >= stage;
  }
  return true;
}

bool Crew::await_stage_of_all(int32_t stage, int timeout_ms) {
  const int64_t end = now_ms() + timeout_ms;
  for (int rank = 0; rank < size(); ++rank)
    if (!await_stage(rank, stage, static_cast<int>(end - now_ms()))) return false;
  return true;
}

bool Crew::await_end(int rank, int timeout_ms) {
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.status != -1) return true;
  pollfd ended{member.pidfd, POLLIN, 0};
  if (poll(&ended, 1, timeout_ms < 0 ? 0 : timeout_ms) != 1) return false;
  member.ended_us = now_us();
  int status = 0;
  if (waitpid(member.pid, &status, 0) != member.pid) return false;
  member.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

bool Crew::await_end_of_all(int timeout_ms) {
  const int64_t end = now_ms() + timeout_ms;
  bool all = true;
  for (int rank = 0; rank < size(); ++rank) all &= await_end(rank, static_cast<int>(end - now_ms()));
  return all;
}

std::string Crew::describe() const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank)
    text += format("\n  rank %d (pid %d): status %d, stage %d, %llu operations%s%s", rank,
                   static_cast<int>(pid(rank)), status(rank), report(rank).stage.load(),
                   static_cast<unsigned long long>(report(rank).operations.load()),
                   report(rank).note[0] ? ": " : "", report(rank).note);
  return text;
}

std::string Crew::stacks() const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank) {
    if (status(rank) != -1) continue;
    const std::string command = format("timeout 20 gdb -p %d -batch -ex 'thread apply all bt 12' 2>/dev/null",
                                       static_cast<int>(pid(rank)));
    std::FILE* debugger = popen(command.c_str(), "r");
    text += format("\n-- rank %d\n", rank);
    char line[512];
    while (debugger && std::fgets(line, sizeof line, debugger))
      if (line[0] == '#' || line[0] == 'T') text += line;
    if (debugger) pclose(debugger);
  }
  return text;
}

}  // namespace fault
