// Collectives among one rank of each host of a group.
//
// All hosts call the same operations in the same order with matching lengths. Callers that cannot be sure of
// that first compare their calls with exchange_headers(). Calls block until the operation is complete here or
// the deadline passes. One thread at a time makes them; any thread may call abort(). An overlap hook runs
// once, when all data that this host sends is on its way; an exception of the hook ends the operation.
//
// Errors: PEER_DEAD if a connection ended, TIMEOUT if the deadline passed, REVOKED after abort(); `ranks` of
// the error holds the indices of the hosts. After an error of any operation all connections are ended,
// nothing accesses the operation's memory, and every later operation throws REVOKED.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtype/reduce.hpp"
#include "transport/connections.hpp"

namespace dsc {

// A TransportBlock is memory for, or from, one host. A block of 0 bytes is not transferred.
struct TransportBlock {
  void* data = nullptr;
  size_t bytes = 0;
};

class TransportGroup {
 public:
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr size_t kInlineBytes = size_t{64} * 1024;

  // Listens at the transport's address. `members[i]` is the rank that represents host i.
  TransportGroup(const std::shared_ptr<Transport>& transport, int32_t rank, std::vector<int32_t> members,
                 Connections::Members of = Connections::Members::kLeaders)
      : connections_(transport, rank, std::move(members), of) {}

  // Must be called first. The exchange carries one value per host, under the key PREFIX/INDEX, which is used
  // once.
  void connect(Exchange& exchange, std::string_view prefix, Deadline deadline) {
    connections_.connect(exchange, prefix, deadline);
  }

  // Called instead by a host that cannot take part: connect() of the others throws this error and names host
  // `rank`.
  static void refuse(Exchange& exchange, std::string_view prefix, int32_t rank, const Error& why) {
    Connections::refuse(exchange, prefix, rank, why);
  }

  int32_t rank() const noexcept { return connections_.rank(); }
  int32_t size() const noexcept { return connections_.size(); }

  // Makes the running operation and all later ones fail with REVOKED at once. Any thread.
  void abort() noexcept { connections_.abort(aborted_there()); }
  // Does the same, and the other hosts receive the cause. The ranks of the cause are hosts unless
  // why.has_user_ranks is set.
  void abort(const Failure& why) noexcept { connections_.abort(why); }
  // Does the same for several groups. The cause is sent on all their connections before this waits for any,
  // so that it takes no longer than aborting one group.
  static void abort_all(std::span<TransportGroup* const> groups,
                        const Failure& why = aborted_there()) noexcept;

  // The check is called at least every 50 ms while an operation waits, with the hosts for which it waits; an
  // exception of the check ends the operation.
  void set_check(Connections::Check check) { connections_.set_check(std::move(check)); }

  // The header exchange: sends at most kHeaderBytes to all other hosts and receives theirs; all[rank()] is
  // `mine`. Lengths may differ.
  void exchange_headers(std::string_view mine, std::vector<std::string>& all, Deadline deadline);
  // The same with inline data: inline_data[i], at most kInlineBytes, goes to host i with the text; an empty
  // span sends none. `take` receives the data of each host, in memory that is reused when it returns. An
  // exception of `take` does not end the connections.
  struct Header {
    std::string_view text;
    std::span<const std::byte> inline_data;
  };
  void exchange_headers(std::string_view mine, std::span<const TransportBlock> inline_data,
                        const std::function<void(std::span<const Header>)>& take, Deadline deadline);
  void barrier(Deadline deadline);

  // Elements are combined in the order of hosts, so that all hosts get the same bits. `in` may be `out`.
  void all_reduce(const void* in, void* out, size_t count, const ReduceSpec& spec, Deadline deadline,
                  OverlapHook overlap = {});
  // On hosts other than the root, `out` is used as scratch memory and holds no result afterwards.
  void reduce(const void* in, void* out, size_t count, const ReduceSpec& spec, int32_t root,
              Deadline deadline, OverlapHook overlap = {});
  // `in` holds counts[i] elements for host i, in the order of hosts; `out` receives the result of this host's
  // part.
  void reduce_scatter(const void* in, void* out, std::span<const size_t> counts, const ReduceSpec& spec,
                      Deadline deadline, OverlapHook overlap = {});

  void broadcast(void* data, size_t bytes, int32_t root, Deadline deadline, OverlapHook overlap = {});
  // blocks[i] receives the data of host i; this host's own block is sent to all.
  void all_gather(std::span<const TransportBlock> blocks, Deadline deadline, OverlapHook overlap = {});
  // sends[i] goes to host i, receives[i] comes from it; the block of this host for itself is copied. Gather,
  // scatter and all-to-all are special cases.
  void exchange(std::span<const TransportBlock> sends, std::span<const TransportBlock> receives,
                Deadline deadline, OverlapHook overlap = {});

 private:
  static Failure aborted_there() noexcept {
    return Error(DSC_ERR_REVOKED, "the operation was aborted there").failure();
  }
  void reduce_to(const char* name, const void* in, void* out, size_t count, const ReduceSpec& spec,
                 int32_t root, Deadline deadline, OverlapHook overlap);  // kEverybody: an all-reduce
  void collect_headers(std::vector<Header>& headers, Deadline deadline);

  Connections connections_;
  std::vector<std::string> header_messages_;
};

}  // namespace dsc
