// Running totals per operation and size class.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "control/call.hpp"

namespace dsc {

struct OpStats {
  std::string operation;
  uint64_t bytes_class = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t waiting_ns = 0;
  uint64_t moving_ns = 0;
};

class StatsTable {
 public:
  // Any thread may add messages. Only one thread at a time may add other operations.
  void add(OpKind kind, size_t bytes, int64_t waiting_ns, int64_t moving_ns) noexcept;
  std::vector<OpStats> read() const;

 private:
  struct Cell {
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> waiting_ns{0};
    std::atomic<uint64_t> moving_ns{0};
  };
  static constexpr size_t kClasses = 65;  // 0 bytes, then powers of two
  // Kinds of operations that users call.
  static constexpr size_t kKinds = static_cast<size_t>(OpKind::kFinalize);

  using Row = std::array<Cell, kClasses>;
  std::array<Row, kKinds> rows_;
};

}  // namespace dsc
