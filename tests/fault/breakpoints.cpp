#include "breakpoints.hpp"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <type_traits>

#include "crew.hpp"
#include "dsc/dsc.h"

namespace fault {
namespace {

#if defined(__x86_64__)
using Code = uint8_t;
constexpr Code kTrap = 0xCC;
constexpr size_t kBehind = 1;  // the program counter is behind the trap, by this many bytes
greg_t& counter_of(ucontext_t& context) { return context.uc_mcontext.gregs[REG_RIP]; }
#elif defined(__aarch64__)
using Code = uint32_t;
constexpr Code kTrap = 0xD4200000;  // the instruction brk #0
constexpr size_t kBehind = 0;
unsigned long long& counter_of(ucontext_t& context) { return context.uc_mcontext.pc; }
#else
using Code = uint8_t;
constexpr Code kTrap = 0;
constexpr size_t kBehind = 0;
unsigned long& counter_of(ucontext_t&) {
  static unsigned long none;
  return none;
}
#endif

struct Library {
  std::string path;
  uintptr_t base = 0;   // the load address; addresses in the file are relative to it
  uintptr_t begin = 0;  // the range of its code
  uintptr_t end = 0;
};

// How the trap handler of this process treats a trap.
struct {
  Library library;
  // the places of the traps, which mark `visited`; if NULL, a trap kills the process
  const std::vector<CodeLocation>* places = nullptr;
  std::vector<Code> code;  // the machine code that the traps replaced
  uint8_t* visited = nullptr;
} traps;

int find_code(dl_phdr_info* info, size_t, void* found) {
  auto& library = *static_cast<Library*>(found);
  const auto inside = reinterpret_cast<uintptr_t>(&dsc_version);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || inside < begin || inside >= begin + part.p_memsz) continue;
    library = {info->dlpi_name, info->dlpi_addr, begin, begin + part.p_memsz};
    return 1;
  }
  return 0;
}

const Library& library() {
  if (traps.library.begin == 0) dl_iterate_phdr(find_code, &traps.library);
  return traps.library;
}

void write_code(uintptr_t address, Code code) {
  std::memcpy(reinterpret_cast<void*>(address), &code, sizeof code);
  __builtin___clear_cache(reinterpret_cast<char*>(address), reinterpret_cast<char*>(address) + sizeof code);
}

Code read_code(uintptr_t address) {
  Code code;
  std::memcpy(&code, reinterpret_cast<const void*>(address), sizeof code);
  return code;
}

[[noreturn]] void die() {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

void on_trap(int, siginfo_t*, void* opaque) {
  auto& context = *static_cast<ucontext_t*>(opaque);
  if (!traps.places) die();
  const auto address = static_cast<uintptr_t>(counter_of(context)) - kBehind;
  const auto place =
      std::lower_bound(traps.places->begin(), traps.places->end(), address,
                       [](const CodeLocation& known, uintptr_t wanted) { return known.address < wanted; });
  const auto index = static_cast<size_t>(place - traps.places->begin());
  traps.visited[index] = 1;
  write_code(address, traps.code[index]);
  counter_of(context) = static_cast<std::remove_reference_t<decltype(counter_of(context))>>(address);
}

void catch_traps() {
  struct sigaction action {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGTRAP, &action, nullptr);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = library().begin / page * page;
  mprotect(reinterpret_cast<void*>(begin), library().end - begin, PROT_READ | PROT_WRITE | PROT_EXEC);
}

void for_each_line(const std::string& command, const std::function<void(const char*)>& use) {
  if (kTrap == 0) return;
  std::FILE* lines = popen((command + " '" + library().path + "' 2>/dev/null").c_str(), "r");
  char line[1024];
  while (lines && std::fgets(line, sizeof line, lines)) use(line);
  if (lines) pclose(lines);
}

// The line table also lists copies of inline functions that the linker has dropped. Their addresses look as
// if they were those of the kept copy. This function drops addresses that are not the beginning of an
// instruction.
void drop_strangers(std::vector<CodeLocation>& places) {
  std::vector<CodeLocation> kept;
  auto next = places.begin();
  for_each_line("objdump -d --no-show-raw-insn", [&](const char* line) {
    char* end = nullptr;
    const uintptr_t address = library().base + std::strtoul(line, &end, 16);
    if (line[0] != ' ' || end[0] != ':') return;
    while (next != places.end() && next->address < address) ++next;
    if (next != places.end() && next->address == address) kept.push_back(std::move(*next));
  });
  places = std::move(kept);
}

}  // namespace

std::vector<CodeLocation> places_in(const std::vector<std::string>& folders) {
  std::vector<CodeLocation> places;
  std::set<std::string> sources;  // names of the files in these folders, without the folder
  for_each_line("objdump --dwarf=decodedline", [&](const char* line) {
    for (const std::string& folder : folders)
      if (const char* name = std::strstr(line, folder.c_str()))
        sources.emplace(name + folder.size(), std::strcspn(name + folder.size(), ":\n"));
    char source[256];
    char rest[64];
    unsigned number = 0;
    unsigned long address = 0;
    if (std::sscanf(line, "%255s %u %lx %63[^\n]", source, &number, &address, rest) != 4) return;
    if (std::strchr(rest, 'x'))  // the row begins a statement
      places.push_back({library().base + address, format("%s:%u", source, number)});
  });
  std::sort(places.begin(), places.end(),
            [](const CodeLocation& a, const CodeLocation& b) { return a.address < b.address; });
  const auto same = [](const CodeLocation& a, const CodeLocation& b) { return a.address == b.address; };
  places.erase(std::unique(places.begin(), places.end(), same), places.end());
  std::erase_if(places, [&](const CodeLocation& place) {
    return !sources.contains(place.name.substr(0, place.name.rfind(':')));
  });
  drop_strangers(places);
  return places;
}

void die_at(const CodeLocation& place) {
  catch_traps();
  write_code(place.address, kTrap);
}

void mark_visits(const std::vector<CodeLocation>& places, uint8_t* visited) {
  catch_traps();
  traps.places = &places;
  traps.visited = visited;
  for (const CodeLocation& place : places) traps.code.push_back(read_code(place.address));
  for (const CodeLocation& place : places) write_code(place.address, kTrap);
}

}  // namespace fault
