// Collectives among hosts. One rank of each host of a group takes part.
//
// All hosts must call the same operations in the same order with matching lengths. Callers that cannot be
// sure of this first compare their calls with exchange_headers(). A call blocks until the operation is
// complete on this host, or until the deadline passes. One thread at a time may call operations, and any
// thread may call abort(). An overlap hook runs once, when all data that this host sends is on its way. An
// exception of the hook ends the operation.
//
// Errors: PEER_DEAD if a connection has ended, TIMEOUT if the deadline has passed, REVOKED after abort().
// `ranks` of the error are indices of hosts. After an error all connections are ended, nothing accesses the
// memory of the operation, and every later operation throws REVOKED.
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

// Memory for data that is sent to, or received from, one host. A block of 0 bytes is not transferred.
struct TransportBlock {
  void* data = nullptr;
  size_t bytes = 0;
};

class TransportGroup {
 public:
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr size_t kInlineBytes = size_t{64} * 1024;

  // Starts to listen at the transport's address. `members[i]` is the rank that represents host i.
  TransportGroup(const std::shared_ptr<Transport>& transport, int32_t rank, std::vector<int32_t> members,
                 Connections::Members of = Connections::Members::kLeaders)
      : connections_(transport, rank, std::move(members), of) {}

  // Must be called first. Each host puts one value into the exchange, under the key PREFIX/INDEX.
  void connect(Exchange& exchange, std::string_view prefix, Deadline deadline) {
    connections_.connect(exchange, prefix, deadline);
  }

  // Called instead of connect() by a host that cannot take part. connect() of the other hosts then throws
  // this error and names host `rank`.
  static void refuse(Exchange& exchange, std::string_view prefix, int32_t rank, const Error& why) {
    Connections::refuse(exchange, prefix, rank, why);
  }

  int32_t rank() const noexcept { return connections_.rank(); }
  int32_t size() const noexcept { return connections_.size(); }

  // Makes the current operation and all later ones fail with REVOKED immediately. Any thread may call this.
  void abort() noexcept { connections_.abort(aborted_there()); }
  // Like abort(), but also sends the cause to the other hosts. The ranks of the cause are indices of hosts,
  // unless why.has_user_ranks is set.
  void abort(const Failure& why) noexcept { connections_.abort(why); }
  // Aborts several groups. First sends the cause on the connections of all groups, and only then waits.
  // Therefore this takes no longer than aborting one group.
  static void abort_all(std::span<TransportGroup* const> groups,
                        const Failure& why = aborted_there()) noexcept;

  // While an operation waits, the check is called at least every 50 ms, with the hosts for which the
  // operation waits. An exception of the check ends the operation.
  void set_check(Connections::Check check) { connections_.set_check(std::move(check)); }

  // The header exchange: sends at most kHeaderBytes to all other hosts and receives their headers.
  // all[rank()] is `mine`. The headers of hosts may have different lengths.
  void exchange_headers(std::string_view mine, std::vector<std::string>& all, Deadline deadline);
  // Like the function above, but with inline data: inline_data[i], at most kInlineBytes, is sent to host i
  // together with the text. An empty span sends none. `take` gets the data of each host, in memory that is
  // reused after `take` returns. An exception of `take` does not end the connections.
  struct Header {
    std::string_view text;
    std::span<const std::byte> inline_data;
  };
  void exchange_headers(std::string_view mine, std::span<const TransportBlock> inline_data,
                        const std::function<void(std::span<const Header>)>& take, Deadline deadline);
  void barrier(Deadline deadline);

  // Elements are combined in the order of hosts, so all hosts get the same bits. `in` and `out` may be the
  // same memory.
  void all_reduce(const void* in, void* out, size_t count, const ReduceSpec& spec, Deadline deadline,
                  OverlapHook overlap = {});
  // On hosts other than the root, `out` is used as temporary memory and contains no result afterwards.
  void reduce(const void* in, void* out, size_t count, const ReduceSpec& spec, int32_t root,
              Deadline deadline, OverlapHook overlap = {});
  // `in` contains counts[i] elements for host i, in the order of hosts. `out` gets the result of this host's
  // part.
  void reduce_scatter(const void* in, void* out, std::span<const size_t> counts, const ReduceSpec& spec,
                      Deadline deadline, OverlapHook overlap = {});

  void broadcast(void* data, size_t bytes, int32_t root, Deadline deadline, OverlapHook overlap = {});
  // blocks[i] gets the data of host i. This host's own block is sent to all other hosts.
  void all_gather(std::span<const TransportBlock> blocks, Deadline deadline, OverlapHook overlap = {});
  // sends[i] is sent to host i, and receives[i] is received from it. The block of this host for itself is
  // copied. Gather, scatter and all-to-all are special cases.
  void exchange(std::span<const TransportBlock> sends, std::span<const TransportBlock> receives,
                Deadline deadline, OverlapHook overlap = {});

 private:
  static Failure aborted_there() noexcept {
    return Error(DSC_ERR_REVOKED, "the operation was aborted there").failure();
  }
  void reduce_to(const char* name, const void* in, void* out, size_t count, const ReduceSpec& spec,
                 int32_t root, Deadline deadline, OverlapHook overlap);  // kEverybody means an all-reduce
  void collect_headers(std::vector<Header>& headers, Deadline deadline);

  Connections connections_;
  std::vector<std::string> header_messages_;
};

}  // namespace dsc
