// Ranks as separate processes that a test kills, stops and watches. A rank never asserts, because a failed
// assertion in a child would go unnoticed. It writes its outcomes into its Report, which is memory shared
// with the test, and the test asserts.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dsc/dsc.h"

namespace fault {

int64_t now_us();
inline int64_t now_ms() { return now_us() / 1000; }
void sleep_ms(int ms);
// Returns a count or a seed from the environment.
int64_t setting(const char* variable, int64_t fallback);
// Returns the factor by which a sanitizer slows the tests down.
int slowdown();

// The limit for "immediately" on a busy machine. Every time-out is longer, except those that are tested.
inline constexpr int64_t kAtOnceUs = 10'000'000;
inline constexpr int kAtOnceMs = kAtOnceUs / 1000;
// The limit that libdsc promises on a machine that is not busy.
inline constexpr int64_t kPromisedUs = 1'000'000;

// The outcome of one call.
struct Outcome {
  int32_t result;    // also 0 before the call: see `made`
  int32_t made;      // 1 after the call returned
  int32_t culprit;   // from dsc_comm_error_info: the rank at fault, in the communicator of the call
  int32_t code;      // from dsc_comm_error_info: the first cause
  int32_t revoked;   // from dsc_comm_error_info
  int64_t begin_us;  // set by tests that measure the call
  int64_t end_us;
  char operation[32];
  char text[512];
};

struct Report {
  std::atomic<int32_t> stage;  // how far the rank has got; the test waits for it
  std::atomic<uint64_t> operations;
  std::atomic<int32_t> kernel_copies;  // that have begun and not ended: see kernel_copies.hpp
  Outcome outcomes[8];
  int64_t numbers[8];
  char note[1024];  // as large as the text of a failure in tests/support/ranks.c
};

struct Board {
  char job[32];
  std::atomic<int32_t> order;  // what the test wants the ranks to do next
  Report reports[8];
};

// One rank, in its own process.
class Rank {
 public:
  Rank(int rank, int size, Board& board)
      : rank(rank), size(size), report(board.reports[rank]), board_(board) {}

  // Returns the options of this rank for the world of its crew.
  dsc_init_options_t options() const;
  // Joins the world. After a failure the report says what went wrong.
  bool join(const dsc_init_options_t& options);
  void reach(int32_t stage) { report.stage.store(stage); }
  bool ordered(int32_t order) const { return board_.order.load() >= order; }
  // Waits for an order of the test. Returns false if it is not given in time.
  bool await_order(int32_t order, int timeout_ms) const;
  // Waits until all ranks have reached the stage. Returns false if one does not reach it in time.
  bool await_stage_of_all(int32_t stage, int timeout_ms) const;
  // Records the outcome of a call on `comm`.
  void record(size_t index, dsc_result_t result, dsc_comm_t* comm);
  void note(const char* format, ...) __attribute__((format(printf, 2, 3)));

  const int rank;
  const int size;
  Report& report;
  dsc_comm_t* world = nullptr;

 private:
  Board& board_;
};

// A body returns this to end the rank by exit(0), as a program does that forgot to finalize.
inline constexpr int kExitInOrder = -1;

class Crew {
 public:
  // Starts `size` processes. Each runs `body` and exits with the status that it returns. Crews that run at
  // the same time need different job numbers.
  Crew(int size, const std::function<int(Rank&)>& body, int job = 0);
  // Kills and reaps the processes that still run.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  pid_t pid(int rank) const { return members_[static_cast<size_t>(rank)].pid; }
  const Report& report(int rank) const { return board_->reports[rank]; }
  const Outcome& outcome(int rank, size_t index) const { return report(rank).outcomes[index]; }
  void order(int32_t order) { board_->order.store(order); }

  // Sends a signal. Returns the time at which it was sent, in microseconds.
  int64_t signal(int rank, int number);
  void signal_all(int number);
  bool await_stage(int rank, int32_t stage, int timeout_ms);
  bool await_stage_of_all(int32_t stage, int timeout_ms);
  // Waits until the process has ended, and reaps it.
  bool await_end(int rank, int timeout_ms);
  bool await_end_of_all(int timeout_ms);
  // The time at which the kernel reported the end of the process to the waiting test.
  int64_t ended_us(int rank) const { return members_[static_cast<size_t>(rank)].ended_us; }
  // The exit status, 128 + the signal, or -1 while the process runs.
  int status(int rank) const { return members_[static_cast<size_t>(rank)].status; }
  // Describes the state of all ranks, for a message.
  std::string describe() const;
  // Returns the stacks of all threads of the ranks that still run, if a debugger can read them.
  std::string stacks() const;

 private:
  struct Member {
    pid_t pid;
    int pidfd;
    int status;
    int64_t ended_us;
  };
  Board* board_;
  std::vector<Member> members_;
};

// The teardown of a test. An assertion that fails skips destructors, so this ends every child and orphan that
// still runs.
int end_everything(void**);

// Describes an outcome: "rank 1: DSC_ERR_PEER_DEAD (rank 2): text".
std::string describe(int rank, const Outcome& outcome);
std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace fault
