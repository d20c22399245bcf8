// The engine for several hosts. It uses the host engine among the ranks of each host and a transport
// group between the leaders. Every operation is compared on all ranks before its result is used.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/call_signature.hpp"
#include "comm/engine.hpp"
#include "engine_hier/hier_layout.hpp"
#include "engine_hier/hier_queue.hpp"
#include "engine_hier/hier_transfer.hpp"
#include "engine_hier/hier_world.hpp"
#include "engine_host/host_engine.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

class HierEngine final : public GroupEngine {
 public:
  // All ranks of the group call this. `local` holds the group's ranks on this host, in the same order.
  static std::shared_ptr<HierEngine> create(std::shared_ptr<HierWorld> world,
                                            std::shared_ptr<HostEngine> local, HierLayout layout, uint64_t id,
                                            std::string name, int timeout_ms, Deadline deadline);
  ~HierEngine() override;

  int32_t backend() const noexcept override { return DSC_BACKEND_INTER_HOST; }
  bool checks_nonfinite() const noexcept override { return false; }

  void run(const Call& call) override;
  std::shared_ptr<Work> start(const Call& call) override;
  void* allocate(size_t bytes) override;
  bool has_running() noexcept override;
  void finalize() override;

  bool progress(Deadline deadline) override;
  void restart_numbers() noexcept override { collectives_.restart_numbers(); }
  void revoke(const Failure& cause) noexcept override;
  bool revoked() const noexcept override { return revoked_.load(); }
  Failure failure() const override;
  void learn_of(const Failure& cause) noexcept override;
  void leave() noexcept override;
  void leave_if_idle() noexcept override;
  std::shared_ptr<GroupEngine> make_group(const NewGroup& wanted) override;
  int32_t agree_on(int32_t flags) override;
  std::shared_ptr<GroupEngine> shrink(const GroupOptions& options) override;
  void on_status_query(const QueryHandler& answering) override;
  std::vector<Answer> query_hosts(uint64_t number, const std::string& question) override;
  std::vector<Answer> query_rank(int32_t rank, const std::string& question) override;

  // Answers a status query of another host; an empty question asks what this rank did last. Any thread.
  std::string answer(const std::string& question) const;

 private:
  friend class HierTransfer;

  HierEngine(std::shared_ptr<HierWorld> world, std::shared_ptr<HostEngine> local, HierLayout layout,
             uint64_t id, std::string name, int timeout_ms);
  // The operation in which a thread waits, and whether it was reported as late.
  struct Waiting {
    OpKind kind = OpKind::kBarrier;
    uint64_t number = 0;
    int64_t since_ns = 0;
    bool reported = false;
  };
  struct Link {
    std::unique_ptr<TransportGroup> wire;
    Waiting waiting;
  };

  void connect(Deadline deadline);
  void make_wire();
  static std::string wire_key(uint64_t id) { return "hier/" + std::to_string(id); }
  std::string wire_key() const { return wire_key(id()); }
  std::unique_ptr<TransportGroup> open_wire(const std::string& prefix, int own, std::vector<int32_t> members,
                                            Mesh::Members of);
  void connect_and_clear(TransportGroup& wire, const std::string& prefix, int own, Deadline deadline);
  // Sizes of this rank's buffers in bytes; 0 for a buffer that the call does not use.
  struct BufferBytes {
    size_t send, recv;
  };
  BufferBytes bytes_of(const Call& call) const noexcept;
  HierQueue::Open opener();
  HierQueue::Execute executor();
  std::optional<Record> open_record(const Call& call, uint64_t number) noexcept;
  Failure execute(const Call& call, uint64_t number, std::optional<Record>& record) noexcept;
  void perform(const Call& call, uint64_t number, Record& record);
  void compare(const Call& call, uint64_t number, Deadline deadline, HierTransfer* along);
  // A member sends this to its leader: its call signature and its inline data.
  struct Row {
    CallSignature shown;
    std::byte part[kSmallBytes];
  };
  void gather_rows(const Row& mine, std::span<Row> rows, Deadline deadline);
  CallDifference compare_hosts(std::span<const Row> rows, Deadline deadline, HierTransfer* along,
                               std::byte* result);
  CallDifference difference_of(std::span<const TransportGroup::Met> met) const;
  // A leader broadcasts this on its host: the result of inline data, or why the operation failed.
  struct Outcome {
    void fail(dsc_result_t why, const char* words, std::span<const int32_t> at_fault = {}) noexcept {
      code = why;
      n_ranks = static_cast<int32_t>(std::min(at_fault.size(), std::size(ranks)));
      std::copy_n(at_fault.begin(), n_ranks, ranks);
      std::snprintf(text, sizeof text, "%s", words);
    }
    int32_t code = DSC_OK;
    int32_t n_ranks = 0;
    int32_t ranks[16] = {};  // the ranks at fault, as many as fit
    union {
      std::byte result[kSmallBytes] = {};
      char text[kSmallBytes];
    };
  };
  void tell_members(Outcome& outcome, Deadline deadline);
  void spread(Outcome& outcome, Deadline deadline);
  void check_host() const;
  void note_latest(const Call& call, uint64_t number) noexcept;
  void note_done() noexcept;
  Failure fail_operation(const Call& call, uint64_t number, const Error& error) noexcept;
  void report_late(Waiting& waiting, const std::vector<int32_t>& ranks);
  void explain_time_out(const Call& call, uint64_t number, Failure& cause);
  std::string describe_latest() const;
  std::vector<Answer> ask(const std::vector<int32_t>& ranks, const std::string& question, Deadline deadline);
  void await_failure(int patience_ms) const;
  std::string latest_of(std::vector<int32_t> ranks, Deadline deadline);
  Failure silence() const;
  void take(const Failure& cause) noexcept;
  std::vector<int32_t> members_of(const std::vector<bool>& hosts) const;
  bool was_told_here() const;
  void exchange_message(const Call& call, uint64_t number, Deadline deadline, TransportGroup& wire);
  void run_message(const Call& call, uint64_t number, Deadline deadline);
  std::unique_ptr<TransportGroup> open_among_ranks();
  void connect_among_ranks(std::unique_ptr<TransportGroup> made, Deadline deadline);
  void exchange_among_ranks(std::span<const TransportBlock> sends, std::span<const TransportBlock> receives,
                            Deadline deadline, OverlapHook overlap);
  std::vector<TransportGroup*> other_wires();
  Link& link(int sender, int receiver, Waiting waiting, Deadline deadline);
  HierQueue& queue_for(const Call& call);
  std::vector<HierQueue*> queues();
  void tell_hosts(const char* text) noexcept;
  std::optional<Failure> refusal() const;
  Failure cause_of(const Call& call, uint64_t number, const Error& error) const;
  std::shared_ptr<HostEngine> make_local_part(const NewGroup& wanted);

  const std::shared_ptr<HierWorld> world_;
  const std::shared_ptr<HostEngine> local_;
  const HierLayout layout_;
  std::unique_ptr<TransportGroup> transport_;      // null on ranks that are no leader
  std::array<std::vector<std::byte>, 5> scratch_;  // indexed by HierTransfer::Scratch
  Waiting waiting_;                                // for collectives
  std::atomic<bool> revoked_{false};
  mutable Mutex mutex_;
  Failure cause_ DSC_GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, std::unique_ptr<Link>> links_ DSC_GUARDED_BY(mutex_);  // sender, receiver
  std::optional<bool> connects_ranks_;  // set at the first exchange of large blocks
  std::unique_ptr<TransportGroup> among_ranks_ DSC_GUARDED_BY(mutex_);  // between all ranks
  struct {
    CallFields fields{};
    char note[40] = {};
    uint64_t number = 0;
    bool running = false;
  } latest_ DSC_GUARDED_BY(mutex_);
  QueryHandler query_handler_ DSC_GUARDED_BY(mutex_);
  EventCount completions_;  // incremented when an operation ends
  HierQueue collectives_;
  Mutex queues_mutex_;
  std::map<int32_t, HierQueue> send_queues_ DSC_GUARDED_BY(queues_mutex_);
  std::map<int32_t, HierQueue> recv_queues_ DSC_GUARDED_BY(queues_mutex_);
};

}  // namespace dsc
