#include "transport/combine.hpp"

#include <algorithm>

#include "dtype/dtype.hpp"

namespace dsc {
namespace {

bool goes_to(int32_t host, int32_t root) { return root == kEverybody || root == host; }

// Returns the inputs of all hosts in the order of hosts: `mine` for this host, and the oldest posted message
// of each other host. An input that has not arrived is null.
std::vector<const void*> sources_of(Connections& connections, const void* mine) {
  std::vector<const void*> sources(static_cast<size_t>(connections.size()));
  for (int32_t host = 0; host < connections.size(); ++host)
    sources[static_cast<size_t>(host)] =
        host == connections.rank() ? mine : connections.channel(host).arrived();
  return sources;
}

void release_all(Connections& connections) {
  for (int32_t host = 0; host < connections.size(); ++host)
    if (host != connections.rank()) connections.channel(host).release();
}

void reduce_into(const ReduceSpec& spec, const std::vector<const void*>& sources, void* out, size_t count) {
  dsc::reduce(spec, sources.data(), static_cast<int>(sources.size()), &out, 1, count);
}

// The state of one combine_shares(): how far each share has been posted, combined and put.
class SharedCombine {
 public:
  SharedCombine(Connections& connections, CombineMemory memory, const Shares& shares, const ReduceSpec& spec,
                int32_t root)
      : connections_(connections), memory_(memory), shares_(shares), spec_(spec), root_(root) {
    posted_.resize(static_cast<size_t>(connections.size()));
    put_.resize(posted_.size());
    for (int32_t peer = 0; peer < connections.size(); ++peer)
      if (peer != connections.rank() && results_from(peer) > 0)
        connections.channel(peer).offer(result(peer, 0), shares_.count(peer) * element_bytes_,
                                        results_from(peer), TransportChannel::Tell::kLast);
  }

  Step look(int32_t peer) {
    TransportChannel& channel = connections_.channel(peer);
    const bool posted = try_post(peer), combined = try_combine(), put = try_put(peer);
    if (posted || combined || put) return Step::kMoved;
    if (can_send_to(peer)) return Step::kWait;
    if (waits_for(peer)) return Step::kReceive;
    if (put_[static_cast<size_t>(peer)] < results_to(peer)) return Step::kOwe;
    channel.withdraw();
    return combined_ == shares_.pieces(connections_.rank()) ? Step::kDone : Step::kIdle;
  }

 private:
  bool can_send_to(int32_t peer) const {
    const auto index = static_cast<size_t>(peer);
    const bool can_put = put_[index] < results_to(peer) && put_[index] < combined_;
    return posted_[index] < shares_.pieces(peer) || can_put;
  }

  bool waits_for(int32_t peer) {
    TransportChannel& channel = connections_.channel(peer);
    const uint64_t expected = results_from(peer);
    return !channel.all_sent() || combined_ + channel.waiting() < shares_.pieces(connections_.rank()) ||
           (expected > 0 && channel.puts_arrived() < expected);
  }

  // Posts the next piece of this host's input to the peer that combines it.
  bool try_post(int32_t peer) {
    uint64_t& piece = posted_[static_cast<size_t>(peer)];
    if (piece == shares_.pieces(peer) || !connections_.channel(peer).may_post()) return false;
    connections_.channel(peer).post(input(peer, piece), shares_.piece_count(peer, piece) * element_bytes_);
    ++piece;
    return true;
  }

  bool try_combine() {
    const int32_t rank = connections_.rank();
    if (combined_ == shares_.pieces(rank)) return false;
    const std::vector<const void*> sources = sources_of(connections_, input(rank, combined_));
    if (std::find(sources.begin(), sources.end(), nullptr) != sources.end()) return false;
    reduce_into(spec_, sources, result(rank, combined_), shares_.piece_count(rank, combined_));
    release_all(connections_);
    ++combined_;
    return true;
  }

  bool try_put(int32_t peer) {
    uint64_t& piece = put_[static_cast<size_t>(peer)];
    const uint64_t pieces = results_to(peer);
    if (piece == pieces || piece == combined_ || !connections_.channel(peer).offered()) return false;
    const int32_t rank = connections_.rank();
    connections_.channel(peer).put(result(rank, piece), shares_.piece_count(rank, piece) * element_bytes_,
                                   shares_.piece_start(rank, piece) * element_bytes_, piece + 1 == pieces);
    ++piece;
    return true;
  }

  uint64_t results_to(int32_t peer) const {
    return goes_to(peer, root_) ? shares_.pieces(connections_.rank()) : 0;
  }
  uint64_t results_from(int32_t peer) const {
    return goes_to(connections_.rank(), root_) ? shares_.pieces(peer) : 0;
  }
  const std::byte* input(int32_t host, uint64_t piece) const {
    return memory_.in + (shares_.start(host) + shares_.piece_start(host, piece)) * element_bytes_;
  }
  std::byte* result(int32_t host, uint64_t piece) const {
    const size_t start = root_ == kNobody ? 0 : shares_.start(host);
    return memory_.out + (start + shares_.piece_start(host, piece)) * element_bytes_;
  }

  Connections& connections_;
  const CombineMemory memory_;
  const Shares& shares_;
  const ReduceSpec& spec_;
  const int32_t root_;
  const size_t element_bytes_ = dtype_bytes(spec_.dtype);
  uint64_t combined_ = 0;               // number of pieces of this host's share that are combined
  std::vector<uint64_t> posted_, put_;  // number of pieces that were posted to, and put to, each peer
};

}  // namespace

// The reduction starts when all inputs have arrived, so that elements are combined in the order of hosts.
void combine_whole(Connections& connections, CombineMemory memory, size_t count, const ReduceSpec& spec,
                   int32_t root, Deadline deadline) {
  const size_t bytes = count * dtype_bytes(spec.dtype);
  std::vector<bool> posted(static_cast<size_t>(connections.size()));
  connections.run(deadline, [&](int32_t peer) {
    TransportChannel& channel = connections.channel(peer);
    const auto at = static_cast<size_t>(peer);
    if (!posted[at] && goes_to(peer, root)) {
      if (!channel.may_post()) return Step::kWait;
      channel.post(memory.in, bytes);
      posted[at] = true;
    }
    const bool here = !goes_to(connections.rank(), root) || channel.arrived();
    return here && channel.all_sent() ? Step::kDone : Step::kReceive;
  });
  if (!goes_to(connections.rank(), root)) return;
  reduce_into(spec, sources_of(connections, memory.in), memory.out, count);
  release_all(connections);
}

void combine_shares(Connections& connections, CombineMemory memory, const Shares& shares,
                    const ReduceSpec& spec, int32_t root, Deadline deadline) {
  SharedCombine combine(connections, memory, shares, spec, root);
  connections.run(deadline, [&](int32_t peer) { return combine.look(peer); });
}

}  // namespace dsc
