// Sends large blocks between ranks through the leaders, if possible directly into the receiver's buffer.
#include "engine_hier/hier_steps.hpp"

#include "dtype/reduce.hpp"

namespace dsc {

namespace {
constexpr size_t kStepBytes = size_t{2} << 20;
}

// Long blocks are sent in pieces: first the first piece of every step, then the second piece, and so on. A
// leader's own blocks need no scratch memory.
void HierSteps::exchange_pipelined(const std::vector<BlockPair>& steps, size_t longest) {
  const Cut cut(longest, kStepBytes);
  const int own_index = layout_.own_local_index(), own_host = layout_.own_host();
  const auto step = [&](size_t piece) { return steps[piece % steps.size()]; };
  const auto count = [&](const RemoteBlock& end, size_t piece) {
    return end.host < 0 ? 0 : cut.count(piece / steps.size(), end.bytes);
  };
  // Returns where a piece is on this rank: in the buffer of the member that sends or receives it, in scratch
  // memory on the leader otherwise, and null on other members.
  const auto location = [&](const RemoteBlock& end, Scratch which, size_t piece) -> std::byte* {
    if (end.local_index == own_index)
      return static_cast<std::byte*>(end.data) + cut.start(piece / steps.size());
    return own_index == 0 ? scratch_of(which, piece, cut.length) : nullptr;
  };
  const auto out = [&](size_t piece) { return location(step(piece).out, kUp, piece); };
  const auto in = [&](size_t piece) { return location(step(piece).in, kDown, piece); };
  const auto stay_here = [&](size_t piece, size_t bytes) {
    const auto [sender, receiver] = step(piece);
    if (sender.local_index != receiver.local_index)
      pass(sender.local_index, receiver.local_index, sender.local_index == own_index ? out(piece) : in(piece),
           bytes);
    else if (sender.local_index == own_index)
      copy_bytes(in(piece), out(piece), bytes);
  };
  in_pieces(steps.size() * cut.pieces(),
            {.up =
                 [&](size_t piece) {
                   const RemoteBlock end = step(piece).out;
                   const size_t bytes = count(end, piece);
                   if (bytes == 0) return;
                   if (end.host == own_host) return stay_here(piece, bytes);
                   pass(end.local_index, 0, out(piece), bytes);
                 },
             .down =
                 [&](size_t piece) {
                   const RemoteBlock end = step(piece).in;
                   const size_t bytes = count(end, piece);
                   if (bytes > 0 && end.host != own_host) pass(0, end.local_index, in(piece), bytes);
                 },
             .across =
                 [&](size_t piece, OverlapHook overlap) {
                   std::vector<TransportBlock> sends(static_cast<size_t>(layout_.hosts())), receives(sends);
                   const auto add = [&](std::vector<TransportBlock>& blocks, const RemoteBlock& end,
                                        const auto& at) {
                     const size_t bytes = count(end, piece);
                     if (bytes > 0 && end.host != own_host)
                       blocks[static_cast<size_t>(end.host)] = {at(piece), bytes};
                   };
                   add(sends, step(piece).out, out);
                   add(receives, step(piece).in, in);
                   context_.links.leaders().exchange(sends, receives, deadline_, std::move(overlap));
                 }});
}

}  // namespace dsc
