#include "engine_nccl/published_calls.hpp"

#include <algorithm>

#include "base/fixed_text.hpp"

namespace dsc {
namespace {

constexpr uint64_t kOnHost = 1;  // all calls on host memory have this fingerprint
constexpr size_t kMostDescribed = 4;

std::string words(const CallSignature& shown, bool on_device) {
  return describe(shown.fields, bounded_text(shown.note).c_str()) +
         (on_device ? " on its device" : " in host memory");
}

}  // namespace

size_t PublishedCalls::message_offset(int members, bool sends, int peer, uint64_t sequence) noexcept {
  const auto n = static_cast<size_t>(members);
  const size_t ring = (sends ? n : 0) + static_cast<size_t>(peer);
  return kHeadBytes + (kEntries + ring * kMessages + sequence % kMessages) * SharedRecord::bytes(kWords);
}

size_t PublishedCalls::bytes(int members) noexcept { return message_offset(members, true, members, 0); }

PublishedCalls::PublishedCalls(uint64_t id, std::shared_ptr<Allocation> memory, LocalMembers members)
    : id_(id),
      memory_(std::move(memory)),
      members_(std::move(members)),
      sent_(static_cast<size_t>(size())),
      received_(static_cast<size_t>(size())) {}

std::byte* PublishedCalls::base(int member) const noexcept {
  return memory_->segments->base(members_.group->local_rank(member));
}

std::atomic<uint64_t>& PublishedCalls::head(int member) const noexcept {
  return *reinterpret_cast<std::atomic<uint64_t>*>(base(member));
}

std::atomic<uint64_t>& PublishedCalls::failed_step(int member) const noexcept { return (&head(member))[1]; }

void PublishedCalls::publish_failed_step(uint64_t step) noexcept { failed_step(self()).store(step); }

bool PublishedCalls::has_failed_step(uint64_t step) const noexcept {
  for (int member = 0; member < size(); ++member)
    if (failed_step(member).load() >= step) return true;
  return false;
}

SharedRecord PublishedCalls::entry(int member, uint64_t sequence) const noexcept {
  return {base(member) + kHeadBytes + sequence % kEntries * SharedRecord::bytes(kWords), kWords};
}

SharedRecord PublishedCalls::message(int member, bool sends, int peer, uint64_t sequence) const noexcept {
  return {base(member) + message_offset(size(), sends, peer, sequence), kWords};
}

int PublishedCalls::member_of(int32_t rank) const noexcept {
  const auto found = std::ranges::find(members_.ranks, rank);
  return found == members_.ranks.end() ? -1 : static_cast<int>(found - members_.ranks.begin());
}

std::string PublishedCalls::difference_text(const Entry& mine, const Entry& other, int32_t rank) const {
  return "rank " + std::to_string(members_.ranks[static_cast<size_t>(self())]) + ": " +
         words(mine.shown, mine.on_device) + "; rank " + std::to_string(rank) + ": " +
         words(other.shown, other.on_device);
}

std::optional<DifferingCall> PublishedCalls::publish(const Call& call, bool on_device) {
  const uint64_t sequence = latest_.load(std::memory_order_relaxed) + 1;
  Entry mine{dsc::signature_of(call, id_, sequence), on_device};
  if (!on_device) mine.shown.fingerprint = kOnHost;
  entry(self(), sequence).write(sequence, &mine);
  head(self()).store(sequence, std::memory_order_seq_cst);
  latest_.store(sequence, std::memory_order_relaxed);
  for (int member = 0; member < size(); ++member) {
    Entry other{};
    if (member == self() || !entry(member, sequence).read(sequence, &other)) continue;
    const int32_t rank = members_.ranks[static_cast<size_t>(member)];
    if (other.shown.fingerprint != mine.shown.fingerprint)
      return DifferingCall{rank, difference_text(mine, other, rank)};
  }
  return std::nullopt;
}

// The two ends of a message differ in kind and peer, so only count and type are compared.
std::optional<DifferingCall> PublishedCalls::publish_message(const Call& call) {
  const bool sends = call.kind == OpKind::kSend;
  Call equal;
  equal.kind = OpKind::kSend;
  equal.count = call.count;
  equal.dtype = call.dtype;
  const uint64_t sequence = latest_message(call) + 1;
  Entry mine{dsc::signature_of(call, id_, sequence), 1};
  mine.shown.fingerprint = fingerprint(id_, sequence, fields_of(equal));
  const int peer = member_of(call.root);
  if (peer < 0) {
    const MutexLock lock(mutex_);
    Recent& recent = far_[{sends, call.root}];
    recent.emplace(sequence, mine);
    if (recent.size() > kMessages) recent.erase(recent.begin());
    return std::nullopt;
  }
  (sends ? sent_ : received_)[static_cast<size_t>(peer)] = sequence;
  message(self(), sends, peer, sequence).write(sequence, &mine);
  Entry other{};
  if (!message(peer, !sends, self(), sequence).read(sequence, &other)) return std::nullopt;
  if (other.shown.fingerprint == mine.shown.fingerprint) return std::nullopt;
  return DifferingCall{call.root, difference_text(mine, other, call.root)};
}

uint64_t PublishedCalls::latest_message(const Call& call) const noexcept {
  const bool sends = call.kind == OpKind::kSend;
  const int peer = member_of(call.root);
  if (peer >= 0) return (sends ? sent_ : received_)[static_cast<size_t>(peer)];
  const MutexLock lock(mutex_);
  const auto known = far_.find({sends, call.root});
  return known == far_.end() ? 0 : known->second.rbegin()->first;
}

// Returns the latest messages of a member with a peer in one direction.
PublishedCalls::Recent PublishedCalls::messages_between(int member, int peer, bool sends) const {
  Recent recent;
  for (size_t slot = 0; slot < kMessages; ++slot) {
    const SharedRecord record = message(member, sends, peer, slot);
    Entry entry{};
    if (const uint64_t sequence = record.number(); sequence != 0 && record.read(sequence, &entry))
      recent.emplace(sequence, entry);
  }
  return recent;
}

CallThere PublishedCalls::called_message(OpKind kind, int32_t rank, int32_t peer, uint64_t sequence) const {
  const bool sends = kind == OpKind::kSend;
  Recent recent;
  if (member_of(rank) >= 0 && member_of(peer) >= 0) {
    recent = messages_between(member_of(rank), member_of(peer), sends);
  } else if (member_of(rank) == self()) {
    const MutexLock lock(mutex_);
    if (const auto known = far_.find({sends, peer}); known != far_.end()) recent = known->second;
  }
  CallThere there;
  if (const auto found = recent.find(sequence); found != recent.end()) {
    there.fingerprint = found->second.shown.fingerprint;
    there.rank = rank;
    there.words = words(found->second.shown, true);
  }
  const uint64_t latest = recent.empty() ? 0 : recent.rbegin()->first;
  if (latest >= sequence) return there;
  there.late = {rank};
  there.late_text = "; rank " + std::to_string(rank) + " has called " + std::to_string(latest) + " " +
                    op_kind_name(kind) + (latest == 1 ? "" : "s") + (sends ? " to" : " from") + " rank " +
                    std::to_string(peer);
  return there;
}

bool PublishedCalls::has_left(int32_t rank) const noexcept {
  const int member = member_of(rank);
  return member >= 0 && members_.group->has_left(member);
}

OpKind PublishedCalls::kind_of(uint64_t sequence) const {
  Entry mine{};
  return entry(self(), sequence).read(sequence, &mine) ? static_cast<OpKind>(mine.shown.fields.kind)
                                                       : OpKind::kNone;
}

uint64_t PublishedCalls::least() const noexcept {
  uint64_t least = latest();
  for (int member = 0; member < size(); ++member)
    least = std::min(least, head(member).load(std::memory_order_seq_cst));
  return least;
}

std::vector<int32_t> PublishedCalls::missing(uint64_t sequence) const {
  std::vector<int32_t> ranks;
  for (int member = 0; member < size(); ++member)
    if (head(member).load(std::memory_order_seq_cst) < sequence)
      ranks.push_back(members_.ranks[static_cast<size_t>(member)]);
  return ranks;
}

// This rank's own call is checked first, then those of the other ranks.
CallThere PublishedCalls::called(uint64_t sequence) const {
  CallThere there;
  Entry entry{};
  for (int i = 0; i < size() && there.fingerprint == 0; ++i) {
    const int member = (self() + i) % size();
    if (!this->entry(member, sequence).read(sequence, &entry)) continue;
    there.fingerprint = entry.shown.fingerprint;
    there.rank = members_.ranks[static_cast<size_t>(member)];
    there.words = words(entry.shown, entry.on_device);
  }
  there.late = missing(sequence);
  for (size_t i = 0; i < std::min(there.late.size(), kMostDescribed); ++i)
    there.late_text += "; rank " + std::to_string(there.late[i]) +
                       " has not called this operation; its latest call is " +
                       describe_latest(member_of(there.late[i]));
  return there;
}

std::string PublishedCalls::describe_latest(int member) const {
  const uint64_t sequence = head(member).load(std::memory_order_seq_cst);
  Entry latest{};
  if (sequence == 0 || !entry(member, sequence).read(sequence, &latest)) return "none on this communicator";
  return words(latest.shown, latest.on_device) + ", number " + std::to_string(sequence);
}

}  // namespace dsc
