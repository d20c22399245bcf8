#include "bootstrap/store_meeting.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "bootstrap/store_meeting_host.hpp"
#include "bootstrap/unix_socket.hpp"

namespace dsc {
namespace {

constexpr int kStoreCheckMs = 50;
// Extra time after the deadline, for an outcome that was published at the deadline.
constexpr int kStoreSlackMs = 1000;
constexpr int kStoreAnswerMs = 5000;
constexpr int kLookMs = 10;

Deadline with_slack(Deadline deadline, int slack_ms) {
  return deadline.ns == Deadline::never().ns ? deadline : Deadline{deadline.ns + slack_ms * kNsPerMs};
}

// Returns a random number that identifies this process.
std::string new_number() { return hex(random_nonce()).substr(0, kNumberBytes); }

void leave_will(Store& store, const std::string& number, Deadline deadline) {
  StoreRequest gone;
  gone.op = StoreOp::kAppend;
  gone.keys = {std::string(kGoneKey)};
  gone.value = number;
  StoreRequest will;
  will.op = StoreOp::kWill;
  will.value = encode(gone);
  store.perform(will, deadline);
}

// Publishes the hello. Returns the random number by which rank 0 identifies this process.
std::string introduce(Store& store, Hello hello, const MeetingSettings& settings) {
  const Deadline deadline = later(settings.deadline, Deadline::after_ms(kStoreSlackMs));
  std::string number = new_number();
  leave_will(store, number, deadline);
  hello.remaining_ms = settings.deadline.remaining_ms();
  store.set(hello_key(number), encode_hello(hello), deadline);
  store.append(kRollKey, number, deadline);
  return number;
}

std::string wait_for_outcome(Store& store, const MeetingSettings& settings) {
  const Deadline last = with_slack(settings.deadline, kStoreSlackMs);
  for (;;) {
    const Deadline slice = settings.check ? sooner(last, Deadline::after_ms(kStoreCheckMs)) : last;
    if (auto outcome = try_to_follow(store, kOutcomeKey, 0, slice)) return *std::move(outcome);
    if (settings.check) settings.check();
    if (last.passed())
      fail(DSC_ERR_TIMEOUT, "rank 0 collects the ranks, but sent no result; is that process stopped?");
  }
}

// Takes part as a rank that does not host the meeting. Sets `late` if the world was formed before rank 0 had
// read this rank's hello.
StoreOutcome follow(Store& store, const Hello& hello, const MeetingSettings& settings, bool& late) {
  const std::string number = introduce(store, hello, settings);
  auto outcome = decode_store_outcome(wait_for_outcome(store, settings));
  if (!outcome) fail(DSC_ERR_PROTOCOL, "the result in the store is not in this version's format");
  if (outcome->code == DSC_OK) late = store.remove(hello_key(number), Deadline::after_ms(kStoreAnswerMs));
  return *std::move(outcome);
}

// Reports that this rank has read the outcome. Ignores errors, because rank 0 may close the store now, and
// this rank no longer needs it.
void say_heard(Store& store) {
  capture([&] { store.add(kHeardKey, 1, Deadline::after_ms(kStoreAnswerMs)); },
          [](dsc_result_t, const char*) {});
}

std::vector<Member> own_table(Store& store, const StoreOutcome& outcome, int32_t rank) {
  const int32_t host = outcome.layout.host_of_rank[static_cast<size_t>(rank)];
  return decode_members(store.get(table_key(host), Deadline::after_ms(kStoreAnswerMs)));
}

// Returns whether this process had arrived earlier, lost its connection, and is nevertheless part of the
// world that was formed. Returns false if the process already belonged to this world and is starting again.
bool formed_with(Store& store, const StoreOutcome& outcome, const Hello& own, const Nonce& latest_world) {
  if (outcome.nonce == latest_world || own.rank >= outcome.layout.world_size()) return false;
  return std::ranges::any_of(own_table(store, outcome, own.rank), [&](const Member& member) {
    return member.rank == own.rank && member.pid == own.pid && member.endpoint == own.endpoint;
  });
}

std::optional<MeetingResult> too_late(Store& store, const StoreOutcome& outcome, std::string& reason) {
  const std::string closing(kClosingKey);
  if (!store.check({&closing, 1}, Deadline::after_ms(kStoreAnswerMs)))
    fail(DSC_ERR_ADDR_IN_USE,
         "a job of %d ranks has already started at this address (rank 0 has pid %lld, incarnation %s); "
         "choose another MASTER_PORT or DSC_JOB_ID",
         outcome.layout.world_size(), static_cast<long long>(outcome.host_pid), hex(outcome.nonce).c_str());
  reason = "the world that started at this address is ending";
  return std::nullopt;
}

// Hosts the meeting or takes part in it. Returns nullopt if this rank has arrived late and should try again.
std::optional<MeetingResult> take_part(Store& store, const Hello& hello, const MeetingSettings& settings,
                                       bool hosts, std::string& reason) {
  bool late = false;
  StoreOutcome outcome =
      hosts ? StoreMeetingHost(store, hello, settings).run() : follow(store, hello, settings, late);
  if (outcome.code != DSC_OK && !hosts) say_heard(store);
  if (outcome.code != DSC_OK) {
    Failure cause;
    cause.ranks = outcome.ranks;
    fail_because_of(cause, outcome.code, "%s", outcome.text.c_str());
  }
  if (late && !formed_with(store, outcome, hello, settings.latest_world))
    return too_late(store, outcome, reason);
  MeetingResult result;
  result.members = own_table(store, outcome, hello.rank);
  if (!hosts) say_heard(store);
  result.nonce = outcome.nonce;
  result.held = {outcome.nonce, outcome.layout.world_size(), outcome.host_pid, false};
  result.layout = std::move(outcome.layout);
  return result;
}

}  // namespace

std::optional<MeetingResult> meet_in_store(Store& store, const MeetingSettings& settings, bool hosts,
                                           std::string& reason) {
  std::optional<MeetingResult> result;
  capture([&] { result = take_part(store, hello_of(settings), settings, hosts, reason); },
          [&](const Error& error) {
            reason = error.what();
            if (error.code() != DSC_ERR_PEER_DEAD) throw Error(error);
          });
  return result;
}

void refuse_in_store(Store& store, const Error& why, int32_t others, Deadline deadline) {
  StoreOutcome refusal;
  refusal.code = why.code();
  refusal.text = why.what();
  refusal.ranks = why.failure().ranks;
  store.set(kOutcomeKey, encode(refusal), Deadline::after_ms(kStoreAnswerMs));
  await_readers(store, others, deadline);
}

void await_readers(Store& store, int32_t count, Deadline deadline) {
  while (store.add(kHeardKey, 0, later(deadline, Deadline::after_ms(kStoreAnswerMs))) < count &&
         !deadline.passed())
    sleep_until(Deadline::after_ms(kLookMs));
}

void announce_end(Store& store, Deadline deadline) { store.set(kClosingKey, "1", deadline); }

}  // namespace dsc
