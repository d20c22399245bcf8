// The all-to-all of DeepSpeed-Ulysses (Jacobs et al., arXiv 2309.14509). Ranks usually divide the sequence;
// during the attention, they divide the heads instead.
#pragma once

#include <cstddef>

#include "comm/division.hpp"
#include "control/call.hpp"

namespace dsc {

// An exchange of the tensor [batch, sequence, heads, head_dim] on one rank. Both buffers are matrices in
// which each rank has some columns. In the buffer with a divided sequence, a row is one token with all heads.
// In the buffer with divided heads, a row is a whole sequence with this rank's heads.
struct HeadExchange {
  int rank, size;
  bool to_heads;  // if false, back to the divided sequence
  size_t batch;
  Division sequence, heads;
  size_t head_dim;

  // Return the number of elements in this rank's send buffer and recv buffer.
  size_t in_count() const noexcept { return to_heads ? count_by_sequence() : count_by_heads(); }
  size_t out_count() const noexcept { return to_heads ? count_by_heads() : count_by_sequence(); }
  // Sets kind, count, blocks and columns of a call, and a note with the tensor's shape, which ranks compare.
  void set_call(Call& call) const;

 private:
  size_t count_by_sequence() const noexcept { return block(rank, heads.total()); }
  size_t count_by_heads() const noexcept { return batch * sequence.total() * heads.part(rank) * head_dim; }
  // Returns the number of elements that one rank's tokens have in `some_heads` heads.
  size_t block(int owner, size_t some_heads) const noexcept {
    return batch * sequence.part(owner) * some_heads * head_dim;
  }
  void set_even(Call& call) const;
  void set_uneven(Call& call) const;
  void set_shape(Call& call) const noexcept;
};

}  // namespace dsc
