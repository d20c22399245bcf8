// Makes groups and shared memory from a communicator. All its ranks take part in each of these calls.
#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/outcome.hpp"
#include "engine_host/host_engine.hpp"

namespace dsc {

void HostEngine::check_parent() const {
  if (group_->revoked()) {
    const Failure cause = group_->first_cause();
    fail_because_of(cause, cause.code, "the parent group \"%s\" failed: %s", name().c_str(),
                    cause.text.c_str());
  }
  for (int member = 0; member < size(); ++member)
    if (group_->has_left(member))
      fail(DSC_ERR_PEER_LEFT, "%s has left the parent group \"%s\"", group_->describe_member(member).c_str(),
           name().c_str());
}

// Makes this rank's part of a group and maps the parts of the other ranks. It succeeds on all ranks or on
// none.
std::shared_ptr<Group> HostEngine::map_group(const NewGroup& wanted,
                                             const std::function<std::shared_ptr<Group>()>& create) {
  std::shared_ptr<Group> group;
  run_on_all(*this, wanted.kind, wanted.tag, wanted.note, [&] { group = create(); });
  capture(
      [&] {
        run_on_all(*this, wanted.kind, wanted.tag, wanted.note, [&] {
          if (group) group->map_members(Deadline::after_ms(timeout_ms()), [this] { check_parent(); });
        });
      },
      [&](const Error& error) {
        if (group) group->leave();  // another rank may have mapped the group's memory already
        throw Error(error);
      });
  if (group) group->withdraw();  // all members have mapped the group's memory
  return group;
}

std::shared_ptr<HostEngine> HostEngine::make_part(const NewGroup& wanted) {
  const auto create = [&]() -> std::shared_ptr<Group> {
    if (std::ranges::find(wanted.members, rank()) == wanted.members.end()) return nullptr;
    std::vector<int32_t> members = wanted.members;
    for (int32_t& member : members) member = group_->local_rank(member);
    return Group::create(group_->shared_host(), wanted.id, wanted.name, std::move(members));
  };
  const std::shared_ptr<Group> group = map_group(wanted, create);
  if (!group) return nullptr;
  std::shared_ptr<HostEngine> part;
  capture([&] { part = std::make_shared<HostEngine>(group, state.info(), wanted.timeout_ms); },
          [&](const Error& error) {
            group->leave();  // the other ranks have mapped the group's memory
            throw Error(error);
          });
  return part;
}

// Describes segments that all ranks create and map.
struct HostEngine::SharedMemory {
  OpKind kind;
  uint64_t tag;  // equal on all ranks, as is `note`
  std::string note;
  size_t bytes;
  std::function<void()> check;  // runs before any rank creates its segment
  // Runs when this rank has mapped all segments.
  std::function<void(const std::shared_ptr<Allocation>&)> complete;
};

// It succeeds on all ranks or on none: either all have mapped all segments, or no rank keeps its own.
std::shared_ptr<Allocation> HostEngine::share_segments(const SharedMemory& wanted) {
  const auto run = [&](const std::function<void()>& step) {
    run_on_all(*this, wanted.kind, wanted.tag, wanted.note, step);
  };
  const uint64_t id = state.next_id();
  struct Withdraw {
    HostGroup& host;
    uint64_t id;
    ~Withdraw() { host.withdraw(ItemKind::kMemory, id); }
  } withdraw{host(), id};
  const auto segments = std::make_shared<Segments>(id, wanted.bytes, host().size(), host().rank());
  auto allocation = std::make_shared<Allocation>(segments);
  run([&] {
    // On all ranks, before any of them finds that too little memory is available.
    host().unmap_unused_memory(Deadline::after_ms(timeout_ms()));
    wanted.check();
  });
  run([&] { host().publish(ItemKind::kMemory, id, segments->create(size()).get()); });
  run([&] {
    for (int member = 0; member < size(); ++member) {
      if (member == rank()) continue;
      const UniqueFd fd = group_->fetch(member, ItemKind::kMemory, id, Deadline::after_ms(timeout_ms()),
                                        [this] { check_parent(); });
      segments->map(group_->local_rank(member), fd.get());
    }
    host().memory().know(segments);
    wanted.complete(allocation);
  });
  return allocation;
}

void* HostEngine::allocate(size_t bytes) {
  const auto allocation = share_segments({.kind = OpKind::kMemAlloc,
                                          .tag = bytes,
                                          .note = std::to_string(bytes) + " bytes",
                                          .bytes = bytes,
                                          .check = [] {},
                                          .complete = [](const std::shared_ptr<Allocation>&) {}});
  host().memory().add(allocation);
  return allocation->begin();
}

// If another rank fails after this rank has opened its window, this rank closes it again.
void HostEngine::register_memory(void* memory, size_t bytes) {
  MemoryRegistry& registry = host().memory();
  std::shared_ptr<Allocation> mine;
  bool is_claimed = false;
  const auto check = [&] {
    registry.claim(memory, bytes);
    is_claimed = true;
  };
  const auto open = [&](const std::shared_ptr<Allocation>& allocation) {
    allocation->window.emplace(memory, bytes, allocation->own_base());
    allocation->window->open();
    mine = allocation;
    registry.add(mine);
  };
  capture(
      [&] {
        share_segments({.kind = OpKind::kMemRegister,
                        .tag = bytes,
                        .note = std::to_string(bytes) + " bytes",
                        .bytes = Window::segment_bytes(bytes),
                        .check = check,
                        .complete = open});
      },
      [&](const Error& error) {
        if (mine) mine->window->close();
        if (is_claimed) MemoryRegistry::release(memory);
        throw Error(error);
      });
}

}  // namespace dsc
