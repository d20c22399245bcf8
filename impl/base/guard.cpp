#include "base/guard.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "base/pages.hpp"
#include "base/utf8.hpp"

namespace dsc {
namespace {

// Storage for the last error of a thread.
struct Kept {
  char message[1024] = {};
  Failure failure;
};
constinit thread_local Kept kept;
thread_local int callback_depth = 0;

// Points to a word in a page that the kernel clears in a forked child. Reading the word detects a fork
// without a system call.
std::atomic<const volatile int*> alive_word{nullptr};

constexpr size_t kForkActions = 4;
std::array<std::atomic<void (*)()>, kForkActions> fork_actions{};

void run_fork_actions() {
  for (auto& action : fork_actions)
    if (auto* run = action.load()) run();
}

void make_alive_page() {
  const size_t bytes = page_bytes();
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  if (madvise(page, bytes, MADV_WIPEONFORK) != 0)
    fail(DSC_ERR_SYSTEM, "madvise(MADV_WIPEONFORK) needs Linux 4.14");
  if (pthread_atfork(nullptr, nullptr, run_fork_actions) != 0) {
    munmap(page, bytes);
    throw std::bad_alloc();
  }
  *static_cast<int*>(page) = 1;
  alive_word.store(static_cast<const volatile int*>(page), std::memory_order_release);
}

}  // namespace

void mark_process() {
  [[maybe_unused]] static const bool once = [] {
    make_alive_page();
    return true;
  }();
}

bool is_forked_child() noexcept {
  const volatile int* word = alive_word.load(std::memory_order_acquire);
  return word && *word == 0;
}

void at_fork_child(void (*action)()) {
  for (auto& slot : fork_actions) {
    void (*vacant)() = nullptr;
    if (slot.load() == action || slot.compare_exchange_strong(vacant, action)) return;
  }
}

bool in_callback() noexcept { return callback_depth > 0; }
CallbackScope::CallbackScope() noexcept { ++callback_depth; }
CallbackScope::~CallbackScope() { --callback_depth; }

bool call_out_impl(void (*invoke)(void*), void* body) {
  try {
    invoke(body);
    return true;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return false;
  }
}

dsc_result_t check_entry(const char* function) noexcept {
  if (is_forked_child())
    return keep_error(
        function,
        Error(DSC_ERR_FORKED,
              "called in a child made by fork(); use the library only in the parent, or exec() in the child")
            .failure());
  if (in_callback())
    return keep_error(
        function,
        Error(DSC_ERR_REENTRANT, "called from inside a callback, where only pure functions may be called")
            .failure());
  return DSC_OK;
}

dsc_result_t keep_error(const char* function, const Failure& failure) noexcept {
  kept.failure = failure;
  std::snprintf(kept.message, sizeof kept.message, "%s: %s", function, failure.text.c_str());
  make_utf8(kept.message);  // the text may quote arguments of the caller that are not valid UTF-8
  return failure.code;
}

void name_exception(void (*report)(void* context, const Error& error), void* context) {
  try {
    throw;
  } catch (const Error& error) {
    report(context, error);
  } catch (const std::bad_alloc&) {
    report(context, Error(DSC_ERR_NOMEM, "out of memory"));
  } catch (const std::system_error& error) {
    // The standard library throws this if a thread cannot be started.
    report(context, Error(DSC_ERR_SYSTEM, error.what()));
  } catch (const std::exception& error) {
    report(context, Error(DSC_ERR_INTERNAL, error.what()));
  } catch (...) {
    report(context, Error(DSC_ERR_INTERNAL, "an exception of an unknown type"));
  }
}

dsc_result_t keep_exception(const char* function) noexcept {
  name_exception([](void* context,
                    const Error& error) { keep_error(static_cast<const char*>(context), error.failure()); },
                 const_cast<char*>(function));
  return kept.failure.code;
}

LastError last_error() noexcept { return {kept.message, &kept.failure}; }

}  // namespace dsc
