#include "control/job_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "base/wait.hpp"

namespace dsc {
namespace {

constexpr int kPauseMs = 20;
constexpr int kConnectMs = 5000;
constexpr int64_t kSendMs = 1000;        // long enough for a few bytes, which fit into the socket's buffer
constexpr int64_t kLeaderRoundMs = 500;  // interval of heartbeats of a leader
// The interval between requests of ranks that are not leaders. In a large job the interval is longer, so that
// the server gets only about 1000 requests per second.
constexpr int64_t kRoundMs = 1000;
constexpr int64_t kCheckMs = 1000;  // interval in which rank 0 checks the heartbeats of all ranks
// A rank that was asked to send heartbeats has at least this time for its first one.
constexpr int64_t kFirstBeatMs = 2500;

std::string beat_key(int32_t rank) { return "control/beat/" + std::to_string(rank); }

StoreRequest append_to(const std::string& key, const std::string& record) {
  return {StoreOp::kAppend, {key}, record, {}, 0};
}

StoreRequest count_beats(int32_t rank, int64_t more) {
  return {StoreOp::kAdd, {beat_key(rank)}, {}, {}, more};
}

StoreRequest follow(const std::string& key, size_t from) {
  return {StoreOp::kFollow, {key}, {}, {}, static_cast<int64_t>(from)};
}

// The store was reachable before, so connecting is tried for only a few seconds.
std::unique_ptr<Channel> connect(const StoreTarget& target, Deadline deadline) {
  const Deadline connect_deadline = sooner(deadline, Deadline::after_ms(kConnectMs));
  Channel::Failure failure;
  for (;;) {
    if (auto channel = Channel::connect(target, deadline, failure)) return channel;
    if (connect_deadline.passed())
      fail(DSC_ERR_PEER_DEAD, "the connection to the store at %s was lost: %s", target.text().c_str(),
           failure.reason.c_str());
    sleep_until(Deadline::after_ms(kPauseMs));
  }
}

}  // namespace

JobWatch::JobWatch(JobWatchSettings settings, Client& client, Deadline deadline)
    : settings_(std::move(settings)),
      client_(client),
      channel_(connect(settings_.target, deadline)),
      log_(settings_.log_bytes),
      pace_(now_ns()),
      server_heartbeats_(settings_.stall_timeout_ms, now_ns()) {
  channel_->ask(will(), deadline);
  for (const auto& host : settings_.hosts) {
    beats_ = beats_ || host.front() == settings_.rank;
    if (settings_.rank == 0 && host.front() != 0)
      monitored_.push_back({host.front(), true, HeartbeatWatch(settings_.stall_timeout_ms, now_ns())});
  }
  thread_ = start_thread("dsc-control", [this] {
    guard_thread([this] { run(); },
                 [](const char* text) { log(DSC_LOG_LEVEL_ERROR, "control thread: %s", text); });
  });
}

JobWatch::~JobWatch() {
  stopping_ = true;
  channel_->cut();
  thread_.join();
}

StoreRequest JobWatch::will() const {
  StoreRequest will;
  will.op = StoreOp::kWill;
  will.value = encode(append_to(log_.key(), encode(RankGone{settings_.rank, DSC_ERR_PEER_DEAD, ::getpid()})));
  return will;
}

void JobWatch::append(const JobEvent& event) {
  log_.append(encode(event), [this](const std::string& key, const std::string& record) {
    const StoreReply reply = call(append_to(key, record));
    return reply.code == DSC_OK ? static_cast<size_t>(reply.number) : record.size();
  });
}

// If the thread fails, it closes the connection, so that the other ranks treat this rank as dead.
void JobWatch::run() {
  capture(
      [this] {
        int64_t latest = now_ns() - round_ns();
        while (!stopping_) {
          const int64_t next = latest + round_ns();
          follow_until(next);
          if (now_ns() < next) continue;
          make_round();
          latest = now_ns();
        }
      },
      [this](dsc_result_t, const char* text) {
        channel_->cut();
        if (!stopping_) client_.on_server_gone(DSC_ERR_PEER_DEAD, "rank 0 is gone: " + std::string(text));
      });
}

int64_t JobWatch::round_ns() const {
  return (beats_ ? kLeaderRoundMs : std::max<int64_t>(kRoundMs, settings_.world_size)) * kNsPerMs;
}

void JobWatch::follow_until(int64_t time_ns) {
  channel_->send(follow(log_.key(), read_), Deadline::after_ms(kSendMs));
  while (now_ns() < time_ns) {
    const auto reply = channel_->receive(sooner({time_ns}, Deadline::after_ms(OwnPace::kPeriodMs)));
    restart_watches_after_gap();
    if (reply) return take_events(*reply);
  }
  channel_->cancel(Deadline::after_ms(kSendMs));
  take_events(await_reply());
}

void JobWatch::take_events(const StoreReply& reply) {
  if (reply.code == DSC_ERR_TIMEOUT) return;  // there are no new records
  if (reply.code != DSC_OK) fail(reply.code, "%s", reply.value.c_str());
  const JobEvents news = decode_events(reply.value, log_.limit_bytes() - read_);
  const size_t before = read_.load();
  if (news.refused > 0) log(DSC_LOG_LEVEL_ERROR, "%zu records of the job's log cannot be read", news.refused);
  for (const JobEvent& event : news.events) {
    if (const auto* gone = std::get_if<RankGone>(&event)) on_rank_gone(gone->rank);
    if (const auto* silent = std::get_if<RankUnresponsive>(&event); silent && silent->unresponsive)
      monitor_host_of(silent->rank);
    client_.on_event(event);
  }
  read_.store(before + reply.value.size());
  if (read_ < log_.limit_bytes()) return;
  former_key_ = log_.key();
  former_read_ = before;
  read_ = 0;  // set before the key number changes, so that has_read() never uses it for the next key
  log_.go_on();
  call(will());
}

void JobWatch::make_round() {
  if (beats_) call(count_beats(settings_.rank, 1));
  client_.on_round();
  if (now_ns() < next_check_ns_) return;
  check_heartbeats();
  if (settings_.rank == 0) republish_unread_wills();
  next_check_ns_ = now_ns() + kCheckMs * kNsPerMs;
}

void JobWatch::check_heartbeats() {
  for (Monitored& rank : monitored_) {
    const int64_t beats = call(count_beats(rank.rank, 0)).number;
    const int64_t now = now_ns();
    if (beats == 0 && rank.connects_later)
      rank.heartbeats.begin_again(now);
    else if (std::exchange(rank.beats, beats) == beats)
      report_silence(rank, now);
    else if (rank.heartbeats.heard(now) == HeartbeatWatch::News::kBack)
      append(RankUnresponsive{rank.rank, false});
  }
}

void JobWatch::report_silence(Monitored& rank, int64_t now) {
  const HeartbeatWatch::News news = rank.heartbeats.look(now);
  if (news == HeartbeatWatch::News::kUnresponsive) append(RankUnresponsive{rank.rank, true});
  if (news == HeartbeatWatch::News::kStalled)
    append(RankGone{rank.rank, DSC_ERR_PEER_STALLED, 0, rank.heartbeats.unresponsive_ns(now) / kNsPerMs});
}

void JobWatch::on_rank_gone(int32_t rank) {
  gone_.insert(rank);
  monitor_host_of(rank);
  std::erase_if(monitored_, [rank](const Monitored& one) { return one.rank == rank; });
}

// Called when the leader of a host does not run or is gone. The other ranks of the host must now send
// heartbeats: if all of them are stopped, none of them can report that. Their heartbeats count as missing
// from the time at which those of the leader stopped.
void JobWatch::monitor_host_of(int32_t leader) {
  const int64_t now = now_ns();
  const int64_t most_ns = std::max<int64_t>(0, settings_.stall_timeout_ms - kFirstBeatMs) * kNsPerMs;
  const int64_t since_ns = now - std::min(silent_ns(leader, now), most_ns);
  for (const auto& host : settings_.hosts) {
    if (host.front() != leader) continue;
    for (const int32_t rank : host) {
      if (rank == settings_.rank && !std::exchange(beats_, true)) call(count_beats(rank, 1));
      if (settings_.rank == 0 && !is_monitored(rank) && !gone_.contains(rank))
        monitored_.push_back({rank, false, HeartbeatWatch(settings_.stall_timeout_ms, since_ns)});
    }
  }
}

bool JobWatch::is_monitored(int32_t rank) const {
  return std::ranges::any_of(monitored_, [rank](const Monitored& one) { return one.rank == rank; });
}

int64_t JobWatch::silent_ns(int32_t rank, int64_t now) const {
  for (const Monitored& one : monitored_)
    if (one.rank == rank) return one.heartbeats.unresponsive_ns(now);
  return 0;
}

// Publishes again the wills in the previous key. A rank that died before it had read that key to the end left
// its will in that key, which no rank reads any more.
void JobWatch::republish_unread_wills() {
  if (former_key_.empty()) return;
  channel_->send(follow(former_key_, former_read_), Deadline::after_ms(kSendMs));
  channel_->cancel(Deadline::after_ms(kSendMs));
  const StoreReply reply = await_reply();
  if (reply.code != DSC_OK) return;
  former_read_ += reply.value.size();
  for (const JobEvent& event : decode_events(reply.value).events)
    if (std::holds_alternative<RankGone>(event)) append(event);  // publishing an event twice is harmless
}

StoreReply JobWatch::call(const StoreRequest& request) {
  channel_->send(request, Deadline::after_ms(kSendMs));
  StoreReply reply = await_reply();
  if (reply.code != DSC_OK)
    log(DSC_LOG_LEVEL_ERROR, "the store of the job refused a request: %s", reply.value.c_str());
  return reply;
}

// Waits for the reply to a request that the server answers immediately. If this takes long, the server does
// not run.
StoreReply JobWatch::await_reply() {
  server_heartbeats_.begin_again(now_ns());
  for (;;) {
    auto reply = channel_->receive(Deadline::after_ms(OwnPace::kPeriodMs));
    restart_watches_after_gap();
    if (!reply) {
      check_server();
      continue;
    }
    if (server_heartbeats_.heard(now_ns()) == HeartbeatWatch::News::kBack)
      client_.on_server_unresponsive(false);
    return *std::move(reply);
  }
}

void JobWatch::restart_watches_after_gap() {
  const int64_t now = now_ns();
  if (!pace_.had_gap(now)) return;
  server_heartbeats_.begin_again(now);
  for (Monitored& rank : monitored_) rank.heartbeats.begin_again(now);
}

void JobWatch::check_server() {
  const int64_t now = now_ns();
  const HeartbeatWatch::News news = server_heartbeats_.look(now);
  if (news == HeartbeatWatch::News::kNone || settings_.rank == 0) return;
  if (news == HeartbeatWatch::News::kUnresponsive) return client_.on_server_unresponsive(true);
  char text[128];
  std::snprintf(text, sizeof text, "rank 0 does not run: its store has not answered for %.1f s",
                static_cast<double>(server_heartbeats_.unresponsive_ns(now)) / kNsPerSecond);
  client_.on_server_gone(DSC_ERR_PEER_STALLED, text);
}

}  // namespace dsc
