// Moving data between hosts: one group of hosts, as the one rank sees it that speaks for its host.
//
// All hosts call the same operations in the same order with lengths that agree; who cannot be sure of it lets
// them meet first. Calls block until the operation is complete here or the deadline passes. They are made by
// one thread at a time; abort() by any. What is given them to do meanwhile they do once, when all that this
// host sends is on its way; what it throws ends the operation.
//
// Errors: PEER_DEAD when a connection ended, TIMEOUT when the deadline passed, REVOKED after abort(); the
// place of the error holds the indices of the hosts. After an error of any operation all connections are
// ended, nobody touches the operation's memory any more, and every later one is REVOKED.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtype/reduce.hpp"
#include "transport/mesh.hpp"

namespace dsc {

// Memory for, or from, one host. Nothing travels where there are no bytes.
struct TransportBlock {
  void* data = nullptr;
  size_t bytes = 0;
};

class TransportGroup {
 public:
  static constexpr size_t kMeetBytes = 4096;
  static constexpr size_t kAlongBytes = size_t{64} * 1024;

  // Listens at the transport's address. `members[i]` is the rank that speaks for host i.
  TransportGroup(const std::shared_ptr<Transport>& transport, int32_t rank, std::vector<int32_t> members,
                 Mesh::Members of = Mesh::Members::kLeaders)
      : mesh_(transport, rank, std::move(members), of) {}

  // First of all. The exchange carries one value per host, under the key PREFIX/INDEX, which is used once.
  void connect(Exchange& exchange, std::string_view prefix, Deadline deadline) {
    mesh_.connect(exchange, prefix, deadline);
  }

  // Instead, where a wire cannot be made: the others' connect() throws this error, and names host `rank`.
  static void refuse(Exchange& exchange, std::string_view prefix, int32_t rank, const Error& why) {
    Mesh::refuse(exchange, prefix, rank, why);
  }

  int32_t rank() const noexcept { return mesh_.rank(); }
  int32_t size() const noexcept { return mesh_.size(); }

  // Any thread: what runs and what comes later fails with REVOKED, at once.
  void abort() noexcept { mesh_.abort(Error(DSC_ERR_REVOKED, "the operation was aborted there")); }
  // The others hear why. Where place().revoked is set its ranks are not hosts, but the caller's own numbers.
  void abort(const Error& why) noexcept { mesh_.abort(why); }

  // Called at least every 50 ms while an operation waits, with the hosts that it waits for; what it throws
  // ends the operation.
  void set_check(Mesh::Check check) { mesh_.set_check(std::move(check)); }

  // Shows at most kMeetBytes to all others and gets theirs; all[rank()] is `mine`. Lengths may differ.
  void meet(std::string_view mine, std::vector<std::string>& all, Deadline deadline);
  // The same, and along[i], at most kAlongBytes, goes to host i with it; empty: nothing goes along. `take`
  // gets what came from each host, in memory that is vacant again when it returns. What it throws does not
  // end the connections.
  struct Met {
    std::string_view text;
    std::span<const std::byte> along;
  };
  void meet(std::string_view mine, std::span<const TransportBlock> along,
            const std::function<void(std::span<const Met>)>& take, Deadline deadline);
  void barrier(Deadline deadline);

  // Every element is combined in the order of hosts, so that all have the same bits. `in` may be `out`.
  void all_reduce(const void* in, void* out, size_t count, const ReduceSpec& spec, Deadline deadline,
                  OverlapHook overlap = {});
  // Elsewhere than at the root `out` is used as well, and holds nothing of use afterwards.
  void reduce(const void* in, void* out, size_t count, const ReduceSpec& spec, int32_t root,
              Deadline deadline, OverlapHook overlap = {});
  // `counts[i]` elements for host i, one host's after the other's; `out` gets this host's.
  void reduce_scatter(const void* in, void* out, std::span<const size_t> counts, const ReduceSpec& spec,
                      Deadline deadline, OverlapHook overlap = {});

  void broadcast(void* data, size_t bytes, int32_t root, Deadline deadline, OverlapHook overlap = {});
  // blocks[i] is host i's; this host's own is sent to all.
  void all_gather(std::span<const TransportBlock> blocks, Deadline deadline, OverlapHook overlap = {});
  // sends[i] goes to host i, receives[i] comes from there; what this host has for itself is copied. Gather,
  // scatter and all-to-all are cases of it.
  void exchange(std::span<const TransportBlock> sends, std::span<const TransportBlock> receives,
                Deadline deadline, OverlapHook overlap = {});

 private:
  void exchange_meetings(std::vector<Met>& met, Deadline deadline);

  Mesh mesh_;
  std::vector<std::string> meet_messages_;
};

}  // namespace dsc
