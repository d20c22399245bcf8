// Rank 0 at a meeting in a store: it collects hellos and publishes the outcome.
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

// Keys of a meeting.
inline constexpr std::string_view kRollKey = "join/roll";  // numbers of the ranks that arrived, concatenated
inline constexpr std::string_view kGoneKey = "join/gone";  // numbers of those whose connection ended
inline constexpr std::string_view kOutcomeKey = "join/outcome";  // encode(StoreOutcome)
inline constexpr std::string_view kHeardKey = "join/heard";      // how many ranks have read the outcome
inline constexpr std::string_view kClosingKey = "join/closing";  // exists once the world is ending
inline constexpr size_t kNumberBytes = 16;                       // hexadecimal digits of a process's number
std::string hello_key(std::string_view number);
std::string table_key(int32_t host);

// The outcome in the store. Tables of members are stored separately, one per host.
struct StoreOutcome {
  dsc_result_t code = DSC_OK;
  std::string text;
  RankList ranks;  // at fault
  Nonce nonce{};
  int64_t host_pid = 0;
  JobLayout layout;  // only with DSC_OK
};
std::string encode(const StoreOutcome& outcome);
std::optional<StoreOutcome> decode_store_outcome(std::string_view bytes);

// Holds one meeting; used by one thread.
class StoreMeetingHost {
 public:
  StoreMeetingHost(Store& store, Hello own, const MeetingSettings& settings);

  // Blocks until the outcome is known and published. After an error it waits until the ranks that arrived
  // have read it, for at most two seconds.
  StoreOutcome run();

 private:
  bool take_news();
  void take_hello(const std::string& number);
  void drop_gone();
  std::vector<Hello> hellos() const;
  // A cheap check. It may be false although all have arrived, because the rank that claimed the largest size
  // may have left.
  bool complete() const { return came_.size() + 1 >= static_cast<size_t>(largest_size_); }
  void publish(const MeetingOutcome& outcome, const StoreOutcome& told);
  void linger();

  Store& store_;
  const Hello own_;
  const MeetingSettings& settings_;
  Coordinator coordinator_;
  std::map<std::string, Hello> came_;  // by number
  std::vector<Hello> left_;
  std::set<std::string> gone_early_;  // numbers of ranks that left before their hello was read
  int32_t largest_size_;              // largest world size that was claimed
  size_t roll_bytes_ = 0;
  size_t gone_bytes_ = 0;
};

// Returns nullopt if nothing has been appended by the deadline.
std::optional<std::string> try_to_follow(Store& store, std::string_view key, size_t from, Deadline deadline);

}  // namespace dsc
