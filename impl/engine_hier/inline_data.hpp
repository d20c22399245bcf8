// Small data that travels together with the comparison of calls, and so needs no separate exchange. It is
// used only if the calls are equal.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine_hier/hier_call.hpp"
#include "engine_hier/host_outcome.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

// With several ranks per host, give_part() writes what a member sends to its leader, take_inline() computes
// the `result` on the leader, and take_result() receives what the leader has sent back.
class InlineData : public HierCall {
 public:
  using HierCall::HierCall;

  // Returns whether the data of the call is small enough.
  bool fits() const;
  void give_part(std::byte* to) const;
  std::vector<TransportBlock> inline_blocks(std::span<const std::byte* const> parts);
  void take_inline(std::span<const TransportGroup::Header> headers, std::byte* result);
  void take_result(const std::byte* result);

 private:
  // Returns the inline data of a host; throws PROTOCOL if its length is not `bytes`.
  static const std::byte* expect(const TransportGroup::Header& header, size_t bytes);
  bool is_small() const;
  TransportBlock host_part(std::span<const std::byte* const> parts);
  void combine_hosts(std::span<const TransportGroup::Header> headers, std::byte* result);
  TransportBlock block_for(int host, const std::vector<size_t>& bytes) const;
  void combine_inline(std::span<const TransportGroup::Header> headers, const std::byte* mine, size_t bytes);
};

}  // namespace dsc
