// Reading the memory of other processes through the kernel: only mapped memory of a process that lives, and
// of no other process.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/guard.hpp"
#include "control/peer_memory.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::PeerMemory;
using dsc::PeerRead;

constexpr size_t kBytes = size_t{1} << 20;
const uint64_t probe_value = 0x1234567890abcdef;

dsc::MemoryProbe probe() { return {reinterpret_cast<uint64_t>(&probe_value), probe_value}; }

dsc::UniqueFd pidfd_of(pid_t pid) {
  dsc::UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  assert_true(static_cast<bool>(fd));
  return fd;
}

// A forked process, which has this process's memory at the same addresses and sleeps until it is killed.
class Child {
 public:
  explicit Child(void (*change)() = [] {}) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_ = fork();
    assert_true(pid_ >= 0);
    if (pid_ == 0) {
      change();
      static_cast<void>(!write(ready[1], "r", 1));
      for (;;) pause();
    }
    char letter = 0;
    assert_int_equal(read(ready[0], &letter, 1), 1);
    for (const int end : ready) close(end);
    pidfd_ = pidfd_of(pid_);
  }
  ~Child() { end(); }
  void kill_only() const { assert_int_equal(kill(pid_, SIGKILL), 0); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }

 private:
  pid_t pid_ = 0;
  dsc::UniqueFd pidfd_;
};

std::vector<unsigned char>& pattern() {
  static std::vector<unsigned char> bytes(kBytes);
  return bytes;
}

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

// Returns the result of reading, and the message. `alive` becomes what read() returns.
dsc_result_t read(const PeerMemory& memory, PeerRead& parts, bool& alive, std::string& text) {
  dsc_result_t result = DSC_OK;
  dsc::capture([&] { alive = memory.read(parts); },
               [&](dsc_result_t code, const char* words) { result = code, text = words; });
  return result;
}

bool is_read(const PeerMemory& memory, const void* from, void* to, size_t bytes) {
  PeerRead parts;
  parts.add(to, address_of(from), bytes);
  bool alive = false;
  std::string text;
  assert_int_equal(read(memory, parts, alive, text), DSC_OK);
  return alive;
}

void reads_itself_and_others(void**) {
  std::iota(pattern().begin(), pattern().end(), 3);
  const std::vector<unsigned char> before = pattern();
  const Child child;
  pattern().assign(kBytes, 0);  // the child still has the old values
  const PeerMemory theirs(child.pidfd(), child.pid(), child.pid(), probe());
  const dsc::UniqueFd own_fd = pidfd_of(getpid());
  const PeerMemory own(own_fd.get(), getpid(), gettid(), probe());
  assert_true(theirs.readable() && own.readable());
  std::vector<unsigned char> found(kBytes, 7);
  assert_true(is_read(own, pattern().data(), found.data(), kBytes));
  assert_true(found == pattern());
  assert_true(is_read(theirs, pattern().data(), found.data(), kBytes));
  assert_true(found == before);
}

void reads_many_parts_at_once(void**) {
  std::iota(pattern().begin(), pattern().end(), 1);
  const Child child;
  const PeerMemory memory(child.pidfd(), child.pid(), child.pid(), probe());
  std::vector<unsigned char> found(kBytes);
  PeerRead parts;
  size_t at = 0;
  assert_true(parts.empty());
  for (size_t length = 1; !parts.full(); length += 131, at += length)
    parts.add(&found[at], address_of(&pattern()[at]), length);
  bool alive = false;
  std::string text;
  assert_int_equal(read(memory, parts, alive, text), DSC_OK);
  assert_true(alive && parts.empty());
  at = 0;
  for (size_t part = 0, length = 1; part < 64; ++part, length += 131, at += length)
    assert_memory_equal(&found[at], &pattern()[at], length);
}

void an_end_is_no_error(void**) {
  Child child;
  const pid_t pid = child.pid();
  const PeerMemory memory(child.pidfd(), child.pid(), child.pid(), probe());
  assert_true(memory.readable());
  unsigned char byte = 0;
  child.kill_only();
  while (is_read(memory, pattern().data(), &byte, 1)) usleep(100);  // a process that nobody has waited for
  child.end();
  assert_false(is_read(memory, pattern().data(), &byte, 1));
  const PeerMemory late(child.pidfd(), pid, pid, probe());
  assert_false(late.readable());
  assert_non_null(strstr(late.why_not().c_str(), "PID namespace"));
}

// A process that has the number of the right one, but other memory.
void another_process_is_noticed(void**) {
  const Child child;
  PeerMemory memory(child.pidfd(), child.pid(), child.pid(), {address_of(&probe_value), probe_value + 1});
  assert_false(memory.readable());
  assert_non_null(strstr(memory.why_not().c_str(), "another process"));
  unsigned char byte = 0;
  assert_false(is_read(memory, pattern().data(), &byte, 1));
  memory =
      PeerMemory(child.pidfd(), child.pid(), child.pid(), {4096, probe_value});  // nothing is mapped there
  assert_false(memory.readable());
}

void* two_pages;  // the second one is not mapped in the child
size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

void what_is_not_mapped_is_an_error(void**) {
  two_pages = mmap(nullptr, 2 * page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(two_pages != MAP_FAILED);
  const Child child([] { munmap(static_cast<char*>(two_pages) + page(), page()); });
  const PeerMemory memory(child.pidfd(), child.pid(), child.pid(), probe());
  std::vector<unsigned char> found(2 * page());
  for (const size_t start : {size_t{0}, page()}) {
    PeerRead parts;
    parts.add(found.data(), address_of(two_pages) + start, 2 * page() - start);
    bool alive = false;
    std::string text;
    assert_int_equal(read(memory, parts, alive, text), DSC_ERR_SYSTEM);
    assert_non_null(strstr(text.c_str(), "Bad address"));
    assert_non_null(strstr(text.c_str(), ("thread " + std::to_string(child.pid())).c_str()));
  }
  munmap(two_pages, 2 * page());
}

void knows_what_others_can_read(void**) {
  std::vector<char> bytes(3 * page());
  assert_true(dsc::others_can_read(bytes.data(), bytes.size()));
  assert_true(dsc::others_can_read(bytes.data() + 5, page()));
  void* const closed = mmap(nullptr, 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(closed != MAP_FAILED);
  assert_false(dsc::others_can_read(closed, 1));
  assert_int_equal(mprotect(closed, page(), PROT_READ), 0);
  assert_true(dsc::others_can_read(closed, page()));
  assert_false(dsc::others_can_read(closed, page() + 1));
  munmap(closed, 2 * page());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(reads_itself_and_others),
      cmocka_unit_test(reads_many_parts_at_once),
      cmocka_unit_test(an_end_is_no_error),
      cmocka_unit_test(another_process_is_noticed),
      cmocka_unit_test(what_is_not_mapped_is_an_error),
      cmocka_unit_test(knows_what_others_can_read),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
