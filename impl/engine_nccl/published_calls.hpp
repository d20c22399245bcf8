// What the ranks of one host have called, for comparing without waiting: every rank shows its latest calls
// and looks at what the others show under the same number. Whoever comes second sees a difference.
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
#include "comm/comm.hpp"
#include "control/group.hpp"
#include "control/memory.hpp"

namespace dsc {

// They are counted by the ranks and the direction, not among the collectives.
inline bool is_message(const Call& call) { return call.kind == OpKind::kSend || call.kind == OpKind::kRecv; }

struct BoardDifference {
  int32_t rank;  // that shows something else
  std::string text;
};

// What is known of one operation on one host.
struct CallThere {
  uint64_t fingerprint = 0;  // equal where the calls are; 0: nobody called it, or it was long ago
  int32_t rank = kNoRank;    // that called it so
  std::string words;
  std::vector<int32_t> late;  // have not called it
  std::string late_text;      // of them, and what they did last
};

class PublishedCalls {
 public:
  // Room that every rank needs.
  static size_t bytes(int members) noexcept;

  // Of the communicator of that id, over zeroed memory of that size that the members have allocated together.
  PublishedCalls(uint64_t id, std::shared_ptr<Allocation> memory, LocalMembers members);

  // This rank's next collective; calls on host memory are compared elsewhere, but they count. One thread at a
  // time, like the calls.
  std::optional<BoardDifference> publish(const Call& call, bool on_device);
  // Its next message to or from a rank of the communicator. One thread at a time. Then the number of the
  // latest.
  std::optional<BoardDifference> show_message(const Call& call);

  uint64_t latest_message(const Call& call) const noexcept;

  // A step that all take together has failed here, or elsewhere on this host. Steps are counted from 1; any
  // thread.
  void tell_trouble(uint64_t step) noexcept;
  bool in_trouble(uint64_t step) const noexcept;

  // --- Any thread.
  uint64_t latest() const noexcept { return latest_.load(); }
  OpKind kind_of(uint64_t number) const;  // of this rank's own
  // The number up to which all ranks of this host have come.
  uint64_t least() const noexcept;
  // Ranks of this host that have not come so far.
  std::vector<int32_t> behind(uint64_t number) const;
  bool has_left(int32_t rank) const noexcept;
  // A collective, as the ranks of this host called it.
  CallThere called(uint64_t number) const;
  // A message, as one of its ends called it: a rank of this host, or this one with a rank of another host.
  CallThere called_message(OpKind kind, int32_t rank, int32_t peer, uint64_t number) const;
  bool is_here(int32_t rank) const noexcept { return member_of(rank) >= 0; }

 private:
  struct Entry {
    CallSignature shown;
    uint64_t on_device;
  };
  using Recent = std::map<uint64_t, Entry>;  // by number
  static constexpr size_t kWords = sizeof(Entry) / sizeof(uint64_t);
  static constexpr size_t kEntries = 256;
  static constexpr size_t kMessages = 16;
  static constexpr size_t kHeadBytes = 64;

  static size_t message_place(int members, bool sends, int peer, uint64_t number) noexcept;
  SharedRecord entry(int member, uint64_t number) const noexcept;
  SharedRecord message(int member, bool sends, int peer, uint64_t number) const noexcept;
  std::atomic<uint64_t>& head(int member) const noexcept;
  std::atomic<uint64_t>& trouble(int member) const noexcept;
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
  std::vector<uint64_t> sent_, received_;  // messages so far, by member
  mutable Mutex mutex_;
  // Messages with ranks of other hosts, which only this rank knows: sends or not, and with whom.
  std::map<std::pair<bool, int32_t>, Recent> far_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
