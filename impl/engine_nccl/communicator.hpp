// Wraps an ncclComm_t. One thread at a time may make and use it. Calls of NCCL do not block, and waiting for
// them has a deadline. The destructor always ends the communicator.
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

// The library and the device of a communicator.
struct NcclContext {
  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<const Device> device;
};
// The limits for waiting for NCCL.
struct NcclWait {
  Deadline deadline;
  std::function<void()> check;  // called repeatedly; throws to end the wait
};

class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  // Collective. With several ids, the ranks find each other through several root ranks.
  static std::shared_ptr<NcclCommunicator> create(const NcclContext& context,
                                                  std::span<const NcclUniqueId> ids, int ranks, int rank,
                                                  const NcclSettings& settings, const NcclWait& limits);
  // Wraps a communicator of the program, which is never destroyed or aborted here.
  static std::shared_ptr<NcclCommunicator> adopt(const NcclContext& context, NcclComm* comm);
  // If the communicator has not ended, a separate thread aborts it.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const NcclFunctions& nccl() const noexcept { return context_.library->functions; }
  const NcclContext& context() const noexcept { return context_; }

  // Collective among the ranks of this communicator. Returns null for color kNcclNoColor.
  std::shared_ptr<NcclCommunicator> split(int color, int key, const NcclSettings& settings,
                                          const NcclWait& limits);

  // Runs calls of NCCL on this communicator, and waits until all of them are on their streams.
  using Calls = std::function<void(NcclComm* comm)>;
  void enqueue(const Calls& calls, const NcclWait& limits);
  // Throws BACKEND unless the result is success or in_progress.
  void check(NcclResult result, const char* function) const;

  // Collective: registers each rank's memory with NCCL. Returns null if the library cannot do that. The
  // window is not declared symmetric, because calls may use any offset in it, and may use it together with
  // memory outside of it.
  NcclWindow* register_window(void* memory, size_t bytes, const NcclWait& limits);

  // Called inside enqueue(). Makes or releases an operation of NCCL that multiplies each input by a scalar
  // and sums the products.
  NcclOp make_scaled_sum(NcclComm* comm, void* scalar, NcclType type);
  void drop_scaled_sum(NcclComm* comm, NcclOp op);

  // Returns NCCL's asynchronous error; success if there is none, or while another thread uses the
  // communicator.
  NcclResult async_error() noexcept;
  std::string words(NcclResult result) const;

  // Collective, in two steps: wait for all enqueued calls, then destroy the communicator. With several
  // communicators, begin all of them before ending the first, because other ranks may end them in another
  // order.
  void begin_finalize();
  void end_finalize(const NcclWait& limits);
  // Aborts running calls and releases the communicator. This may hang; ended() is true afterwards. Any thread
  // may call this, even while another thread uses the communicator.
  void abort() noexcept;
  // Not collective: lets enqueued calls run to their end, and then releases the communicator. A communicator
  // of the program is only detached. Returns false if that took too long; then only abort() remains.
  bool leave(const NcclWait& limits) noexcept;
  bool is_adopted() const noexcept { return adopted_; }
  bool ended() const noexcept { return ended_.load(); }
  // Runs `action` when NCCL no longer uses anything of this communicator; immediately if that is already the
  // case.
  void after_end(std::function<void()> action);

 private:
  explicit NcclCommunicator(const NcclContext& context, bool adopted = false)
      : context_(context), adopted_(adopted), kept_(std::make_shared<Kept>()) {}
  // Memory that NCCL's own threads may access as long as NCCL's communicator exists.
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
  void await_made(const char* function, const NcclWait& limits);
  void await_completion(const char* function, const NcclWait& limits);
  NcclComm* usable() const;

  const NcclContext context_;
  const bool adopted_;
  const std::shared_ptr<Kept> kept_;
  NcclComm* made_ = nullptr;  // written by NCCL; for a split, by a thread of NCCL
  std::atomic<NcclComm*> comm_{nullptr};
  // The parent's child, kept while NCCL may still write into it.
  std::shared_ptr<NcclCommunicator> splitting_;
  // Also set when the communicator is released without an abort.
  std::atomic<bool> aborting_{false};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // held during calls of NCCL
};

// Returns a new id. Needs no driver.
NcclUniqueId make_unique_id(const NcclLibrary& library);

}  // namespace dsc
