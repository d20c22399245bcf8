// The all-to-all of DeepSpeed-Ulysses (Jacobs et al., arXiv 2309.14509): the ranks divide a sequence, and for
// the time of the attention they divide its heads instead.
#pragma once

#include <cstddef>

#include "comm/division.hpp"
#include "control/call.hpp"

namespace dsc {

// An exchange of the tensor [batch, sequence, heads, head_dim] on one rank. Both buffers are matrices of
// which each rank has columns. Where the sequence is divided, a row is a token with all heads; where the
// heads are, a row is a whole sequence with this rank's heads.
struct HeadExchange {
  int rank, size;
  bool to_heads;  // false: back to the divided sequence
  size_t batch;
  Division sequence, heads;
  size_t head_dim;

  // Elements of this rank's buffers.
  size_t in_count() const noexcept { return to_heads ? count_by_sequence() : count_by_heads(); }
  size_t out_count() const noexcept { return to_heads ? count_by_heads() : count_by_sequence(); }
  // Fills in kind, count, blocks, columns, and the note with the tensor's shape, which ranks also compare.
  void set_call(Call& call) const;

 private:
  size_t count_by_sequence() const noexcept { return block(rank, heads.total()); }
  size_t count_by_heads() const noexcept { return batch * sequence.total() * heads.part(rank) * head_dim; }
  // Elements of some heads of the tokens of one member.
  size_t block(int owner, size_t some_heads) const noexcept {
    return batch * sequence.part(owner) * some_heads * head_dim;
  }
  void set_even(Call& call) const;
  void set_uneven(Call& call) const;
  void set_shape(Call& call) const noexcept;
};

}  // namespace dsc
