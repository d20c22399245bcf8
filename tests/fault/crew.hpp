// Ranks as processes of their own, which a test kills, stops and watches.
//
// A rank never asserts: an assertion that fails in a child would go unseen. It writes what it met into its
// Report, which lies in memory shared with the test, and the test asserts.
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
// A count or a seed from the environment.
int64_t setting(const char* variable, int64_t fallback);
// How much longer things take under a sanitizer.
int slowdown();

// "At once", also where others keep the machine busy; every time-out is longer, but for those that are
// tested.
inline constexpr int64_t kAtOnceUs = 10'000'000;
inline constexpr int kAtOnceMs = kAtOnceUs / 1000;
// What is promised where nobody does.
inline constexpr int64_t kPromisedUs = 1'000'000;

// What one call gave.
struct Outcome {
  int32_t result;    // 0 also while the call has not been made: see made
  int32_t made;      // 1: the call returned
  int32_t culprit;   // dsc_comm_error_info: the rank at fault, in the communicator of the call
  int32_t code;      // dsc_comm_error_info: the first cause
  int32_t revoked;   // dsc_comm_error_info
  int64_t begin_us;  // where the test cares
  int64_t end_us;
  char operation[32];
  char text[512];
};

struct Report {
  std::atomic<int32_t> stage;  // how far the rank has come; the test waits for it
  std::atomic<uint64_t> operations;
  Outcome outcomes[8];
  int64_t numbers[8];
  char note[1024];  // as much as tests/support writes
};

struct Board {
  char job[32];
  std::atomic<int32_t> order;  // what the test wants the ranks to do
  Report reports[8];
};

// One rank, in its own process.
class Rank {
 public:
  Rank(int rank, int size, Board& board)
      : rank(rank), size(size), report(board.reports[rank]), board_(board) {}

  // Options of this rank for a world of this crew.
  dsc_init_options_t options() const;
  // Joins the world; says into the report what went wrong.
  bool join(const dsc_init_options_t& options);
  void reach(int32_t stage) { report.stage.store(stage); }
  bool ordered(int32_t order) const { return board_.order.load() >= order; }
  // False if the test did not give the order in time.
  bool await_order(int32_t order, int timeout_ms) const;
  // False if not all ranks came so far in time.
  bool await_stage_of_all(int32_t stage, int timeout_ms) const;
  // Records what a call on `comm` gave.
  void record(size_t index, dsc_result_t result, dsc_comm_t* comm);
  void note(const char* format, ...) __attribute__((format(printf, 2, 3)));

  const int rank;
  const int size;
  Report& report;
  dsc_comm_t* world = nullptr;

 private:
  Board& board_;
};

// Returned by the body: the rank ends by exit(0), as a program does that forgot to finalize.
inline constexpr int kExitInOrder = -1;

class Crew {
 public:
  // Starts `size` processes that run `body` and then end at once with the status that it returns. Crews that
  // live at once need different job numbers.
  Crew(int size, const std::function<int(Rank&)>& body, int job = 0);
  // Kills and reaps what is left.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  pid_t pid(int rank) const { return members_[static_cast<size_t>(rank)].pid; }
  const Report& report(int rank) const { return board_->reports[rank]; }
  const Outcome& outcome(int rank, size_t index) const { return report(rank).outcomes[index]; }
  void order(int32_t order) { board_->order.store(order); }

  // Sends a signal; gives the time at which it was sent, in microseconds.
  int64_t signal(int rank, int number);
  void signal_all(int number);
  bool await_stage(int rank, int32_t stage, int timeout_ms);
  bool await_stage_of_all(int32_t stage, int timeout_ms);
  // Waits until the process ended and reaps it.
  bool await_end(int rank, int timeout_ms);
  bool await_end_of_all(int timeout_ms);
  // When the process was seen to have ended: as soon as the kernel says so to who waits.
  int64_t ended_us(int rank) const { return members_[static_cast<size_t>(rank)].ended_us; }
  // Exit status; 128 + signal; -1 while it runs.
  int status(int rank) const { return members_[static_cast<size_t>(rank)].status; }
  // Where everybody is, for a message.
  std::string describe() const;
  // What every thread of the ranks that still run is doing, as far as a debugger can tell.
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

// Teardown of a test: an assertion that fails skips destructors, so this ends every child and orphan that is
// left.
int end_everything(void**);

// Says what a rank met: "rank 1: DSC_ERR_PEER_DEAD (rank 2): text".
std::string describe(int rank, const Outcome& outcome);
std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace fault
