// The store in a file: leftovers of processes that died, files that are not stores, and values that do not
// fit.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "repetitions.h"
#include "store/file_lock.hpp"
#include "store_support.hpp"

namespace {

using namespace dsc;
using namespace dsc::test;

// Starts a child that exits with 0 if `body` returns true. The child is killed after 90 s.
pid_t in_child(const std::function<bool()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(90);
  bool good = false;
  const Outcome outcome = outcome_of([&] { good = body(); });
  if (outcome.code != DSC_OK) std::fprintf(stderr, "child: %s\n", outcome.text.c_str());
  ::_exit(good ? 0 : 1);
}

void assert_ends_well(pid_t pid) {
  int status = -1;
  assert_int_equal(::waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

void kill_now(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void what_the_dead_left_is_gone(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  const pid_t dead = in_child([&] {
    FileStore store(path, "job", soon());
    store.set("address", "old", soon());
    store.set("ready", "", soon());
    ::pause();
    return false;
  });
  {
    const std::string ready[] = {"ready"};
    FileStore beside(path, "job", soon());
    beside.wait(ready, soon());
    kill_now(dead);
    assert_string_equal(beside.get("address", soon()).c_str(), "old");  // the values of the job are kept
  }
  const pid_t another = in_child([&] {
    FileStore store(path, "job", soon());
    store.set("address", "old", soon());
    if (::fork() == 0) {  // a child process that outlives the job does not keep the file in use
      ::alarm(2);
      ::pause();
    }
    ::raise(SIGKILL);
    return false;
  });
  ::waitpid(another, nullptr, 0);
  assert_true(exists(path));
  {
    FileStore store(path, "another job", soon());
    assert_int_equal(store.count(soon()), 0);
  }
  assert_false(exists(path));
}

void the_last_one_removes_it(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  auto a = std::make_unique<FileStore>(path, "", soon());
  auto b = std::make_unique<FileStore>(path, "", soon());
  a.reset();
  assert_true(exists(path));
  b->set("k", "v", soon());
  b.reset();
  assert_false(exists(path));
}

// Writers may die at any moment. What the others have written stays intact.
void writers_may_die(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  FileStore store(path, "job", soon());
  const int rounds = test_repetitions(20, 5);
  for (int round = 0; round < rounds; ++round) {
    const pid_t writer = in_child([&]() -> bool {
      FileStore mine(path, "job", soon());
      for (int i = 0;; ++i) mine.set("big" + std::to_string(i % 3), std::string(200000, 'x'), soon());
    });
    ::usleep(static_cast<useconds_t>(5000 + round % 20 * 700));
    kill_now(writer);
    assert_int_equal(store.add("rounds", 1, soon()), round + 1);
    const std::string keys[] = {"big0"};
    if (store.check(keys, soon())) assert_int_equal(store.get("big0", soon()).size(), 200000);
  }
}

void a_record_that_was_cut_off_is_dropped(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  FileStore a(path, "job", soon());
  a.set("k", "before", soon());
  for (const std::string& rest : {std::string("\x40\0\0\0", 4), std::string("\x05\0\0\0........hello", 17)}) {
    std::ofstream(path, std::ios::app | std::ios::binary) << rest;
    FileStore b(path, "job", soon());
    assert_string_equal(b.get("k", soon()).c_str(), "before");
    a.set("n", "1", soon());
    assert_string_equal(b.get("n", soon()).c_str(), "1");
  }
}

void processes_count_together(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  FileStore store(path, "job", soon());
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i)
    children.push_back(in_child([&] {
      FileStore mine(path, "job", Deadline::after_ms(20000));
      for (int k = 0; k < 50; ++k) mine.add("n", 1, Deadline::after_ms(20000));
      return true;
    }));
  for (const pid_t child : children) assert_ends_well(child);
  assert_int_equal(store.add("n", 0, soon()), 200);
}

void leaves_other_files_alone(void**) {
  Folder folder;
  const std::string foreign = folder.file("foreign");
  std::ofstream(foreign) << "somebody's thesis";
  assert_int_equal(::chmod(foreign.c_str(), 0600), 0);
  CHECK_FAILS(FileStore(foreign, "job", soon()), DSC_ERR_PROTOCOL, foreign.c_str(),
              "the file was not changed");
  assert_string_equal(content_of(foreign).c_str(), "somebody's thesis");
  const std::string link = folder.file("link");
  assert_int_equal(::symlink(foreign.c_str(), link.c_str()), 0);
  CHECK_FAILS(FileStore(link, "job", soon()), DSC_ERR_SYSTEM, link.c_str());
  CHECK_FAILS(FileStore("/", "job", soon()), DSC_ERR_SYSTEM, "/");
  CHECK_FAILS(FileStore(folder.file("no") + "/such/folder", "job", soon()), DSC_ERR_SYSTEM, "No such file");
  CHECK_FAILS(FileStore("", "job", soon()), DSC_ERR_INVALID_ARG, "path");
  CHECK_FAILS(FileStore(folder.file("x"), std::string(65, 'j'), soon()), DSC_ERR_INVALID_ARG, "65 bytes");
  const std::string open_to_all = folder.file("open");
  std::ofstream(open_to_all) << "";
  assert_int_equal(::chmod(open_to_all.c_str(), 0666), 0);
  CHECK_FAILS(FileStore(open_to_all, "job", soon()), DSC_ERR_AUTH, "mode 666", "expected 600");
  const std::string fifo = folder.file("fifo");
  assert_int_equal(::mkfifo(fifo.c_str(), 0600), 0);
  CHECK_FAILS(FileStore(fifo, "job", soon()), DSC_ERR_INVALID_ARG, "not a regular file");
}

// After a store could not be opened, the number of its descriptor may be used for another file. A forked
// child must not close that file.
void a_child_keeps_what_is_not_ours(void**) {
  Folder folder;
  const std::string foreign = folder.file("foreign");
  std::ofstream(foreign) << "somebody's thesis";
  assert_int_equal(::chmod(foreign.c_str(), 0600), 0);
  assert_int_equal(outcome_of([&] { FileStore(foreign, "job", soon()); }).code, DSC_ERR_PROTOCOL);
  const int own = ::open(foreign.c_str(), O_RDONLY | O_CLOEXEC);
  assert_ends_well(in_child([&] { return ::fcntl(own, F_GETFD) >= 0; }));
  ::close(own);
}

void jobs_do_not_mix(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  auto ours = std::make_unique<FileStore>(path, "ours", soon());
  const int64_t start = now_ns();
  CHECK_FAILS(FileStore(path, "theirs", Deadline::after_ms(50)), DSC_ERR_ADDR_IN_USE, path.c_str(),
              "another id");
  assert_true(now_ns() - start < kAtOnceNs);
  std::thread leaver([&] {
    ::usleep(50000);
    ours.reset();
  });
  FileStore theirs(path, "theirs", soon());  // succeeds when the last store with the other id is closed
  leaver.join();
}

void one_who_keeps_the_lock_is_no_reason_to_hang(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  FileStore store(path, "job", soon());
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  assert_true(try_lock_file(fd, LockByte::kWriter, F_WRLCK, path));
  CHECK_FAILS(store.set("k", "v", Deadline::after_ms(50)), DSC_ERR_TIMEOUT, path.c_str(), "locked");
  ::close(fd);
  store.set("k", "v", soon());
}

// A limit of the process simulates a full file system: reading still works, and a value that did not fit is
// not stored.
void a_full_file_system_is_an_error(void**) {
  Folder folder;
  const std::string path = folder.file("store");
  FileStore store(path, "job", soon());
  store.set("k", "small", soon());
  assert_ends_well(in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10000, 10000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    FileStore mine(path, "job", soon());
    const Outcome outcome = outcome_of([&] { mine.set("k", std::string(20000, 'x'), soon()); });
    return outcome.code == DSC_ERR_NOSPACE && mine.get("k", soon()) == "small" &&
           mine.add("n", 1, soon()) == 1;
  }));
  assert_string_equal(store.get("k", soon()).c_str(), "small");
  assert_int_equal(store.add("n", 1, soon()), 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_the_dead_left_is_gone),
      cmocka_unit_test(the_last_one_removes_it),
      cmocka_unit_test(writers_may_die),
      cmocka_unit_test(a_record_that_was_cut_off_is_dropped),
      cmocka_unit_test(processes_count_together),
      cmocka_unit_test(leaves_other_files_alone),
      cmocka_unit_test(a_child_keeps_what_is_not_ours),
      cmocka_unit_test(jobs_do_not_mix),
      cmocka_unit_test(one_who_keeps_the_lock_is_no_reason_to_hang),
      cmocka_unit_test(a_full_file_system_is_an_error),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
