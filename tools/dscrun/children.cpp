#include "dscrun/children.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace dscrun {
namespace {

// Returns the parent of a process, which is the second field after the name in /proc/PID/stat. The name ends
// with the last ')' and may contain any byte.
pid_t parent_of(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
  if (!file) return -1;
  char text[512] = {};
  const size_t bytes = std::fread(text, 1, sizeof text - 1, file.get());
  const char* name_end = bytes > 0 ? std::strrchr(text, ')') : nullptr;
  int parent = -1;
  if (name_end == nullptr || std::sscanf(name_end + 1, " %*c %d", &parent) != 1) return -1;
  return parent;
}

std::vector<pid_t> list_children() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc) return children;
  while (const dirent* entry = readdir(proc.get())) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && parent_of(entry->d_name) == getpid()) children.push_back(pid);
  }
  return children;
}

// Reaps processes that have ended. Returns false if no child remains.
bool reap_some() {
  pid_t pid = 0;
  do pid = waitpid(-1, nullptr, WNOHANG);
  while (pid > 0);
  return pid == 0;
}

}  // namespace

void signal_children(int signal) {
  for (const pid_t child : list_children()) kill(child, signal);
}

bool kill_descendants(int limit_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (reap_some()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    signal_children(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::string describe_end(int wait_status) {
  if (WIFEXITED(wait_status)) return "exited with code " + std::to_string(WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  const std::string core = WCOREDUMP(wait_status) ? ", core dumped" : "";
  // A Python program can get SIGSEGV from libdsc, for example if it reads a sharded parameter after its
  // release.
  const bool may_tell = signal == SIGSEGV && getenv("PYTHONFAULTHANDLER") == nullptr;
  const std::string advice =
      may_tell ? "; for a Python program, set PYTHONFAULTHANDLER=1 to print the Python stack" : "";
  return "died by signal " + std::to_string(signal) + " (" + strsignal(signal) + core + advice + ")";
}

int shell_code(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace dscrun
