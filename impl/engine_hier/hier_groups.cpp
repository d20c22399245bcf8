// Groups and shared memory made from a communicator over several hosts. A group whose ranks are all on one
// host uses the host engine alone.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/group_choice.hpp"
#include "comm/group_ids.hpp"
#include "comm/memory.hpp"
#include "engine_hier/hier_comm.hpp"

namespace dsc {

uint64_t HierComm::next_id() noexcept { return mix_id(id_, children_.fetch_add(1)); }

std::vector<std::byte> HierComm::gather(OpKind kind, const void* mine, size_t bytes, uint64_t tag,
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

// All ranks call this, each with the members of its own group; a rank that is not a member gets null.
std::shared_ptr<Comm> HierComm::make_group(const std::vector<int32_t>& members, uint64_t id,
                                           const GroupOptions& options) {
  const auto self = std::find(members.begin(), members.end(), rank());
  const bool is_member = self != members.end();
  GroupOptions own = options;
  if (own.name.empty()) own.name = name_ + "/" + std::to_string(children_.load());
  own.name.resize(std::min<size_t>(own.name.size(), 31));
  own.timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : timeout_ms();
  // The color is the lowest rank of the group, because several groups may be made at a time. The high bit
  // keeps the id of the local part apart from that of a group over hosts with this color.
  constexpr int32_t kOfOneHost = 1 << 30;
  const int32_t color = is_member ? *std::min_element(members.begin(), members.end()) | kOfOneHost : -1;
  std::shared_ptr<Comm> part;
  std::optional<Error> error;
  capture([&] { part = local_->split(color, static_cast<int32_t>(self - members.begin()), own); },
          [&](const Error& thrown) { error.emplace(thrown); });
  if (!is_member && error) throw Error(*error);
  if (!is_member) return nullptr;
  std::vector<int32_t> global_ranks;
  global_ranks.reserve(members.size());
  for (const int32_t member : members)
    global_ranks.push_back(layout_.global_ranks()[static_cast<size_t>(member)]);
  HierLayout layout(std::move(global_ranks), world_->layout(), static_cast<int>(self - members.begin()));
  if (error && layout.hosts() > 1 && layout.leads())  // the other hosts fail with this cause
    world_->refuse_wire(wire_key(id), layout.own_host(), *error);
  if (error) throw Error(*error);
  if (layout.hosts() == 1) return part;
  return create(world_, std::static_pointer_cast<HostComm>(part), std::move(layout), id, own.name,
                own.timeout_ms, Deadline::after_ms(own.timeout_ms));
}

std::shared_ptr<Comm> HierComm::split(int32_t color, int32_t key, const GroupOptions& options) {
  const SplitChoice mine{color, key};
  std::vector<int32_t> members = members_of_color(gather(OpKind::kSplit, &mine, sizeof mine, 0, ""), color);
  return make_group(members, mix_id(next_id(), static_cast<uint32_t>(color)), options);
}

std::shared_ptr<Comm> HierComm::create_group(std::span<const int32_t> ranks, const GroupOptions& options) {
  const RankList list = rank_list(ranks);
  const char ready = 1;
  gather(OpKind::kCreateGroup, &ready, sizeof ready, list.hash, list.text);
  return make_group({ranks.begin(), ranks.end()}, next_id(), options);
}

std::shared_ptr<Comm> HierComm::make_channel(const std::string& name) {
  std::vector<int32_t> everybody(static_cast<size_t>(size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  auto channel = create_group(everybody, {name, timeout_ms()});
  {
    MutexLock lock(mutex_);
    std::erase_if(channels_, [](const auto& other) { return other.expired(); });
    channels_.push_back(std::static_pointer_cast<HierComm>(channel));  // it spans the same hosts
  }
  if (revoked_.load()) channel->revoke(failure());
  if (left_.load()) channel->leave();
  return channel;
}

// Allocates memory of one size on all ranks, shared among the ranks of each host. If a rank cannot allocate
// its part, the call fails on all ranks.
void* HierComm::allocate_memory(size_t bytes) {
  struct Outcome {
    int32_t code = DSC_OK;
    char text[252] = {};
  } mine;
  const std::string note = std::to_string(bytes) + " bytes";
  gather(OpKind::kMemAlloc, &mine, sizeof mine, bytes, note);  // compares the sizes before allocating
  void* memory = nullptr;
  capture([&] { memory = local_->allocate_memory(bytes); },
          [&](dsc_result_t code, const char* text) {
            mine.code = code;
            std::snprintf(mine.text, sizeof mine.text, "%.251s", text);
          });
  std::vector<std::byte> all;
  capture([&] { all = gather(OpKind::kMemAlloc, &mine, sizeof mine, bytes, note); },
          [&](const Error& error) {
            if (memory) release_memory(memory);
            throw Error(error);
          });
  for (int rank = 0; rank < size(); ++rank) {
    Outcome outcome;
    std::memcpy(&outcome, all.data() + static_cast<size_t>(rank) * sizeof outcome, sizeof outcome);
    if (outcome.code == DSC_OK) continue;
    if (memory) release_memory(memory);
    fail(static_cast<dsc_result_t>(outcome.code), "rank %d: %.251s", rank, outcome.text);
  }
  return memory;
}

}  // namespace dsc
