// Calls that the ranks of one host publish, so that they can be compared without waiting. Every rank
// publishes its latest calls and reads the calls of the others that have the same sequence number. The rank
// that publishes later detects a difference.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "comm/call_signature.hpp"
#include "comm/engine.hpp"
#include "control/group.hpp"
#include "control/memory.hpp"

namespace dsc {

struct DifferingCall {
  int32_t rank;  // the rank with a different call
  std::string text;
};

// What one host knows about an operation.
struct CallThere {
  uint64_t fingerprint = 0;  // equal for equal calls; 0: not called, or too long ago
  int32_t rank = kNoRank;    // a rank that made this call
  std::string words;
  std::vector<int32_t> late;  // ranks that have not made the call
  std::string late_text;      // a text about these ranks and their latest calls
};

class PublishedCalls {
 public:
  // Returns the bytes of shared memory that every rank needs.
  static size_t bytes(int members) noexcept;

  // `id` is that of the communicator; `memory` is zeroed memory of bytes() per rank, which the members have
  // allocated together.
  PublishedCalls(uint64_t id, std::shared_ptr<Allocation> memory, LocalMembers members);

  // Publishes this rank's next collective, and compares it if it runs on a device. Calls on host memory take
  // a sequence number here too, but are compared elsewhere. Only one thread at a time may call this.
  std::optional<DifferingCall> publish(const Call& call, bool on_device);
  // Publishes this rank's next message and compares it with the call at the other end. Afterwards
  // latest_message() returns its sequence number. Only one thread at a time may call this.
  std::optional<DifferingCall> publish_message(const Call& call);

  uint64_t latest_message(const Call& call) const noexcept;

  // publish_failed_step() publishes that a collective step has failed on this rank. has_failed_step() is true
  // if the step, or a later one, has failed on any rank of this host. Steps are counted from 1. Any thread
  // may call this.
  void publish_failed_step(uint64_t step) noexcept;
  bool has_failed_step(uint64_t step) const noexcept;

  // --- Any thread may call these functions.
  uint64_t latest() const noexcept { return latest_.load(); }
  OpKind kind_of(uint64_t sequence) const;  // of this rank's own collective
  // Returns the sequence number of the latest collective that all ranks of this host have called.
  uint64_t least() const noexcept;
  // Returns the ranks of this host that have not called the collective with this sequence number.
  std::vector<int32_t> missing(uint64_t sequence) const;
  bool has_left(int32_t rank) const noexcept;
  // Returns what the ranks of this host know about a collective.
  CallThere called(uint64_t sequence) const;
  // Returns what is known about a message at its end `rank`, which is a rank of this host. If the peer is on
  // another host, `rank` must be this rank.
  CallThere called_message(OpKind kind, int32_t rank, int32_t peer, uint64_t sequence) const;
  bool is_here(int32_t rank) const noexcept { return member_of(rank) >= 0; }

 private:
  struct Entry {
    CallSignature shown;
    uint64_t on_device;
  };
  using Recent = std::map<uint64_t, Entry>;  // by sequence number
  static constexpr size_t kWords = sizeof(Entry) / sizeof(uint64_t);
  static constexpr size_t kEntries = 256;
  static constexpr size_t kMessages = 16;
  static constexpr size_t kHeadBytes = 64;

  static size_t message_offset(int members, bool sends, int peer, uint64_t sequence) noexcept;
  SharedRecord entry(int member, uint64_t sequence) const noexcept;
  SharedRecord message(int member, bool sends, int peer, uint64_t sequence) const noexcept;
  std::atomic<uint64_t>& head(int member) const noexcept;
  std::atomic<uint64_t>& failed_step(int member) const noexcept;
  std::byte* base(int member) const noexcept;
  int size() const noexcept { return members_.group->size(); }
  int self() const noexcept { return members_.group->rank(); }
  int member_of(int32_t rank) const noexcept;  // -1: on another host
  std::string difference_text(const Entry& mine, const Entry& other, int32_t rank) const;
  std::string describe_latest(int member) const;
  Recent messages_between(int member, int peer, bool sends) const;

  const uint64_t id_;
  const std::shared_ptr<Allocation> memory_;
  const LocalMembers members_;
  std::atomic<uint64_t> latest_{0};
  std::vector<uint64_t> sent_, received_;  // count of messages, by member
  mutable Mutex mutex_;
  // The latest messages exchanged with ranks of other hosts. They are not in shared memory, so each rank
  // knows only its own. The key is (true if this rank sends, peer).
  std::map<std::pair<bool, int32_t>, Recent> far_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
