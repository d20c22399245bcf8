#include "transport/connections.hpp"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/descriptors.hpp"
#include "base/guard.hpp"
#include "base/random.hpp"
#include "transport/hello.hpp"

namespace dsc {
namespace {

constexpr size_t kNonceBytes = sizeof(Nonce);
constexpr size_t kOtherDescriptors = 16;
constexpr int64_t kRefusalMs = 1000;
constexpr int64_t kCheckMs = 50;
// Interval of retries, which is long because each request puts load on the exchange.
constexpr int64_t kAskMs = 200;
constexpr int64_t kAbortMs = 500;    // limit for sending abort messages
constexpr int64_t kBrieflyMs = 100;  // limit for closing connections in order, which is not essential

// The transport module writes to sockets in a way that raises SIGPIPE if the peer has closed the connection.
// While this object exists, the signal is blocked in the calling thread. A signal that was raised in that
// time is discarded.
class NoSigpipe {
 public:
  NoSigpipe() noexcept {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec at_once{};
    if (!was_pending_)
      while (sigtimedwait(&pipe_, nullptr, &at_once) == -1 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_;
};

// Checks the arguments, and the limit on open files, before anything is opened.
std::vector<int32_t> checked(std::vector<int32_t> members, int32_t rank) {
  const size_t others = members.size() - 1;
  if (rank < 0 || rank >= static_cast<int32_t>(members.size()))
    fail(DSC_ERR_INVALID_ARG, "rank %d of a transport group of %zu ranks, expected 0 to %zu", rank,
         members.size(), others);
  check_descriptors(others + kOtherDescriptors, "rank " + std::to_string(members[static_cast<size_t>(rank)]) +
                                                    " connects to " + std::to_string(others) +
                                                    " other ranks");
  return members;
}

std::string key_of(std::string_view prefix, int32_t host) {
  return std::string(prefix) + "/" + std::to_string(host);
}

}  // namespace

Connections::Connections(const std::shared_ptr<Transport>& transport, int32_t rank,
                         std::vector<int32_t> members, Members of)
    : transport_(transport), rank_(rank), members_(checked(std::move(members), rank)), of_(of) {
  channels_.resize(members_.size());
  peer_addresses_.resize(members_.size());
  nonces_.resize(members_.size());
  const Nonce nonce = random_nonce();
  nonces_[static_cast<size_t>(rank_)].assign(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  for (int32_t peer = 0; peer < size(); ++peer)
    if (peer != rank_)
      channels_[static_cast<size_t>(peer)] = std::make_unique<TransportChannel>(transport, poller_);
}

// Lets the transport module's thread read the remaining data. Closing a socket with unread data would reset
// the connection and discard what was sent last.
Connections::~Connections() {
  const NoSigpipe no_sigpipe;
  hand_back_polling();
  end_all();
}

void Connections::connect(Exchange& exchange, std::string_view prefix, Deadline deadline) {
  perform("connect", [&] {
    exchange_hellos(exchange, prefix, deadline);
    connect_all(deadline);
    check_peers(deadline);
    take_over_polling();
  });
}

std::string Connections::hello() const {
  std::vector<std::string> addresses;
  addresses.reserve(channels_.size());
  for (const auto& channel : channels_) addresses.push_back(channel ? channel->address() : "");
  return encode_hello(transport_->table().library, nonces_[static_cast<size_t>(rank_)], addresses);
}

void Connections::read_hello(int32_t peer, std::string_view text) {
  TransportHello read = decode_hello(text, rank_, name_of(peer));
  const char* const own = transport_->table().library;
  if (read.library != own)
    fail(DSC_ERR_VERSION,
         "%s has transport \"%.64s\", this host has \"%.64s\"; expected the same on all hosts",
         name_of(peer).c_str(), read.library.c_str(), own);
  nonces_[static_cast<size_t>(peer)] = std::move(read.nonce);
  peer_addresses_[static_cast<size_t>(peer)] = std::move(read.address);
}

void Connections::refuse(Exchange& exchange, std::string_view prefix, int32_t rank, const Error& why) {
  call_out([&] { exchange.put(key_of(prefix, rank), encode_refusal(why), Deadline::after_ms(kRefusalMs)); });
}

// Repeats a request to the exchange with short deadlines, so that an abort can end it. Returns TIMEOUT if
// there is no answer by the deadline.
std::optional<Error> Connections::repeat(Deadline deadline, const std::vector<bool>& awaited,
                                         const std::function<void(Deadline slice)>& request) {
  for (;;) {
    std::optional<Error> error;
    const Deadline slice = sooner(deadline, Deadline::after_ms(kAskMs));
    if (capture([&] { request(slice); }, [&](const Error& caught) { error = caught; })) return std::nullopt;
    if (error->code() != DSC_ERR_TIMEOUT) throw *error;
    if (revoked_) fail(DSC_ERR_REVOKED, "%s was aborted", doing_);
    if (check_) check_(awaited);
    if (deadline.passed()) return error;
  }
}

// Asks all peers even after the deadline, so that the error names every peer that is missing.
void Connections::exchange_hellos(Exchange& exchange, std::string_view prefix, Deadline deadline) {
  const std::vector<bool> nobody(members_.size());
  capture(
      [&] {
        const std::string own = hello();
        const auto put = [&](Deadline slice) { exchange.put(key_of(prefix, rank_), own, slice); };
        if (const auto error = repeat(deadline, nobody, put)) throw Error(*error);
      },
      [&](const Error& error) {
        refuse(exchange, prefix, rank_, error);
        throw error;
      });
  std::vector<bool> late(members_.size());
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    std::vector<bool> awaited = nobody;
    awaited[static_cast<size_t>(peer)] = true;
    std::string text;
    const auto get = [&](Deadline slice) {
      text = exchange.get(key_of(prefix, peer), members_[static_cast<size_t>(peer)], slice);
    };
    if (repeat(deadline, awaited, get))
      late[static_cast<size_t>(peer)] = true;
    else
      read_hello(peer, text);
  }
  if (std::find(late.begin(), late.end(), true) != late.end()) fail_late(late);
}

void Connections::connect_all(Deadline deadline) {
  for (int32_t peer = 0; peer < size(); ++peer)
    if (peer != rank_)
      capture(
          [&] { channel(peer).connect(peer_addresses_[static_cast<size_t>(peer)]); },
          [&](dsc_result_t code, const char* text) { fail(code, "%s: %s", name_of(peer).c_str(), text); });
  run(deadline, [&](int32_t peer) { return channel(peer).open() ? Step::kDone : Step::kWait; });
}

// Each host first sends its nonce on every connection. A wrong nonce means that the connection comes from
// another program.
void Connections::check_peers(Deadline deadline) {
  for (int32_t peer = 0; peer < size(); ++peer)
    if (peer != rank_) channel(peer).post(nonces_[static_cast<size_t>(rank_)].data(), kNonceBytes);
  std::vector<bool> known(members_.size());
  run(deadline, [&](int32_t peer) {
    const auto at = static_cast<size_t>(peer);
    if (const std::byte* hello = known[at] ? nullptr : channel(peer).arrived()) {
      if (std::memcmp(hello, nonces_[at].data(), kNonceBytes) != 0)
        fail(DSC_ERR_PROTOCOL, "the connection for %s came from another program", name_of(peer).c_str());
      channel(peer).release();
      known[at] = true;
    }
    return known[at] && channel(peer).all_sent() ? Step::kDone : Step::kWait;
  });
}

void Connections::abort(const Failure& why) noexcept {
  begin_abort(why);
  finish_abort(abort_deadline());
}

Deadline Connections::abort_deadline() noexcept { return Deadline::after_ms(kAbortMs); }

void Connections::begin_abort(const Failure& why) noexcept {
  const NoSigpipe no_sigpipe;
  revoked_ = true;
  send_abort(why);
  poller_.notify();
}

void Connections::finish_abort(Deadline deadline) noexcept {
  const NoSigpipe no_sigpipe;
  await_abort_sent(deadline);
  for (const auto& channel : channels_)
    if (channel) channel->shut_down();
}

// If the operation never had to wait for data, the overlap hook runs after it.
void Connections::perform(const char* name, const std::function<void()>& operation, OverlapHook overlap) {
  if (failure_)
    fail(DSC_ERR_REVOKED, "the connections between the hosts were given up: %s", failure_->what());
  const NoSigpipe no_sigpipe;
  doing_ = name;
  overlap_ = std::move(overlap);
  const auto both = [&] {
    operation();
    run_overlap();
  };
  if (capture(both, [this](const Error& error) { failure_ = error; })) return;
  send_abort(failure_->failure());
  await_abort_sent(abort_deadline());
  end_all();
  throw *failure_;
}

// Runs the overlap hook, but only once. Returns false if there is none or it has already run.
bool Connections::run_overlap() {
  if (!overlap_) return false;
  hand_back_polling();
  std::exchange(overlap_, nullptr)();
  take_over_polling();
  return true;
}

void Connections::take_over_polling() {
  for (int32_t peer = 0; peer < size(); ++peer)
    if (peer != rank_) channel(peer).take_over_polling(peer);
}

void Connections::hand_back_polling() noexcept {
  for (const auto& channel : channels_)
    if (channel) channel->hand_back_polling();
}

// Moves bytes until an event is counted or the deadline has passed.
void Connections::move(uint64_t seen, Deadline deadline) {
  do {
    for (const int32_t peer : poller_.changed(seen, to_move_.empty() ? deadline : Deadline{0}))
      if (std::ranges::find(to_move_, peer) == to_move_.end()) to_move_.push_back(peer);
    std::erase_if(to_move_, [this](int32_t peer) { return !channel(peer).move(); });
  } while (poller_.count() == seen && !deadline.passed());
}

// Sends the cause to all peers whose connection is still open.
void Connections::send_abort(const Failure& why) noexcept {
  hand_back_polling();
  for (const auto& channel : channels_)
    if (channel) channel->send_abort(why);
}

// Gives the peers some time to receive the cause before the sockets are shut down.
void Connections::await_abort_sent(Deadline deadline) noexcept {
  wait_briefly(deadline,
               [](TransportChannel& channel) { return channel.all_delivered() || channel.is_cut_off(); });
}

// First shuts down all sockets, so that the transport module's thread ends the connections. If this thread
// closed them itself, it would block until the module's thread returns from its poll.
void Connections::end_all() {
  for (const auto& channel : channels_)
    if (channel) channel->shut_down();
  wait_briefly(Deadline::after_ms(kBrieflyMs), [](TransportChannel& channel) { return !channel.open(); });
  for (const auto& channel : channels_)
    if (channel) channel->close();
}

// Checks every millisecond, because the kernel does not report when a peer has received data.
void Connections::wait_briefly(Deadline deadline, bool (*done)(TransportChannel& channel)) noexcept {
  uint64_t seen;
  do {
    seen = poller_.count();
    const auto is_done = [done](const auto& channel) { return !channel || done(*channel); };
    if (std::all_of(channels_.begin(), channels_.end(), is_done)) return;
    poller_.wait(seen, sooner(deadline, Deadline::after_ms(1)));
  } while (!deadline.passed());
}

void Connections::run(Deadline deadline, const std::function<Step(int32_t)>& look) {
  std::vector<bool> late(members_.size());
  for (;;) {
    const uint64_t seen = poller_.count();
    if (revoked_) fail(DSC_ERR_REVOKED, "%s was aborted", doing_);
    bool moved = false, all_done = true, all_sent = true;
    for (int32_t peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      // The state is read before look() is called, because data that arrived before the end of the connection
      // is still valid.
      const bool ended = channel(peer).ended();
      const Step step = look(peer);
      const bool is_late = step == Step::kWait || step == Step::kReceive;
      late[static_cast<size_t>(peer)] = is_late;
      if ((is_late || step == Step::kOwe) && ended && !revoked_) fail_ended(peer);
      moved = moved || step == Step::kMoved;
      all_done = all_done && step == Step::kDone;
      all_sent = all_sent && step != Step::kWait;
    }
    if (all_done) return;
    if (moved || (all_sent && run_overlap())) continue;
    if (deadline.passed()) fail_late(late);
    move(seen, sooner(deadline, Deadline::after_ms(kCheckMs)));
    for (int32_t peer = 0; peer < size(); ++peer)
      if (late[static_cast<size_t>(peer)] && channel(peer).is_cut_off()) fail_cut_off(peer);
    if (check_) check_(late);
  }
}

std::string Connections::name_of(int32_t peer) const {
  const std::string member = "rank " + std::to_string(members_[static_cast<size_t>(peer)]);
  return of_ == Members::kRanks ? member : "host " + std::to_string(peer) + " (" + member + ")";
}

void Connections::fail_cut_off(int32_t peer) {
  fail_dead(peer, "the host of " + name_of(peer) + " does not answer");
}

void Connections::fail_ended(int32_t peer) {
  const Failure* said = channel(peer).abort_cause();
  if (!said) fail_dead(peer, "the connection to " + name_of(peer) + " ended: " + channel(peer).why_ended());
  Failure there = *said;
  there.bound();
  Failure failure;  // an error that concerns only a call of the other host becomes REVOKED here
  failure.code = is_group_fatal(there.code) ? there.code : DSC_ERR_REVOKED;
  failure.ranks = there.ranks;
  failure.has_user_ranks = there.has_user_ranks;
  failure.system_error = there.system_error;
  failure.native_code = there.native_code;
  failure.text.add("%s: %s gave up: %s", doing_, name_of(peer).c_str(), there.text.c_str());
  throw Error(failure);
}

void Connections::fail_dead(int32_t peer, const std::string& why) {
  Failure failure;
  failure.code = DSC_ERR_PEER_DEAD;
  failure.ranks = {peer};
  failure.text.add("%s: %s", doing_, why.c_str());
  throw Error(failure);
}

void Connections::fail_late(const std::vector<bool>& late) {
  Failure failure;
  failure.code = DSC_ERR_TIMEOUT;
  failure.text.add("%s: did not arrive in time: ", doing_);
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (!late[static_cast<size_t>(peer)]) continue;
    failure.text.add("%s%s", failure.ranks.empty() ? "" : ", ", name_of(peer).c_str());
    failure.ranks.push_back(peer);
  }
  throw Error(failure);
}

}  // namespace dsc
