#include "dscctl/info.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "dsc/dsc.h"
#include "dscctl/library_text.hpp"

namespace dscctl {
namespace {

std::string version_text(int32_t major, int32_t minor, int32_t patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

Json library_info() {
  int32_t major = 0, minor = 0, patch = 0;
  dsc_version(&major, &minor, &patch);
  Dl_info where = {};
  dladdr(reinterpret_cast<void*>(&dsc_version), &where);
  Json info;
  info["version"] = version_text(major, minor, patch);
  info["built_against"] = version_text(DSC_VERSION_MAJOR, DSC_VERSION_MINOR, DSC_VERSION_PATCH);
  info["path"] = where.dli_fname == nullptr ? "unknown" : where.dli_fname;
  return info;
}

bool has_feature(const std::string& name) {
  int32_t available = 0;
  return dsc_feature(name.c_str(), &available) == DSC_OK && available == 1;
}

// Every engine and every library is a feature of the library.
Json feature_info(const Json& engines) {
  Json info;
  for (const auto& [name, engine] : engines.items()) info[name] = has_feature(name);
  info["pipeline"] = has_feature("pipeline");
  return info;
}

Json check(bool works) {
  Json info = {{"available", works}};
  if (!works) info["reason"] = std::strerror(errno);
  return info;
}

Json check_memfd() {
  const int fd = memfd_create("dscctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  Json info = check(fd >= 0);
  if (fd >= 0) close(fd);
  return info;
}

Json check_pidfd() {
  const long fd = syscall(SYS_pidfd_open, getpid(), 0);
  Json info = check(fd >= 0);
  if (fd >= 0) close(static_cast<int>(fd));
  return info;
}

// Whether one process may read another's memory, which the library uses for large data in ordinary memory. A
// child has no more rights to its parent than one rank has to another.
Json check_single_copy() {
  static const uint64_t word = 1;
  const pid_t child = fork();
  if (child == 0) {
    uint64_t found = 0;
    const iovec to = {&found, sizeof found};
    const iovec from = {const_cast<uint64_t*>(&word), sizeof word};
    _exit(process_vm_readv(getppid(), &to, 1, &from, 1, 0) == sizeof found ? 0 : errno);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return check(false);
  errno = WIFEXITED(status) ? WEXITSTATUS(status) : ENOSYS;
  return check(errno == 0);
}

Json check_dev_shm() {
  struct statvfs space = {};
  Json info = check(statvfs("/dev/shm", &space) == 0);
  if (!info["available"]) return info;
  info["size_bytes"] = uint64_t{space.f_blocks} * space.f_frsize;
  info["free_bytes"] = uint64_t{space.f_bavail} * space.f_frsize;
  return info;
}

Json clock_source() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return file >> name ? Json(name) : Json(nullptr);
}

Json open_file_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return nullptr;
  return {{"soft", limit.rlim_cur}, {"hard", limit.rlim_max}};
}

Json host_info() {
  utsname system = {};
  uname(&system);
  cpu_set_t cores;
  const bool counted = sched_getaffinity(0, sizeof cores, &cores) == 0;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  Json info;
  info["kernel"] = std::string(system.sysname) + " " + system.release;
  info["machine"] = system.machine;
  info["cores_online"] = sysconf(_SC_NPROCESSORS_ONLN);
  info["cores_allowed"] = counted ? Json(CPU_COUNT(&cores)) : Json(nullptr);
  info["memory_bytes"] = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
  info["page_bytes"] = page_bytes;
  info["clock_source"] = clock_source();
  info["memfd"] = check_memfd();
  info["pidfd"] = check_pidfd();
  info["single_copy"] = check_single_copy();
  info["dev_shm"] = check_dev_shm();
  info["open_files"] = open_file_limit();
  return info;
}

std::string format_bytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string format_value(const std::string& name, const Json& value) {
  if (value.is_null()) return "unknown";
  if (value.is_boolean()) return value ? "yes" : "no";
  if (value.is_string()) return value;
  const bool is_size = name == "memory_bytes" || name == "size_bytes" || name == "free_bytes";
  return is_size ? format_bytes(value) : value.dump();
}

std::string format_members(const Json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) {
    text += (text.empty() ? "" : ", ") + name + " " + format_value(name, value);
  }
  return text;
}

std::string format_list(const Json& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word.get<std::string>();
  return text;
}

// Returns text such as "/path/libnccl.so.2 (2.28.9; split mem_alloc; warning: ...)".
std::string format_found(const Json& engine) {
  std::string text = engine["path"].get<std::string>() + " (" + engine["version"].get<std::string>();
  if (engine.contains("devices")) text += "; devices: " + engine["devices"].dump();
  if (engine.contains("features")) text += "; " + format_list(engine["features"]);
  if (!engine["warning"].is_null()) text += "; warning: " + engine["warning"].get<std::string>();
  return text + ")";
}

std::string format_engine(const Json& engine) {
  const std::string found = engine["path"].is_null() ? "" : format_found(engine);
  if (engine["available"]) return found.empty() ? "yes" : "yes: " + found;
  return "no: " + engine["reason"].get<std::string>() + (found.empty() ? "" : "; found " + found);
}

std::string format_fact(const std::string& name, const Json& value) {
  if (!value.is_object()) return format_value(name, value);
  if (value.contains("version")) return format_engine(value);
  if (!value.contains("available")) return format_members(value);
  Json rest = value;
  rest.erase("available");
  return format_value(name, value["available"]) + (rest.empty() ? "" : " (" + format_members(rest) + ")");
}

}  // namespace

Json collect_info() {
  Json info;
  const Json engines = Json::parse(library_text(dsc_engines_json));
  info["libdsc"] = library_info();
  info["features"] = feature_info(engines);
  info["engines"] = engines;
  info["host"] = host_info();
  return info;
}

std::string format_info(const Json& info) {
  std::string text;
  for (const auto& [section, facts] : info.items()) {
    text += section + "\n";
    for (const auto& [name, value] : facts.items()) {
      text += "  " + name + std::string(name.size() < 16 ? 16 - name.size() : 1, ' ') +
              format_fact(name, value) + "\n";
    }
  }
  return text;
}

}  // namespace dscctl
