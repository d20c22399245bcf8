// Groups and shared memory made from a communicator over several hosts. A group whose ranks are all on one
// host uses the host engine alone.
#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/group_ids.hpp"
#include "comm/memory.hpp"
#include "comm/outcome.hpp"
#include "engine_hier/hier_engine.hpp"

namespace dsc {

// Makes the part of a group on this host. A high bit in its id distinguishes it from groups over several
// hosts. The lowest rank in its id distinguishes it from other groups that are made at the same time.
std::shared_ptr<HostEngine> HierEngine::make_local_part(const NewGroup& wanted) {
  constexpr uint64_t kOfOneHost = 1 << 30;
  NewGroup part = wanted;
  part.members.clear();
  for (const int32_t member : wanted.members)
    if (layout_.host_of(member) == layout_.own_host()) part.members.push_back(layout_.local_index_of(member));
  const uint64_t lowest =
      wanted.members.empty() ? 0 : static_cast<uint64_t>(std::ranges::min(wanted.members));
  part.id = mix_id(local_->state.next_id(), lowest | kOfOneHost);
  return local_->make_part(part);
}

// A group whose ranks are all on one host gets the host engine alone.
std::shared_ptr<GroupEngine> HierEngine::make_group(const NewGroup& wanted) {
  if (wanted.kind == OpKind::kCreateGroup)  // compares the lists of ranks before anything is made
    gather_all(*this, wanted.kind, wanted.tag, char{1}, wanted.note);
  const auto self = std::ranges::find(wanted.members, rank());
  const bool is_member = self != wanted.members.end();
  std::shared_ptr<HostEngine> part;
  std::optional<Error> error;
  capture([&] { part = make_local_part(wanted); }, [&](const Error& thrown) { error.emplace(thrown); });
  if (!is_member && error) throw Error(*error);
  if (!is_member) return nullptr;
  std::vector<int32_t> global_ranks;
  global_ranks.reserve(wanted.members.size());
  for (const int32_t member : wanted.members)
    global_ranks.push_back(layout_.global_ranks()[static_cast<size_t>(member)]);
  HierLayout layout(std::move(global_ranks), world_->layout(),
                    static_cast<int>(self - wanted.members.begin()));
  if (error && layout.hosts() > 1 && layout.leads())  // so that the other hosts fail with the same error
    HierLinks::refuse_leaders(*world_, wanted.id, layout.own_host(), *error);
  if (error) throw Error(*error);
  if (layout.hosts() == 1) return part;
  return create(world_, std::move(part), std::move(layout), wanted.id, wanted.name, wanted.timeout_ms,
                Deadline::after_ms(wanted.timeout_ms));
}

// Allocates memory of the same size on all ranks, which is shared among the ranks of each host. If a rank
// cannot allocate its part, the call fails on all ranks.
void* HierEngine::allocate(size_t bytes) {
  const std::string note = std::to_string(bytes) + " bytes";
  run_on_all(*this, OpKind::kMemAlloc, bytes, note, [] {});  // compares the sizes before allocating
  void* memory = nullptr;
  capture(
      [&] { run_on_all(*this, OpKind::kMemAlloc, bytes, note, [&] { memory = local_->allocate(bytes); }); },
      [&](const Error& error) {
        if (memory) release_memory(memory);
        throw Error(error);
      });
  return memory;
}

// The ranks of each host register their memory together. If that fails on a host, it is undone on the others.
void HierEngine::register_memory(void* memory, size_t bytes) {
  const std::string note = std::to_string(bytes) + " bytes";
  // Before anything changes, the sizes are compared and the memory is checked.
  run_on_all(*this, OpKind::kMemRegister, bytes, note,
             [&] { MemoryRegistry::check_unregistered(memory, bytes); });
  bool is_registered = false;
  const auto step = [&] {
    local_->register_memory(memory, bytes);
    is_registered = true;
  };
  capture([&] { run_on_all(*this, OpKind::kMemRegister, bytes, note, step); },
          [&](const Error& error) {
            if (is_registered) MemoryRegistry::end_window(memory);
            throw Error(error);
          });
}

}  // namespace dsc
