// Moves rows between the ranks of the tokens and the ranks of the experts, through temporary memory of the
// communicator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/comm.hpp"
#include "expert_parallel/finishing_work.hpp"

namespace dsc {

// The format of the rows in one call.
struct RowFormat {
  size_t hidden = 0;
  int32_t dtype = 0;
  bool is_fp8 = false;  // true if rows are sent as 8-bit floats

  size_t plain_bytes() const noexcept;
  size_t bytes() const noexcept;  // size of a row as it is sent
};

class RowExchange {
 public:
  // `sent` is how many rows this rank's tokens send to each rank. `received` is how many rows its experts
  // receive from each rank.
  RowExchange(std::vector<size_t> sent, std::vector<size_t> received, bool is_even,
              std::shared_ptr<Scratch> scratch);

  size_t sent_rows() const noexcept { return sent_rows_; }
  size_t received_rows() const noexcept { return received_rows_; }
  size_t most_rows() const noexcept { return std::max(sent_rows_, received_rows_); }

  // Throws STATE if the caller still holds the work of the previous call and has not waited for it. If that
  // work was destroyed early, waits for its operation. An error in this case would depend on the operation's
  // progress, which differs between ranks.
  void expect_idle() const;

  // Return memory for the rows of the tokens or of the experts, in the order in which they are sent and
  // received. It stays valid until run(), or the work that run() returned, has ended.
  std::byte* token_side(const RowFormat& format);
  std::byte* expert_side(const RowFormat& format);

  // A step that all ranks take: its name, and a tag that ranks compare.
  struct Step {
    const char* name;
    uint64_t tag;
    bool to_experts;
  };

  // Returns the call of a step, without buffers.
  Call call_of(const Step& step, const RowFormat& format);

  // Moves all rows, and then calls `finish` unless the exchange failed. If `starts` is set, returns a work
  // immediately; otherwise returns null at the end.
  std::shared_ptr<Work> run(Comm& comm, const Step& step, const RowFormat& format, const std::byte* from,
                            std::byte* to, const std::function<void()>& finish, bool starts);

 private:
  struct Memory {
    std::shared_ptr<std::byte> tokens, experts;
  };
  struct Blocks {
    size_t row = 0;  // number of elements in a row
    std::shared_ptr<const BlockList> sent, received;
  };

  void set_blocks(Call& call, const Step& step, size_t row);

  const std::vector<size_t> sent_, received_;
  const size_t sent_rows_, received_rows_;  // totals over all ranks
  const bool is_even_;                      // true if all blocks of all ranks have the same number of rows
  const std::shared_ptr<Scratch> scratch_;
  Memory memory_;  // memory of the call that is being prepared
  Blocks blocks_;
  std::weak_ptr<Work> operation_;        // the latest operation that was started
  std::weak_ptr<FinishingWork> latest_;  // the work that the latest call of run() returned
};

}  // namespace dsc
