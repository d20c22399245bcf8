#include "transport/transfer.hpp"

#include <algorithm>

#include "dtype/reduce.hpp"
#include "transport/shares.hpp"

namespace dsc {
namespace {

bool is_posted(const TransportBlock& block) { return block.bytes <= kPostBytes; }

// The transfers with one peer that are not complete.
struct Pending {
  bool send = false;
  bool receive = false;
};

bool try_send(TransportChannel& channel, const TransportBlock& block) {
  if (is_posted(block)) {
    if (!channel.may_post()) return false;
    channel.post(block.data, block.bytes);
  } else {
    if (!channel.offered()) return false;
    channel.put(block.data, block.bytes, 0, true);
  }
  return true;
}

bool try_receive(TransportChannel& channel, const TransportBlock& block) {
  if (is_posted(block)) {
    const std::byte* const arrived = channel.arrived();
    if (!arrived) return false;
    copy_bytes(block.data, arrived, block.bytes);
    channel.release();
  } else {
    if (channel.puts_arrived() == 0) return false;
    channel.withdraw();
  }
  return true;
}

}  // namespace

// First offers memory for all large blocks, so that peers can start to put immediately.
void transfer(Connections& connections, std::span<const TransportBlock> sends,
              std::span<const TransportBlock> receives, Deadline deadline) {
  std::vector<Pending> pending(sends.size());
  for (int32_t peer = 0; peer < connections.size(); ++peer) {
    if (peer == connections.rank()) continue;
    const auto at = static_cast<size_t>(peer);
    pending[at] = {sends[at].bytes > 0, receives[at].bytes > 0};
    if (!is_posted(receives[at]))
      connections.channel(peer).offer(receives[at].data, receives[at].bytes, 1,
                                      TransportChannel::Tell::kLast);
  }
  connections.run(deadline, [&](int32_t peer) {
    TransportChannel& channel = connections.channel(peer);
    const auto at = static_cast<size_t>(peer);
    bool moved = false;
    if (pending[at].send && try_send(channel, sends[at])) moved = true, pending[at].send = false;
    if (pending[at].receive && try_receive(channel, receives[at])) moved = true, pending[at].receive = false;
    if (moved) return Step::kMoved;
    if (pending[at].send) return Step::kWait;
    return pending[at].receive || !channel.all_sent() ? Step::kReceive : Step::kDone;
  });
}

namespace {

// A broadcast of large data. The root's data is divided into one share for each other host. A host receives
// its share in pieces, and forwards each piece to the other hosts.
class PartedBroadcast {
 public:
  PartedBroadcast(Connections& connections, std::byte* data, size_t bytes, int32_t root)
      : connections_(connections), data_(data), root_(root), shares_(connections.size(), bytes, 1, root) {
    put_.resize(static_cast<size_t>(connections.size()));
    for (int32_t peer = 0; peer < connections.size(); ++peer)
      if (peer != connections.rank() && pieces_from(peer) > 0)
        connections.channel(peer).offer(
            data + shares_.start(owner_from(peer)), shares_.count(owner_from(peer)), pieces_from(peer),
            peer == root ? TransportChannel::Tell::kEach : TransportChannel::Tell::kLast);
  }

  // Puts the next piece to the peer if it is available. Returns what remains to do with that peer.
  Step look(int32_t peer) {
    TransportChannel& channel = connections_.channel(peer);
    uint64_t& put = put_[static_cast<size_t>(peer)];
    const int32_t owner = owner_to(peer);
    const uint64_t pieces = pieces_to(peer);
    bool moved = false;
    if (put < pieces && put < available() && channel.offered()) {
      const size_t start = shares_.piece_start(owner, put);
      channel.put(data_ + shares_.start(owner) + start, shares_.piece_count(owner, put), start,
                  put + 1 == pieces);
      ++put;
      moved = true;
    }
    if (moved) return Step::kMoved;
    const uint64_t expected = pieces_from(peer);
    const bool received = expected == 0 || channel.puts_arrived() == expected;
    if (put < std::min(pieces, available())) return Step::kWait;
    if (!received || !channel.all_sent()) return Step::kReceive;
    if (put < pieces) return Step::kOwe;
    channel.withdraw();
    return Step::kDone;
  }

 private:
  bool is_root() const { return connections_.rank() == root_; }
  // Returns the host whose share is sent to, or received from, a peer.
  int32_t owner_to(int32_t peer) const { return is_root() ? peer : connections_.rank(); }
  int32_t owner_from(int32_t peer) const { return peer == root_ ? connections_.rank() : peer; }
  uint64_t pieces_to(int32_t peer) const { return peer == root_ ? 0 : shares_.pieces(owner_to(peer)); }
  uint64_t pieces_from(int32_t peer) const { return is_root() ? 0 : shares_.pieces(owner_from(peer)); }
  // Returns how many pieces of its share this host can forward now.
  uint64_t available() { return is_root() ? UINT64_MAX : connections_.channel(root_).puts_arrived(); }

  Connections& connections_;
  std::byte* const data_;
  const int32_t root_;
  const Shares shares_;
  std::vector<uint64_t> put_;
};

}  // namespace

void broadcast_in_parts(Connections& connections, std::byte* data, size_t bytes, int32_t root,
                        Deadline deadline) {
  PartedBroadcast broadcast(connections, data, bytes, root);
  connections.run(deadline, [&](int32_t peer) { return broadcast.look(peer); });
}

}  // namespace dsc
