#include "nccl_operation.hpp"

#include <algorithm>
#include <cstring>

namespace fake_gpu {
namespace {

constexpr size_t kSmallBytes = 4096;

// Bytes to or from a peer. A sender is done when all its bytes are in the buffer.
struct Transfer {
  int peer = 0;
  bool sends = false;
  char* memory = nullptr;
  size_t bytes = 0;
  size_t moved = 0;
  bool done() const { return moved == bytes; }
};

class Exchange {
 public:
  explicit Exchange(Comm& comm) : comm_(comm), region_(*comm.region) {}

  void send(int peer, const void* memory, size_t bytes) {
    if (bytes > 0 && peer != comm_.rank)
      transfers_.push_back({peer, true, static_cast<char*>(const_cast<void*>(memory)), bytes});
  }
  void recv(int peer, void* memory, size_t bytes) {
    if (bytes > 0 && peer != comm_.rank)
      transfers_.push_back({peer, false, static_cast<char*>(memory), bytes});
  }
  bool run();

 private:
  bool step(Transfer& transfer);
  bool write(Transfer& transfer, Ring& ring);
  bool read(Transfer& transfer, Ring& ring);
  bool move_all(bool& all_done);

  Comm& comm_;
  const Region& region_;
  std::vector<Transfer> transfers_;
};

bool Exchange::write(Transfer& transfer, Ring& ring) {
  const uint64_t written = ring.written.load(), taken = ring.taken.load();
  const size_t at = written % kRingBytes;
  const size_t bytes =
      std::min({transfer.bytes - transfer.moved, kRingBytes - (written - taken), kRingBytes - at});
  if (bytes == 0) return false;
  std::memcpy(ring.bytes + at, transfer.memory + transfer.moved, bytes);
  transfer.moved += bytes;
  ring.written.store(written + bytes);
  return true;
}

bool Exchange::read(Transfer& transfer, Ring& ring) {
  if (ring.lost.load()) return false;
  const uint64_t written = ring.written.load(), taken = ring.taken.load();
  const size_t at = taken % kRingBytes;
  const size_t bytes = std::min({transfer.bytes - transfer.moved, size_t{written - taken}, kRingBytes - at});
  if (bytes == 0) return false;
  std::memcpy(transfer.memory + transfer.moved, ring.bytes + at, bytes);
  transfer.moved += bytes;
  ring.taken.store(taken + bytes);
  return true;
}

bool Exchange::step(Transfer& transfer) {
  Ring& ring =
      transfer.sends ? region_.ring(comm_.rank, transfer.peer) : region_.ring(transfer.peer, comm_.rank);
  const bool moved = transfer.sends ? write(transfer, ring) : read(transfer, ring);
  if (moved) region_.ring_bell(transfer.peer);
  return moved;
}

// Transfers through the same ring follow each other.
bool Exchange::move_all(bool& all_done) {
  bool moved = false;
  std::vector<bool> busy(static_cast<size_t>(2 * comm_.ranks));
  all_done = true;
  for (Transfer& transfer : transfers_) {
    if (transfer.done()) continue;
    const size_t ring = static_cast<size_t>(2 * transfer.peer + transfer.sends);
    if (!busy[ring] && step(transfer)) moved = true;
    if (!transfer.done()) busy[ring] = true;
    all_done = all_done && transfer.done();
  }
  return moved;
}

bool Exchange::run() {
  for (bool all_done = transfers_.empty(); !all_done;) {
    const uint32_t heard = region_.heard();
    if (stopped(comm_)) return false;
    if (!move_all(all_done) && !all_done) region_.sleep_unless_rung(heard);
  }
  return true;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

// One operation, as seen by this rank.
class Collective {
 public:
  Collective(Comm& comm, const Operation& operation)
      : comm_(comm),
        operation_(operation),
        send_(static_cast<const char*>(operation.send)),
        recv_(static_cast<char*>(operation.recv)),
        bytes_(operation.count * bytes_of(operation.type)),
        exchange_(comm) {}
  void run();

 private:
  bool is_root() const { return comm_.rank == operation_.root; }
  size_t part(int rank) const { return static_cast<size_t>(rank) * bytes_; }
  struct Part {
    size_t begin, bytes;
  };
  double own_scale() const;
  std::vector<char> reduce_parts(const std::function<Part(int)>& part_of);
  void store(const std::vector<char>& result, size_t at);
  void all_reduce();
  void reduce_to_root();
  void reduce_scatter();
  void broadcast();
  void gather(bool everyone);
  void scatter();
  void all_to_all();

  Comm& comm_;
  const Operation& operation_;
  const char* send_;
  char* recv_;
  size_t bytes_;
  Exchange exchange_;
};

double Collective::own_scale() const {
  const Scale& scale = operation_.scale;
  return scale.device_memory ? number_in(scale.device_memory, scale.type) : scale.number;
}

// Every receiver gets its part of all inputs, scaled for each input. The result is empty on ranks that
// receive nothing.
std::vector<char> Collective::reduce_parts(const std::function<Part(int)>& part_of) {
  const Part own = part_of(comm_.rank);
  const double scale = own_scale();
  std::vector<double> scales(static_cast<size_t>(comm_.ranks), scale);
  std::vector<char> others(scales.size() * own.bytes), result(own.bytes);
  std::vector<const char*> inputs(scales.size(), send_ + own.begin);
  for (int rank = 0; rank < comm_.ranks; ++rank) {
    const Part part = part_of(rank);
    const auto at = static_cast<size_t>(rank);
    exchange_.send(rank, &scale, part.bytes ? sizeof scale : 0);
    exchange_.send(rank, send_ + part.begin, part.bytes);
    exchange_.recv(rank, &scales[at], own.bytes ? sizeof scale : 0);
    exchange_.recv(rank, others.data() + at * own.bytes, own.bytes);
    if (rank != comm_.rank) inputs[at] = others.data() + at * own.bytes;
  }
  if (!exchange_.run() || own.bytes == 0) return {};
  reduce(operation_, inputs, scales, result.data(), own.bytes / bytes_of(operation_.type));
  return result;
}

void Collective::store(const std::vector<char>& result, size_t at) {
  if (!result.empty()) std::memcpy(recv_ + at, result.data(), result.size());
}

// Large reductions are divided into one part per rank, and each rank reduces one part.
void Collective::all_reduce() {
  if (bytes_ <= kSmallBytes) return store(reduce_parts([&](int) { return Part{0, bytes_}; }), 0);
  const auto begin = [&](int rank) {
    return operation_.count * static_cast<size_t>(rank) / static_cast<size_t>(comm_.ranks) *
           bytes_of(operation_.type);
  };
  const auto part_of = [&](int rank) { return Part{begin(rank), begin(rank + 1) - begin(rank)}; };
  const std::vector<char> result = reduce_parts(part_of);
  Exchange results(comm_);
  for (int rank = 0; rank < comm_.ranks; ++rank) {
    results.send(rank, result.data(), result.size());
    results.recv(rank, recv_ + part_of(rank).begin, part_of(rank).bytes);
  }
  if (!stopped(comm_) && results.run()) store(result, begin(comm_.rank));
}

void Collective::reduce_to_root() {
  store(reduce_parts([&](int rank) { return Part{0, rank == operation_.root ? bytes_ : 0}; }), 0);
}

void Collective::reduce_scatter() {
  store(reduce_parts([&](int rank) { return Part{part(rank), bytes_}; }), 0);
}

void Collective::broadcast() {
  if (!is_root()) exchange_.recv(operation_.root, recv_, bytes_);
  for (int rank = 0; is_root() && rank < comm_.ranks; ++rank) exchange_.send(rank, send_, bytes_);
  if (exchange_.run() && is_root()) copy(recv_, send_, bytes_);
}

void Collective::gather(bool everyone) {
  const bool takes = everyone || is_root();
  for (int rank = 0; rank < comm_.ranks; ++rank) {
    if (everyone || rank == operation_.root) exchange_.send(rank, send_, bytes_);
    if (takes) exchange_.recv(rank, recv_ + part(rank), bytes_);
  }
  if (takes) copy(recv_ + part(comm_.rank), send_, bytes_);
  exchange_.run();
}

void Collective::scatter() {
  if (!is_root()) exchange_.recv(operation_.root, recv_, bytes_);
  for (int rank = 0; is_root() && rank < comm_.ranks; ++rank)
    exchange_.send(rank, send_ + part(rank), bytes_);
  if (exchange_.run() && is_root()) copy(recv_, send_ + part(comm_.rank), bytes_);
}

void Collective::all_to_all() {
  for (int rank = 0; rank < comm_.ranks; ++rank) {
    exchange_.send(rank, send_ + part(rank), bytes_);
    exchange_.recv(rank, recv_ + part(rank), bytes_);
  }
  copy(recv_ + part(comm_.rank), send_ + part(comm_.rank), bytes_);
  exchange_.run();
}

void Collective::run() {
  switch (operation_.kind) {
    case Kind::all_reduce:
      return all_reduce();
    case Kind::reduce:
      return reduce_to_root();
    case Kind::reduce_scatter:
      return reduce_scatter();
    case Kind::broadcast:
      return broadcast();
    case Kind::all_gather:
      return gather(true);
    case Kind::gather:
      return gather(false);
    case Kind::scatter:
      return scatter();
    case Kind::all_to_all:
      return all_to_all();
    case Kind::send:
    case Kind::recv:
      return;
  }
}

// Runs all sends and receives of a group together. Messages to the own rank match in the order of the calls.
void execute_point_to_point(Comm& comm, const std::vector<Operation>& operations) {
  Exchange exchange(comm);
  std::vector<const Operation*> own_sends, own_recvs;
  for (const Operation& operation : operations) {
    if (!point_to_point(operation)) continue;
    const bool sends = operation.kind == Kind::send;
    const size_t bytes = operation.count * bytes_of(operation.type);
    if (operation.root == comm.rank)
      (sends ? own_sends : own_recvs).push_back(&operation);
    else if (sends)
      exchange.send(operation.root, operation.send, bytes);
    else
      exchange.recv(operation.root, operation.recv, bytes);
  }
  for (size_t i = 0; i < std::min(own_sends.size(), own_recvs.size()); ++i)
    copy(own_recvs[i]->recv, own_sends[i]->send,
         std::min(own_sends[i]->count, own_recvs[i]->count) * bytes_of(own_sends[i]->type));
  exchange.run();
}

bool fault_in(Comm& comm, const Operation& operation) {
  const bool remote = strikes("remote_error", comm.world_rank, operation.number);
  if (!remote && !strikes("op_hang", comm.world_rank, operation.number)) return false;
  if (remote) failed(comm, NcclResult::remote_error, "fake NCCL: scripted remote error");
  hang(comm, [&] { return stopped(comm); });
  return true;
}

}  // namespace

bool point_to_point(const Operation& operation) {
  return operation.kind == Kind::send || operation.kind == Kind::recv;
}

Buffers buffers_of(const Comm& comm, const Operation& operation) {
  const size_t one = operation.count * bytes_of(operation.type), all = one * static_cast<size_t>(comm.ranks);
  const bool root = operation.root == comm.rank;
  switch (operation.kind) {
    case Kind::all_reduce:
      return {one, one};
    case Kind::reduce:
      return {one, root ? one : 0};
    case Kind::broadcast:
      return {root ? one : 0, one};
    case Kind::all_gather:
      return {one, all};
    case Kind::reduce_scatter:
      return {all, one};
    case Kind::all_to_all:
      return {all, all};
    case Kind::gather:
      return {one, root ? all : 0};
    case Kind::scatter:
      return {root ? all : 0, one};
    case Kind::send:
      return {one, 0};
    case Kind::recv:
      return {0, one};
  }
  return {};
}

void execute(Comm& comm, const std::vector<Operation>& operations) {
  for (const Operation& operation : operations) {
    if (stopped(comm) || fault_in(comm, operation)) return;
    if (!point_to_point(operation)) Collective(comm, operation).run();
  }
  if (!stopped(comm)) execute_point_to_point(comm, operations);
}

}  // namespace fake_gpu
