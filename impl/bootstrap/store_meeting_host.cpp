#include "bootstrap/store_meeting_host.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "bootstrap/store_meeting.hpp"
#include "store/bytes.hpp"

namespace dsc {
namespace {

constexpr int kStoreHostCheckMs = 50;
constexpr int kStoreSliceMs = 1000;
constexpr int kDecisionPeriodMs = 100;
// A decision takes time in proportion to the number of ranks. At most a tenth of all time is spent on
// decisions.
constexpr int kDecisionPart = 10;
constexpr int kLingerMs = 2000;
constexpr int kAnswerMs = 5000;  // long enough, because the store is in the same process

}  // namespace

std::string hello_key(std::string_view number) { return "join/hello/" + std::string(number); }

std::string table_key(int32_t host) { return "join/table/" + std::to_string(host); }

std::string encode(const StoreOutcome& outcome) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(outcome.code));
  writer.text(outcome.text);
  writer.number(static_cast<uint64_t>(outcome.host_pid));
  writer.raw({reinterpret_cast<const char*>(outcome.nonce.data()), outcome.nonce.size()});
  writer.raw(outcome.code == DSC_OK ? encode(outcome.layout) : encode_ranks(outcome.ranks));
  return writer.take();
}

std::optional<StoreOutcome> decode_store_outcome(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreOutcome outcome;
  outcome.code = static_cast<dsc_result_t>(reader.number<uint32_t>());
  outcome.text = reader.text();
  outcome.host_pid = static_cast<int64_t>(reader.number<uint64_t>());
  const std::string_view nonce = reader.raw(outcome.nonce.size());
  if (!reader.good()) return std::nullopt;
  std::memcpy(outcome.nonce.data(), nonce.data(), nonce.size());
  if (outcome.code != DSC_OK) {
    outcome.ranks = decode_ranks(reader.raw(reader.left()));
    return outcome;
  }
  auto layout = decode_layout(reader.raw(reader.left()));
  if (!layout) return std::nullopt;
  outcome.layout = *std::move(layout);
  return outcome;
}

std::optional<std::string> try_to_follow(Store& store, std::string_view key, size_t from, Deadline deadline) {
  std::optional<std::string> news;
  capture([&] { news = store.follow(key, from, deadline); },
          [&](dsc_result_t code, const char* text) {
            if (code != DSC_ERR_TIMEOUT) throw Error(code, text);
          });
  return news;
}

StoreMeetingHost::StoreMeetingHost(Store& store, Hello own, const MeetingSettings& settings)
    : store_(store),
      own_(std::move(own)),
      settings_(settings),
      coordinator_(settings.world_size, Hosts::kMany, settings.deadline, settings.progress_ms),
      largest_size_(own_.world_size) {}

// While ranks arrive, decisions are made only from time to time, because each decision examines all hellos.
StoreOutcome StoreMeetingHost::run() {
  Deadline next = Deadline::after_ms(0);
  std::optional<MeetingOutcome> outcome;
  while (!outcome) {
    const bool news = take_news();
    if (settings_.check) settings_.check();
    if (news && !complete() && !next.passed()) continue;
    const int64_t start_ns = now_ns();
    drop_gone();
    outcome = coordinator_.decide(hellos(), left_);
    next = later(Deadline::after_ms(kDecisionPeriodMs),
                 Deadline{now_ns() + kDecisionPart * (now_ns() - start_ns)});
  }
  StoreOutcome told;
  told.code = outcome->code;
  told.text = outcome->text;
  told.ranks = outcome->ranks;
  told.nonce = outcome->nonce;
  told.host_pid = own_.pid;
  if (outcome->code == DSC_OK) told.layout = layout_of(outcome->members);
  publish(*outcome, told);
  if (outcome->code != DSC_OK) linger();
  return told;
}

std::vector<Hello> StoreMeetingHost::hellos() const {
  std::vector<Hello> hellos{own_};
  for (const auto& [number, hello] : came_) hellos.push_back(hello);
  return hellos;
}

// Waits for new ranks, but only for a short time. Returns whether there were any.
bool StoreMeetingHost::take_news() {
  const int slice_ms = settings_.check ? kStoreHostCheckMs : kStoreSliceMs;
  const Deadline deadline = sooner(Deadline::after_ms(slice_ms), coordinator_.next_look());
  const auto news = try_to_follow(store_, kRollKey, roll_bytes_, deadline);
  if (!news) return false;
  if (news->size() % kNumberBytes != 0)
    fail(DSC_ERR_PROTOCOL,
         "another program wrote %zu bytes into the list of ranks in the store, expected %zu for each rank",
         news->size(), kNumberBytes);
  for (size_t at = 0; at < news->size(); at += kNumberBytes) {
    take_hello(news->substr(at, kNumberBytes));
    roll_bytes_ += kNumberBytes;
  }
  return true;
}

void StoreMeetingHost::take_hello(const std::string& number) {
  const Deadline soon = Deadline::after_ms(kAnswerMs);
  const std::string key = hello_key(number);
  if (gone_early_.erase(number) > 0 || !store_.check({&key, 1}, soon)) return;
  const std::string bytes = store_.get(key, soon);
  store_.remove(key, soon);  // otherwise the hellos of a large job would fill the store
  const auto hello = decode_hello(bytes.data(), bytes.size());
  if (!hello) return;
  came_[number] = *hello;
  largest_size_ = std::max(largest_size_, hello->world_size);
  if (hello->remaining_ms < kNoDeadlineMs)
    coordinator_.shorten_deadline(Deadline::after_ms(hello->remaining_ms));
}

// Removes the ranks whose connections have ended. If a rank is gone before its hello was read, remembers its
// random number, so that the hello is ignored later.
void StoreMeetingHost::drop_gone() {
  const auto news = try_to_follow(store_, kGoneKey, gone_bytes_, Deadline::after_ms(0));
  if (!news) return;
  gone_bytes_ += news->size();
  for (size_t at = 0; at + kNumberBytes <= news->size(); at += kNumberBytes) {
    const std::string number = news->substr(at, kNumberBytes);
    const auto found = came_.find(number);
    if (found == came_.end()) {
      gone_early_.insert(number);
      continue;
    }
    left_.push_back(found->second);
    came_.erase(found);
  }
}

void StoreMeetingHost::publish(const MeetingOutcome& outcome, const StoreOutcome& told) {
  const Deadline soon = Deadline::after_ms(kAnswerMs);
  std::map<int32_t, std::vector<Member>> tables;
  for (const Member& member : outcome.members)
    tables[told.layout.host_of_rank[static_cast<size_t>(member.rank)]].push_back(member);
  for (const auto& [host, members] : tables) store_.set(table_key(host), encode_members(members), soon);
  store_.set(kOutcomeKey, encode(told), soon);
}

void StoreMeetingHost::linger() {
  await_readers(store_, static_cast<int32_t>(came_.size()), Deadline::after_ms(kLingerMs));
}

}  // namespace dsc
