// Groups and shared memory made from a communicator. All its ranks take part in each of these calls.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "base/fixed_text.hpp"
#include "base/guard.hpp"
#include "comm/group_choice.hpp"
#include "comm/group_ids.hpp"
#include "engine_host/host_comm.hpp"

namespace dsc {

std::vector<std::byte> HostComm::gather(OpKind kind, const void* mine, size_t bytes, uint64_t tag,
                                        const std::string& note) {
  std::vector<std::byte> all(bytes * static_cast<size_t>(size()));
  Call call;
  call.kind = kind;
  call.dtype = DSC_DTYPE_U8;
  call.send = mine;
  call.recv = all.data();
  call.count = bytes;
  call.tag = tag;
  std::snprintf(call.note, sizeof call.note, "%s", note.c_str());
  run(call);
  return all;
}

// All ranks exchange how a local step went. If it failed on one rank, this throws the same error on all.
void HostComm::agree(OpKind kind, dsc_result_t code, const std::string& text, uint64_t tag,
                     const std::string& note) {
  struct Outcome {
    int32_t code;
    char text[252];
  } mine{};
  mine.code = code;
  std::snprintf(mine.text, sizeof mine.text, "%s", text.c_str());
  const std::vector<std::byte> all = gather(kind, &mine, sizeof mine, tag, note);
  for (int rank = 0; rank < size(); ++rank) {
    Outcome outcome;
    std::memcpy(&outcome, all.data() + static_cast<size_t>(rank) * sizeof outcome, sizeof outcome);
    if (outcome.code != DSC_OK) fail(outcome.code, "rank %d: %s", rank, bounded_text(outcome.text).c_str());
  }
}

uint64_t HostComm::next_id() noexcept { return mix_id(id(), children_.fetch_add(1)); }

void HostComm::check_parent() const {
  if (group_->revoked()) {
    const Failure cause = group_->first_cause();
    fail(cause.code, "the parent group \"%s\" failed: %s", name().c_str(), cause.text.c_str());
  }
  for (int member = 0; member < size(); ++member)
    if (group_->has_left(member))
      fail(DSC_ERR_PEER_LEFT, "%s has left the parent group", group_->describe_member(member).c_str());
}

// Makes this rank's part of a group and maps those of the others. It succeeds on all ranks or on none.
std::shared_ptr<Group> HostComm::map_group(OpKind kind, uint64_t tag, const std::string& note,
                                           const std::function<std::shared_ptr<Group>()>& create) {
  dsc_result_t code = DSC_OK;
  std::string text;
  const auto keep = [&](dsc_result_t error, const char* words) {
    code = error;
    text = words;
  };
  std::shared_ptr<Group> group;
  capture([&] { group = create(); }, keep);
  agree(kind, code, text, tag, note);
  const auto map = [&] { group->map_members(Deadline::after_ms(timeout_ms()), [this] { check_parent(); }); };
  if (group) capture(map, keep);
  capture([&] { agree(kind, code, text, tag, note); },
          [&](dsc_result_t error, const char* words) {
            if (group) group->leave();  // another rank may have mapped it already
            throw Error(error, words);
          });
  if (group) group->withdraw();  // all members have mapped it
  return group;
}

std::shared_ptr<Comm> HostComm::make_group(OpKind kind, uint64_t tag, const std::string& note,
                                           std::vector<int32_t> members, uint64_t id,
                                           const GroupOptions& options) {
  const auto create = [&]() -> std::shared_ptr<Group> {
    if (std::find(members.begin(), members.end(), rank()) == members.end()) return nullptr;
    for (int32_t& member : members) member = group_->local_rank(member);
    std::string name =
        options.name.empty() ? this->name() + "/" + std::to_string(children_.load()) : options.name;
    name.resize(std::min<size_t>(name.size(), 31));
    return Group::create(group_->shared_world(), id, std::move(name), std::move(members));
  };
  const std::shared_ptr<Group> group = map_group(kind, tag, note, create);
  if (!group) return nullptr;
  std::shared_ptr<Comm> child;
  capture([&] { child = make_child(group, options); },
          [&](dsc_result_t code, const char* text) {
            group->leave();  // the others have mapped it
            throw Error(code, text);
          });
  return child;
}

// Returns a communicator for a mapped group, with this one's settings.
std::shared_ptr<HostComm> HostComm::make_child(std::shared_ptr<Group> group,
                                               const GroupOptions& options) const {
  const int timeout = options.timeout_ms > 0 ? options.timeout_ms : timeout_ms();
  auto child = std::make_shared<HostComm>(std::move(group), timeout);
  child->set_world_info(info_);
  child->nonfinite->set_check(nonfinite->check());
  return child;
}

std::shared_ptr<Comm> HostComm::split(int32_t color, int32_t key, const GroupOptions& options) {
  const SplitChoice mine{color, key};
  std::vector<int32_t> members = members_of_color(gather(OpKind::kSplit, &mine, sizeof mine, 0, ""), color);
  const uint64_t id = mix_id(next_id(), static_cast<uint32_t>(color));
  return make_group(OpKind::kSplit, 1, "", std::move(members), id, options);
}

std::shared_ptr<Comm> HostComm::create_group(std::span<const int32_t> ranks, const GroupOptions& options) {
  const RankList list = rank_list(ranks);
  return make_group(OpKind::kCreateGroup, list.hash, list.text, {ranks.begin(), ranks.end()}, next_id(),
                    options);
}

std::shared_ptr<Comm> HostComm::make_channel(const std::string& name) {
  std::vector<int32_t> everybody(static_cast<size_t>(size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  auto channel = create_group(everybody, {name, timeout_ms()});
  {
    MutexLock lock(channels_mutex_);
    std::erase_if(channels_, [](const auto& known) { return known.expired(); });
    channels_.push_back(channel);
  }
  if (group_->revoked()) channel->revoke(group_->first_cause());
  if (left_.load()) channel->leave();
  return channel;
}

void* HostComm::allocate_memory(size_t bytes) {
  const uint64_t id = next_id();
  auto allocation = std::make_shared<Allocation>();
  allocation->id = id;
  allocation->bytes = bytes;
  allocation->own_rank = world().rank();
  allocation->mappings.resize(static_cast<size_t>(world().size()));
  dsc_result_t code = DSC_OK;
  std::string text;
  capture(
      [&] {
        const UniqueFd fd = create_segment("dsc-memory", bytes, static_cast<size_t>(size()));
        allocation->mappings[static_cast<size_t>(allocation->own_rank)] =
            map_segment(fd.get(), bytes, OnFork::kInherited);
        world().publish(ItemKind::kMemory, id, fd.get());
      },
      [&](dsc_result_t error, const char* words) {
        code = error;
        text = words;
      });
  struct Withdraw {
    World& world;
    uint64_t id;
    ~Withdraw() { world.withdraw(ItemKind::kMemory, id); }
  } withdraw{world(), id};
  const std::string note = std::to_string(bytes) + " bytes";
  agree(OpKind::kMemAlloc, code, text, bytes, note);
  capture(
      [&] {
        for (int member = 0; member < size(); ++member) {
          if (member == rank()) continue;
          const int peer = group_->local_rank(member);
          const UniqueFd fd = group_->fetch(member, ItemKind::kMemory, id, Deadline::after_ms(timeout_ms()),
                                            [this] { check_parent(); });
          allocation->mappings[static_cast<size_t>(peer)] = map_segment(fd.get(), bytes, OnFork::kInherited);
        }
      },
      [&](dsc_result_t error, const char* words) {
        code = error;
        text = words;
      });
  agree(OpKind::kMemAlloc, code, text, bytes, note);  // all have mapped all parts, or none keeps its own
  world().memory().add(allocation);
  return allocation->own_base();
}

}  // namespace dsc
