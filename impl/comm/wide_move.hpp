// The data of one operation between hosts: gathered or combined on each host, passed between leaders, spread
// on each host. All ranks have agreed on the call.
#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.hpp"
#include "control/call.hpp"

namespace dsc {

class WideComm;

class WideMove {
 public:
  WideMove(WideComm& comm, const Call& call, Deadline deadline) noexcept
      : comm_(comm), call_(call), deadline_(deadline) {}

  // Throws what the host engine and the wire throw; UNSUPPORTED for what does not go between hosts.
  void run();

  // Before anybody is told of the call.
  static void check(const Call& call);

 private:
  void move();
  void all_reduce();
  void reduce();
  void reduce_scatter();
  void broadcast();
  void all_gather();
  void gather();
  void scatter();
  void all_to_all();

  // 8- and 16-bit floats are summed in f32 and rounded once.
  bool widens() const noexcept;
  int32_t work_type() const noexcept;
  const void* widened(const void* values, size_t count);
  void combine_on_host(const void* values, void* sum, size_t count);
  void finish(void* sum, void* result, size_t count);
  size_t piece_elements() const noexcept;

  std::vector<size_t> lengths() const;  // bytes of each rank's block
  void run_local(Call call);
  void pass(int from, int to, void* data, size_t bytes);
  std::byte* scratch(size_t bytes);
  std::byte* input(size_t bytes);

  WideComm& comm_;
  const Call& call_;
  const Deadline deadline_;
};

}  // namespace dsc
