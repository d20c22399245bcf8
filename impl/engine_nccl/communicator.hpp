// A communicator of NCCL: made without blocking and within a deadline, used by one thread at a time, ended in
// any case.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "device/device.hpp"
#include "engine_nccl/nccl_library.hpp"

namespace dsc {

struct NcclSettings {
  std::string name;      // for NCCL's own messages
  std::string net_name;  // empty: NCCL chooses
  int min_ctas = 0;      // 0: NCCL chooses
  int max_ctas = 0;
};

// What it is made with, and how long one waits.
struct NcclContext {
  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<const Device> device;
};
struct NcclWait {
  Deadline deadline;
  std::function<void()> check;  // called now and then; throws when there is nothing left to wait for
};

class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  // Collective. With more ids than one, ranks find each other through several roots.
  static std::shared_ptr<NcclCommunicator> create(const NcclContext& context,
                                                  std::span<const NcclUniqueId> ids, int ranks, int rank,
                                                  const NcclSettings& settings, const NcclWait& patience);
  // One of the program's: never destroyed nor aborted here.
  static std::shared_ptr<NcclCommunicator> adopt(const NcclContext& context, NcclComm* comm);
  // If it was not ended, a thread of its own aborts it.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const NcclFunctions& nccl() const noexcept { return context_.library->functions; }
  const NcclContext& context() const noexcept { return context_; }

  // Collective among the ranks of this one; null for color kNcclNoColor.
  std::shared_ptr<NcclCommunicator> split(int color, int key, const NcclSettings& settings,
                                          const NcclWait& patience);

  // Runs calls of NCCL on this communicator, and waits until all of them are on their streams.
  using Calls = std::function<void(NcclComm* comm)>;
  void enqueue(const Calls& calls, const NcclWait& patience);
  // Throws BACKEND unless it is a success or goes on by itself.
  void check(NcclResult result, const char* function) const;

  // Collective: NCCL knows this memory, each rank's own; null where it has nothing of the kind. Any offsets
  // and other memory may meet it, so it is not declared to be symmetric.
  NcclWindow* register_window(void* memory, size_t bytes, const NcclWait& patience);

  // In enqueue(): a sum of inputs that are multiplied by a scalar, for as long as this is used.
  NcclOp make_scaled_sum(NcclComm* comm, void* scalar, NcclType type);
  void drop_scaled_sum(NcclComm* comm, NcclOp op);

  // What went wrong behind the calls' back; success while nothing did, or while another thread is inside.
  NcclResult async_error() noexcept;
  std::string words(NcclResult result) const;

  // Collective: waits for all that was enqueued; then it is gone. Several are all begun before one is ended,
  // since other ranks may take them in another order.
  void begin_finalize();
  void end_finalize(const NcclWait& patience);
  // Ends what runs and releases it. May hang: see `ended`. Any thread, also while another one is inside.
  void abort() noexcept;
  // By a rank alone: lets what was enqueued run to its end, and releases it. False if the patience was over
  // before: abort() is left. One of the program's is only let go of.
  bool leave(const NcclWait& patience) noexcept;
  bool is_adopted() const noexcept { return adopted_; }
  bool ended() const noexcept { return ended_.load(); }
  // Called when NCCL uses nothing of this any more, or at once if it does not.
  void after_end(std::function<void()> action);

 private:
  explicit NcclCommunicator(const NcclContext& context, bool adopted = false)
      : context_(context), adopted_(adopted), kept_(std::make_shared<Kept>()) {}
  // NCCL's own threads may read and write it for as long as its communicator lives.
  struct Kept {
    NcclSettings settings;
    std::deque<NcclWindow*> windows;
    std::vector<NcclOp> scaled_sums;
    Mutex mutex;
    bool ended DSC_GUARDED_BY(mutex) = false;
    std::vector<std::function<void()>> after DSC_GUARDED_BY(mutex);
    void end() noexcept;
  };
  std::unique_lock<std::mutex> lock_until(Deadline deadline);
  void drop_scaled_sums();
  void set_ended() noexcept;
  using Make = std::function<NcclResult(NcclComm** comm, NcclConfig* config)>;
  void begin_to_make(const NcclSettings& settings, const Make& make, const char* function);
  void await_made(const char* function, const NcclWait& patience);
  void settle(const char* function, const NcclWait& patience);
  NcclComm* usable() const;

  const NcclContext context_;
  const bool adopted_;
  const std::shared_ptr<Kept> kept_;
  NcclComm* made_ = nullptr;  // where NCCL puts it, at a split by a thread of its own
  std::atomic<NcclComm*> comm_{nullptr};
  std::shared_ptr<NcclCommunicator> splitting_;  // kept while NCCL may still write into it
  std::atomic<bool> aborting_{false};            // or released otherwise
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // held inside NCCL
};

// A fresh one; needs no driver.
NcclUniqueId make_unique_id(const NcclLibrary& library);

}  // namespace dsc
