#include "control/process.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/error.hpp"
#include "base/process_guard.hpp"
#include "base/random.hpp"

namespace dsc {
namespace {

std::atomic<Process*> the_process{nullptr};

UniqueFd open_own_pidfd() {
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));  // a pidfd is always close-on-exec
  if (!fd) fail_errno(errno, "pidfd_open (needs Linux 5.3)");
  return fd;
}

uint64_t random_word() {
  const Nonce nonce = random_nonce();
  uint64_t word = 0;
  std::memcpy(&word, nonce.data(), sizeof word);
  return word;
}

ProcessPage* start_page(Mapping& mapping, const uint64_t& probe_value) {
  auto* page = new (mapping.data()) ProcessPage{};
  page->magic = kPageMagic;
  page->version = kLayoutVersion;
  page->pid = getpid();
  page->processors = allowed_processors();
  page->probe = {reinterpret_cast<uint64_t>(&probe_value), probe_value};
  return page;
}

// Runs at an orderly exit of the process, so that other ranks see that its ranks left and did not die.
__attribute__((destructor)) void say_goodbye() {
  Process* process = the_process.load();
  if (process && !is_forked_child()) process->page().state.store(ProcessState::kLeft);
}

}  // namespace

Process& Process::get() {
  static Process* const instance = [] {
    mark_process();
    auto* made = new Process;
    the_process = made;
    at_fork_child([] {
      if (Process* inherited = the_process.load()) inherited->close_after_fork();
    });
    return made;
  }();
  return *instance;
}

Process::Process()
    : probe_value_(random_word()),
      page_fd_(create_segment("dsc-process", sizeof(ProcessPage), 1)),
      mapping_(map_segment(page_fd_.get(), sizeof(ProcessPage), OnFork::kGone)),
      page_(start_page(*mapping_, probe_value_)),
      pidfd_(open_own_pidfd()),
      monitor_(endpoint_, *page_) {
  for (auto& fd : held_) fd = -1;
}

void Process::hold(int fd) noexcept {
  for (auto& slot : held_)
    if (int vacant = -1; slot.compare_exchange_strong(vacant, fd)) return;
}

void Process::release(int fd) noexcept {
  for (auto& slot : held_)
    if (int held = fd; slot.compare_exchange_strong(held, -1)) return;
}

void Process::close_after_fork() noexcept {
  endpoint_.close_after_fork();
  monitor_.close_after_fork();
  for (auto& fd : held_)
    if (fd >= 0) close(fd);
  pidfd_.reset();
  page_fd_.reset();
}

}  // namespace dsc
