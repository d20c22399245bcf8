#include "context_parallel/head_exchange.hpp"

#include "comm/group_ids.hpp"
#include "comm/note_writer.hpp"

namespace dsc {

void HeadExchange::set_call(Call& call) const {
  set_shape(call);
  if (sequence.parts() || heads.parts())
    set_uneven(call);
  else
    set_even(call);
}

void HeadExchange::set_even(Call& call) const {
  call.kind = OpKind::kAllToAll;
  call.count = block(rank, heads.part(rank));
  const Columns by_sequence{heads.part(rank) * head_dim, nullptr};
  const Columns by_heads{sequence.part(rank) * heads.part(rank) * head_dim, nullptr};
  set_columns(call, to_heads ? ColumnBlocks{by_sequence, by_heads} : ColumnBlocks{by_heads, by_sequence});
}

// Sets up a call with unequal parts. The width of a whole sequence depends on the sender's number of heads,
// which differs between ranks.
void HeadExchange::set_uneven(Call& call) const {
  call.kind = OpKind::kAllToAllV;
  const auto mine = list_of(size, [&](int member) { return block(rank, heads.part(member)); });
  const auto others = list_of(size, [&](int member) { return block(member, heads.part(rank)); });
  call.send_blocks = to_heads ? mine : others;
  call.recv_blocks = to_heads ? others : mine;
  const Columns by_sequence = columns_of(heads, head_dim, size);
  const Columns by_heads = columns_of(sequence, heads.part(rank) * head_dim, size);
  set_columns(call,
              to_heads ? ColumnBlocks{by_sequence, by_heads} : ColumnBlocks{by_heads, by_sequence, batch});
}

void HeadExchange::set_shape(Call& call) const noexcept {
  NoteWriter note(call);
  note.add(to_heads ? "to heads, [" : "to sequence, [");
  note.add(batch);
  note.add(", ");
  note.add(sequence, size);
  note.add(", ");
  note.add(heads, size);
  note.add(", ");
  note.add(head_dim);
  note.add("]");
  call.tag = hash_of(heads, hash_of(sequence, mix_id(mix_id(to_heads ? 2 : 1, batch), head_dim)));
}

}  // namespace dsc
