#include "traces.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "crew.hpp"

namespace fault {
namespace {

bool isolated = false;

bool is_ours(const std::string& name) { return isolated || name.find("dsc-") != std::string::npos; }

void raise_loopback() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (ioctl(fd, SIOCGIFFLAGS, &request) == 0) {
    request.ifr_flags |= IFF_UP;
    ioctl(fd, SIOCSIFFLAGS, &request);
  }
  close(fd);
}

void add_files(const char* folder, std::set<std::string>& found) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (is_ours(entry.path().filename())) found.insert(entry.path());
}

void add_sockets(std::set<std::string>& found) {
  std::ifstream table("/proc/self/net/unix");
  for (std::string line; std::getline(table, line);) {
    const size_t name = line.find(" @");
    if (name != std::string::npos && is_ours(line.substr(name + 2)))
      found.insert("socket " + line.substr(name + 1));
  }
}

void add_descriptors(std::set<std::string>& found) {
  std::error_code error;
  int number = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    static_cast<void>(entry);
    found.insert(format("descriptor %d of this process", number++));
  }
}

// Adds every process that a test started and did not reap.
void add_processes(std::set<std::string>& found) {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
    info = {};  // reaps orphans that have ended
  std::ifstream children(format("/proc/self/task/%d/children", static_cast<int>(getpid())));
  for (std::string pid; children >> pid;) found.insert("process " + pid);
}

}  // namespace

bool isolate() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0) return false;
  const std::string temporary = std::filesystem::temp_directory_path();
  const bool mounted = mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount("fault", "/dev/shm", "tmpfs", 0, nullptr) == 0 &&
                       mount("fault", temporary.c_str(), "tmpfs", 0, nullptr) == 0;
  raise_loopback();
  return isolated = mounted;
}

std::set<std::string> Traces::collect() {
  std::set<std::string> found;
  add_files("/dev/shm", found);
  add_files(std::filesystem::temp_directory_path().c_str(), found);
  add_sockets(found);
  add_descriptors(found);
  add_processes(found);
  return found;
}

std::string Traces::left() const {
  std::string text;
  for (const int64_t end = now_ms() + 20'000; now_ms() < end; sleep_ms(5)) {
    text.clear();
    for (const std::string& trace : collect())
      if (!before_.contains(trace)) text += "\n  " + trace;
    if (text.empty()) break;
  }
  return text;
}

}  // namespace fault
