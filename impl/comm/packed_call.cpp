#include "comm/packed_call.hpp"

#include "dtype/reduce.hpp"

namespace dsc {

Call without_columns(const Call& call) {
  Call packed = call;
  packed.columns = nullptr;
  return packed;
}

size_t packed_start(const BlockList* blocks, size_t count, int member) noexcept {
  const auto at = static_cast<size_t>(member);
  return blocks ? blocks->starts[at] : at * count;
}

PackedCall::PackedCall(const Call& call, int rank, int size, Scratch& scratch)
    : transfer_(call, rank, size), call_(without_columns(call)) {
  if (transfer_.recv_columns) {
    recv_ = scratch.take(transfer_.recv_bytes);
    call_.recv = recv_.get();
  }
  if (!transfer_.send_columns) return;
  send_ = scratch.take(transfer_.send_bytes);
  call_.send = send_.get();
  for (int receiver = 0; receiver < size; ++receiver) {
    const Block block = transfer_.outgoing(receiver);
    std::byte* to =
        send_.get() + transfer_.bytes_of(packed_start(transfer_.send_blocks, transfer_.count, receiver));
    for_each_run(block, 0, block.count, [&](size_t from, size_t, size_t run) {
      copy_bytes(to, transfer_.send_at(from), transfer_.bytes_of(run));
      to += transfer_.bytes_of(run);
    });
  }
}

void PackedCall::unpack() const {
  if (!recv_) return;
  for (int sender = 0; sender < transfer_.size; ++sender) {
    const Block block = transfer_.received_from(sender);
    const std::byte* from =
        recv_.get() + transfer_.bytes_of(packed_start(transfer_.recv_blocks, transfer_.count, sender));
    for_each_run(block, 0, block.count, [&](size_t, size_t to, size_t run) {
      copy_bytes(transfer_.recv_at(to), from, transfer_.bytes_of(run));
      from += transfer_.bytes_of(run);
    });
  }
}

}  // namespace dsc
