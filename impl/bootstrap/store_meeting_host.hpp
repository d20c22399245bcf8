// Rank 0's part of a meeting in a store: it collects the hellos and publishes the outcome.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/coordinator.hpp"
#include "bootstrap/meeting.hpp"
#include "store/store.hpp"

namespace dsc {

// ---- The keys of a meeting ----

// The random numbers of the processes that have arrived, concatenated.
inline constexpr std::string_view kRollKey = "join/roll";
// The random numbers of the processes whose connection has ended, concatenated.
inline constexpr std::string_view kGoneKey = "join/gone";
// The outcome of the meeting, as encode(StoreOutcome) returns it.
inline constexpr std::string_view kOutcomeKey = "join/outcome";
inline constexpr std::string_view kHeardKey = "join/heard";      // number of ranks that have read the outcome
inline constexpr std::string_view kClosingKey = "join/closing";  // exists if the world is ending
inline constexpr size_t kNumberBytes = 16;  // hexadecimal digits of a process's random number
std::string hello_key(std::string_view number);
std::string table_key(int32_t host);

// The outcome as it is stored. Tables of members are stored separately, one for each host.
struct StoreOutcome {
  dsc_result_t code = DSC_OK;
  std::string text;
  RankList ranks;  // ranks at fault
  Nonce nonce{};
  int64_t host_pid = 0;
  JobLayout layout;  // set only with DSC_OK
};
std::string encode(const StoreOutcome& outcome);
std::optional<StoreOutcome> decode_store_outcome(std::string_view bytes);

// Hosts one meeting. Only one thread may use it.
class StoreMeetingHost {
 public:
  StoreMeetingHost(Store& store, Hello own, const MeetingSettings& settings);

  // Blocks until the outcome is known and published. After an error, also waits until the ranks that arrived
  // have read it, but at most two seconds.
  StoreOutcome run();

 private:
  bool take_news();
  void take_hello(const std::string& number);
  void drop_gone();
  std::vector<Hello> hellos() const;
  // A fast check whether all ranks have arrived. It may be false even though they have, because the rank with
  // the largest world size may have left.
  bool complete() const { return came_.size() + 1 >= static_cast<size_t>(largest_size_); }
  void publish(const MeetingOutcome& outcome, const StoreOutcome& told);
  void linger();

  Store& store_;
  const Hello own_;
  const MeetingSettings& settings_;
  Coordinator coordinator_;
  std::map<std::string, Hello> came_;  // hellos of the ranks that have arrived, by random number
  std::vector<Hello> left_;
  std::set<std::string> gone_early_;  // random numbers of ranks that left before their hello was read
  int32_t largest_size_;              // largest world size in any hello
  size_t roll_bytes_ = 0;
  size_t gone_bytes_ = 0;
};

// Returns what was appended to the key after the first `from` bytes, or nullopt if nothing is appended by the
// deadline.
std::optional<std::string> try_to_follow(Store& store, std::string_view key, size_t from, Deadline deadline);

}  // namespace dsc
