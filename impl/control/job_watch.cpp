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
constexpr int64_t kSendMs = 1000;        // for a few bytes, which fit into the socket's buffer
constexpr int64_t kLeaderRoundMs = 500;  // interval of heartbeats of a leader
// The least interval of requests of other ranks. It is longer in a large job, so that the server gets about
// 1000 requests per second.
constexpr int64_t kRoundMs = 1000;
constexpr int64_t kLookMs = 1000;  // interval in which rank 0 checks all leaders

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

// The store has existed before, so that an attempt to connect to it is repeated for a few seconds only.
std::unique_ptr<Channel> connect(const StoreTarget& target, Deadline deadline) {
  const Deadline connect_deadline = sooner(deadline, Deadline::after_ms(kConnectMs));
  Channel::Failure failure;
  for (;;) {
    if (auto channel = Channel::connect(target, deadline, failure)) return channel;
    if (connect_deadline.passed())
      fail(DSC_ERR_PEER_DEAD, "the store at %s went away: %s", target.text().c_str(), failure.reason.c_str());
    sleep_until(Deadline::after_ms(kPauseMs));
  }
}

}  // namespace

JobWatch::JobWatch(JobWatchSettings settings, Client& client, Deadline deadline)
    : settings_(std::move(settings)),
      leads_(std::ranges::find(settings_.leaders, settings_.rank) != settings_.leaders.end()),
      client_(client),
      channel_(connect(settings_.target, deadline)),
      log_(settings_.log_bytes),
      pace_(now_ns()),
      server_heartbeats_(settings_.stall_timeout_ms, now_ns()) {
  channel_->ask(will(), deadline);
  if (settings_.rank == 0)
    for (const int32_t rank : settings_.leaders)
      if (rank != 0) leaders_.push_back({rank, 0, HeartbeatWatch(settings_.stall_timeout_ms, now_ns())});
  thread_ = start_thread("dsc-control", [this] {
    guard_thread([this] { run(); }, [](const char* text) { log(DSC_LOG_ERROR, "control thread: %s", text); });
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

// If the thread fails, it ends the connection, so that the others treat this rank as dead.
void JobWatch::run() {
  capture(
      [this] {
        const int64_t others_ms = std::max<int64_t>(kRoundMs, settings_.world_size);
        const int64_t round_ns = (leads_ ? kLeaderRoundMs : others_ms) * kNsPerMs;
        int64_t next = now_ns();
        while (!stopping_) {
          follow_until(next);
          if (now_ns() < next) continue;
          make_round();
          next = now_ns() + round_ns;
        }
      },
      [this](dsc_result_t, const char* text) {
        channel_->cut();
        if (!stopping_) client_.on_server_gone(DSC_ERR_PEER_DEAD, "rank 0 is gone: " + std::string(text));
      });
}

void JobWatch::follow_until(int64_t time_ns) {
  channel_->send(follow(log_.key(), read_), Deadline::after_ms(kSendMs));
  while (now_ns() < time_ns) {
    const auto reply = channel_->receive(sooner({time_ns}, Deadline::after_ms(OwnPace::kPeriodMs)));
    note_pace();
    if (reply) return take_events(*reply);
  }
  channel_->cancel(Deadline::after_ms(kSendMs));
  take_events(await_reply());
}

void JobWatch::take_events(const StoreReply& reply) {
  if (reply.code == DSC_ERR_TIMEOUT) return;  // nothing new
  if (reply.code != DSC_OK) fail(reply.code, "%s", reply.value.c_str());
  const JobEvents news = decode_events(reply.value, log_.limit_bytes() - read_);
  const size_t before = read_.load();
  if (news.refused > 0) log(DSC_LOG_ERROR, "%zu records of the job's log cannot be read", news.refused);
  for (const JobEvent& event : news.events) {
    if (const auto* gone = std::get_if<RankGone>(&event))
      std::erase_if(leaders_, [gone](const Leader& leader) { return leader.rank == gone->rank; });
    client_.on_event(event);
  }
  read_.store(before + reply.value.size());
  if (read_ < log_.limit_bytes()) return;
  former_key_ = log_.key();
  former_read_ = before;
  read_ = 0;  // before the number, so that has_read() never compares it with another key
  log_.go_on();
  call(will());
}

void JobWatch::make_round() {
  if (leads_) call(count_beats(settings_.rank, 1));
  client_.on_round();
  if (now_ns() < next_look_ns_) return;
  look_at_leaders();
  if (settings_.rank == 0) tell_of_late_wills();
  next_look_ns_ = now_ns() + kLookMs * kNsPerMs;
}

void JobWatch::look_at_leaders() {
  for (Leader& leader : leaders_) {
    const int64_t beats = call(count_beats(leader.rank, 0)).number;
    const int64_t now = now_ns();
    if (beats == 0)
      leader.heartbeats.begin_again(now);  // this rank has not connected yet
    else if (std::exchange(leader.beats, beats) == beats)
      look_at(leader, now);
    else if (leader.heartbeats.heard(now) == HeartbeatWatch::News::kBack)
      append(RankUnresponsive{leader.rank, false});
  }
}

void JobWatch::look_at(Leader& leader, int64_t now) {
  const HeartbeatWatch::News news = leader.heartbeats.look(now);
  if (news == HeartbeatWatch::News::kUnresponsive) append(RankUnresponsive{leader.rank, true});
  if (news == HeartbeatWatch::News::kStalled)
    append(RankGone{leader.rank, DSC_ERR_PEER_STALLED, 0, leader.heartbeats.unresponsive_ns(now) / kNsPerMs});
}

// A rank that died before it had read a full key to the end left its will in that key, where nobody looks any
// more.
void JobWatch::tell_of_late_wills() {
  if (former_key_.empty()) return;
  channel_->send(follow(former_key_, former_read_), Deadline::after_ms(kSendMs));
  channel_->cancel(Deadline::after_ms(kSendMs));
  const StoreReply reply = await_reply();
  if (reply.code != DSC_OK) return;
  former_read_ += reply.value.size();
  for (const JobEvent& event : decode_events(reply.value).events)
    if (std::holds_alternative<RankGone>(event)) append(event);  // publishing it once more is harmless
}

StoreReply JobWatch::call(const StoreRequest& request) {
  channel_->send(request, Deadline::after_ms(kSendMs));
  StoreReply reply = await_reply();
  if (reply.code != DSC_OK) log(DSC_LOG_ERROR, "the job's store refuses: %s", reply.value.c_str());
  return reply;
}

// Waits for the reply to a request that the server answers at once: a long wait means that the server does
// not run.
StoreReply JobWatch::await_reply() {
  server_heartbeats_.begin_again(now_ns());
  for (;;) {
    auto reply = channel_->receive(Deadline::after_ms(OwnPace::kPeriodMs));
    note_pace();
    if (!reply) {
      look_at_server();
      continue;
    }
    if (server_heartbeats_.heard(now_ns()) == HeartbeatWatch::News::kBack)
      client_.on_server_unresponsive(false);
    return *std::move(reply);
  }
}

void JobWatch::note_pace() {
  const int64_t now = now_ns();
  if (!pace_.had_gap(now)) return;
  server_heartbeats_.begin_again(now);
  for (Leader& leader : leaders_) leader.heartbeats.begin_again(now);
}

void JobWatch::look_at_server() {
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
