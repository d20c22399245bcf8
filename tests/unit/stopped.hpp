// SIGSTOP for the tests. The kernel stops the threads of a process one after another. On a busy machine some
// threads still run for a while after kill() has returned.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace dsc::test {

inline bool has_stopped(const std::filesystem::path& thread) {
  std::ifstream file(thread / "stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] == 'T';
}

// Returns when no thread of the process runs any more.
inline void stop_process(pid_t pid) {
  ::kill(pid, SIGSTOP);
  const std::filesystem::path threads = "/proc/" + std::to_string(pid) + "/task";
  const auto all_have_stopped = [&] {
    return std::ranges::all_of(std::filesystem::directory_iterator(threads),
                               [](const auto& thread) { return has_stopped(thread.path()); });
  };
  while (!all_have_stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace dsc::test
