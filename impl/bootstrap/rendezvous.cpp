#include "bootstrap/rendezvous.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/descriptors.hpp"
#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "bootstrap/agent_store.hpp"
#include "bootstrap/init_method.hpp"
#include "bootstrap/local_address.hpp"
#include "bootstrap/meeting_wire.hpp"
#include "bootstrap/pmix.hpp"
#include "bootstrap/store_meeting.hpp"
#include "bootstrap/unix_socket.hpp"
#include "store/bytes.hpp"
#include "store/channel_store.hpp"
#include "store/file_store.hpp"

namespace dsc {
namespace {

[[noreturn]] void fail_without_first_rank(dsc_result_t code, const std::string& why) {
  Failure cause;
  cause.ranks = {0};
  fail_because_of(cause, code, "rank 0 did not arrive: %s", why.c_str());
}

constexpr size_t kOtherDescriptors = 64;  // descriptors that a process opens for other purposes
constexpr int kPauseMs = 20;
constexpr int kSecondServerMs = 500;
constexpr int kReadAgainMs = 500;
constexpr int kMostAttemptMs = 4000;
constexpr int kReadersMs = 2000;
constexpr int kVerdictMs = 1000;  // time for the result of a meeting at the deadline to arrive
constexpr int kEndMs = 500;
constexpr int kRefusalMs = 5000;  // time for ranks that were started at about the same time
constexpr std::string_view kLocationKey = "store";

// Counts the worlds of a job in which this process took part. Values in an out-of-band exchange outlive a
// world, and the count keeps the next world from reading them. All ranks of a process join a world together,
// so the count is equal on all of them, whichever ranks they are.
class WorldCounts {
 public:
  uint32_t of(const std::string& job_id) {
    MutexLock lock(mutex_);
    return met_[job_id].count;
  }
  void add(const std::string& job_id, const Nonce& world) {
    MutexLock lock(mutex_);
    Met& met = met_[job_id];
    if (met.count == 0 || met.latest != world) ++met.count;
    met.latest = world;
  }
  Nonce latest(const std::string& job_id) {
    MutexLock lock(mutex_);
    return met_[job_id].latest;
  }

 private:
  struct Met {
    uint32_t count = 0;
    Nonce latest{};
  };
  Mutex mutex_;
  std::map<std::string, Met> met_ DSC_GUARDED_BY(mutex_);
};

WorldCounts& worlds_met() {
  static WorldCounts counts;
  return counts;
}

// The location of rank 0's store, as sent through an out-of-band exchange.
struct StoreLocation {
  std::string host;
  uint16_t port = 0;
  std::string token;  // empty if there is none

  bool operator==(const StoreLocation&) const = default;
  std::string uri() const { return "tcp://" + host_and_port(host, port); }
};

std::string encode(const StoreLocation& location) {
  ByteWriter writer;
  writer.number(kMeetingMagic);
  writer.number(location.port);
  writer.text(location.host);
  writer.text(location.token);
  return writer.take();
}

StoreLocation decode_location(std::string_view bytes, const std::string& source) {
  ByteReader reader(bytes);
  const auto magic = reader.number<uint64_t>();
  StoreLocation location;
  location.port = reader.number<uint16_t>();
  location.host = reader.text();
  location.token = reader.text();
  if (magic != kMeetingMagic || !reader.at_end())
    fail(DSC_ERR_PROTOCOL, "%s contains %zu bytes, but not the address of a store of libdsc", source.c_str(),
         bytes.size());
  return location;
}

// Prefixes all keys with the number of the world.
class NumberedExchange final : public Exchange {
 public:
  NumberedExchange(std::shared_ptr<Exchange> exchange, const std::string& job_id, uint32_t world)
      : exchange_(std::move(exchange)), prefix_("dsc/" + job_id + "/" + std::to_string(world) + "/") {}

  void put(std::string_view key, std::string_view value, Deadline deadline) override {
    exchange_->put(prefix_ + std::string(key), value, deadline);
  }
  std::string get(std::string_view key, int32_t owner, Deadline deadline) override {
    return exchange_->get(prefix_ + std::string(key), owner, deadline);
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
  const std::string prefix_;
};

// One attempt of a rank to find the store and to meet there.
class Meeting {
 public:
  Meeting(const RendezvousSettings& rendezvous, const MeetingSettings& settings)
      : launch_(rendezvous.launch),
        rendezvous_(rendezvous),
        settings_(settings),
        exchange_(find_exchange()) {}

  std::optional<Rendezvous> attempt(std::string& reason);

 private:
  std::shared_ptr<Exchange> find_exchange() const;
  StoreOptions options(bool serve) const;
  void check_room();
  OpenStore serve();
  bool is_at_master() const;
  OpenStore serve_at_own_address();
  OpenStore serve_or_join();
  OpenStore find(Deadline deadline);
  OpenStore join(Deadline deadline) const;
  StoreLocation find_location(Deadline deadline) const;
  std::optional<MeetingResult> meet_as_member(TcpStore& store, std::string& reason) const;

  const Launch& launch_;
  const RendezvousSettings& rendezvous_;
  const MeetingSettings& settings_;
  const std::shared_ptr<Exchange> exchange_;  // null: the store is at the master address
  StoreLocation location_;
};

// Returns the exchange that carries the location of the store: the caller's, a file, torchrun's agent, or
// PMIx; null if the store is at the master address.
std::shared_ptr<Exchange> Meeting::find_exchange() const {
  const uint32_t world = worlds_met().of(launch_.job_id);
  const Environment& environment = rendezvous_.environment;
  if (rendezvous_.out_of_band)
    return std::make_shared<NumberedExchange>(rendezvous_.out_of_band, launch_.job_id, world);
  if (launch_.told_through.empty()) return nullptr;
  if (launch_.told_through.front() == '/')
    return std::make_shared<NumberedExchange>(
        std::make_shared<FileStore>(launch_.told_through, launch_.job_id, settings_.deadline), launch_.job_id,
        world);
  if (launch_.agent_store)
    return std::make_shared<AgentStore>(launch_.master_addr, launch_.master_port,
                                        agent_prefix(environment, world));
  return pmix_exchange(environment, world, settings_.deadline);
}

StoreOptions Meeting::options(bool serve) const {
  StoreOptions options;
  options.token = location_.token.empty() ? rendezvous_.token : location_.token.c_str();
  options.job_id = launch_.job_id.c_str();
  options.serve = serve;
  options.world_size = launch_.world_size;
  return options;
}

// A few connections are enough to tell the other ranks the reason, one after another.
void Meeting::check_room() {
  constexpr size_t kConnections = 2;  // connections per rank: one for requests, one for the log
  capture(
      [&] {
        check_descriptors(kConnections * static_cast<size_t>(launch_.world_size) + kOtherDescriptors,
                          "rank 0 serves " + std::to_string(launch_.world_size) + " ranks");
      },
      [&](const Error& error) {
        call_out([&] {
          const OpenStore open = serve();
          const Deadline refusal_deadline = sooner(settings_.deadline, Deadline::after_ms(kRefusalMs));
          refuse_in_store(*open.store, error, launch_.world_size - 1, refusal_deadline);
        });
        throw error;
      });
}

OpenStore Meeting::serve() {
  if (exchange_) return serve_at_own_address();
  location_ = {launch_.master_addr, static_cast<uint16_t>(launch_.master_port), ""};
  return open_store(location_.uri(), options(true), rendezvous_.environment, settings_.deadline);
}

// The master address is that of the job's rank 0. A world of only some ranks of the job, which meet through a
// store of the program, may have its rank 0 on another host.
bool Meeting::is_at_master() const {
  if (launch_.master_addr_from == "default") return false;
  return !rendezvous_.out_of_band ||
         locate_address(launch_.master_addr, settings_.deadline) != AddressLocation::kElsewhere;
}

// Publishes the address of its own store. If only this job can read the exchange and no token is set, a new
// token goes with it.
OpenStore Meeting::serve_at_own_address() {
  const Environment& environment = rendezvous_.environment;
  location_.host = is_at_master() ? launch_.master_addr
                                  : own_address(environment("DSC_BIND").value_or(""), settings_.deadline);
  if (!launch_.agent_store && !find_token(rendezvous_.token, environment)) location_.token = random_token();
  OpenStore open = open_store(location_.uri(), options(true), environment, settings_.deadline);
  location_.port = open.target->port;
  exchange_->put(kLocationKey, encode(location_), settings_.deadline);
  return open;
}

// If the port is taken by another rank 0, all ranks should learn of it, so this rank joins that store.
OpenStore Meeting::serve_or_join() {
  OpenStore open;
  std::string taken;
  check_room();
  capture([&] { open = serve(); },
          [&](dsc_result_t code, const char* text) {
            if (code != DSC_ERR_ADDR_IN_USE) throw Error(code, text);
            taken = text;
          });
  if (!taken.empty())
    capture([&] { open = find(sooner(settings_.deadline, Deadline::after_ms(kSecondServerMs))); },
            [&](dsc_result_t, const char*) { throw Error(DSC_ERR_ADDR_IN_USE, taken.c_str()); });
  return open;
}

StoreLocation Meeting::find_location(Deadline deadline) const {
  if (!exchange_) return {launch_.master_addr, static_cast<uint16_t>(launch_.master_port), ""};
  std::string bytes;
  capture([&] { bytes = exchange_->get(kLocationKey, 0, deadline); },
          [&](dsc_result_t code, const char* text) {
            if (code != DSC_ERR_TIMEOUT) throw Error(code, text);
            fail_without_first_rank(code, "it has not published through " + launch_.told_through +
                                              " the address at which it listens (" + text + ")");
          });
  return decode_location(bytes, launch_.told_through);
}

// An out-of-band exchange may still hold the location of an earlier rank 0, so it is read again until
// connecting succeeds. An error other than a timeout is final if the location is unchanged after a moment.
// The timeout grows with each attempt, because a server to which many connect at once may be slow.
OpenStore Meeting::find(Deadline deadline) {
  location_ = find_location(deadline);
  if (!exchange_) return join(deadline);
  for (int attempt_ms = kReadAgainMs;; attempt_ms = std::min(2 * attempt_ms, kMostAttemptMs)) {
    const Deadline attempt_deadline = sooner(deadline, Deadline::after_ms(attempt_ms));
    OpenStore open;
    std::optional<Error> error;
    if (capture([&] { open = join(attempt_deadline); }, [&](const Error& caught) { error = caught; }))
      return open;
    sleep_until(sooner(attempt_deadline, Deadline::after_ms(kReadAgainMs)));
    const StoreLocation now = find_location(later(deadline, Deadline::after_ms(kPauseMs)));
    if (deadline.passed() || (error->code() != DSC_ERR_TIMEOUT && now == location_)) throw *error;
    location_ = now;
  }
}

OpenStore Meeting::join(Deadline deadline) const {
  const StoreOptions options = this->options(false);
  const Environment& environment = rendezvous_.environment;
  // Rank 0 would refuse to listen without a token, and this rank would wait in vain.
  if (!allows_unauthenticated(options, environment))
    require_token(resolve(location_.host, location_.port, "the master address", deadline),
                  find_token(options.token, environment), "be");
  OpenStore open;
  capture([&] { open = open_store(location_.uri(), options, environment, deadline); },
          [](dsc_result_t code, const char* text) {
            if (code != DSC_ERR_TIMEOUT) throw Error(code, text);
            fail_without_first_rank(code, text);
          });
  return open;
}

// Rank 0 knows by this connection that the process is alive; afterwards the world uses it.
std::optional<MeetingResult> Meeting::meet_as_member(TcpStore& store, std::string& reason) const {
  std::unique_ptr<Channel> channel;
  if (!capture([&] { channel = store.take(settings_.deadline); },
               [&](dsc_result_t code, const char* text) {
                 if (code != DSC_ERR_PEER_DEAD) throw Error(code, text);
                 reason = text;
               }))
    return std::nullopt;
  ChannelStore seen(*channel);
  auto met = meet_in_store(seen, settings_, false, reason);
  if (met) store.give_back(std::move(channel));
  return met;
}

std::optional<Rendezvous> Meeting::attempt(std::string& reason) {
  OpenStore open = launch_.rank == 0 ? serve_or_join() : find(settings_.deadline);
  auto met =
      open.server ? meet_in_store(*open.store, settings_, true, reason) : meet_as_member(*open.tcp, reason);
  if (!met) return std::nullopt;
  worlds_met().add(launch_.job_id, met->nonce);
  auto job = std::make_shared<JobStore>(std::move(open));
  // A rank whose start-up has ended by then reads no more.
  job->expect_readers(launch_.world_size - 1, later(settings_.deadline, Deadline::after_ms(kVerdictMs)));
  return Rendezvous{*std::move(met), std::move(job)};
}

}  // namespace

JobStore::~JobStore() {
  if (is_served_here() && readers_ > 0)
    call_out([this] {
      await_readers(store(), readers_, sooner(readers_deadline_, Deadline::after_ms(kReadersMs)));
    });
}

std::string JobStore::own_address(Deadline deadline) const {
  auto channel = open_.tcp->take(deadline);
  std::string address = channel->own_address();
  open_.tcp->give_back(std::move(channel));
  return address;
}

void JobStore::begin_closing(bool failed) noexcept {
  if (failed || is_served_here()) call_out([this] { announce_end(store(), Deadline::after_ms(kEndMs)); });
}

void JobStore::retire() noexcept {
  if (open_.server) open_.server->retire();
}

// Starts again if the store or its world goes away during the meeting, until the deadline.
Rendezvous meet_through_tcp(const RendezvousSettings& rendezvous, const MeetingSettings& wanted) {
  MeetingSettings settings = wanted;
  settings.latest_world = worlds_met().latest(rendezvous.launch.job_id);
  if (settings.world_size > kMaxJobRanks)
    fail(DSC_ERR_UNSUPPORTED, "world size is %d, expected at most %d: this version supports no more ranks",
         settings.world_size, kMaxJobRanks);
  std::string reason;
  for (;;) {
    std::optional<Rendezvous> done;
    capture([&] { done = Meeting(rendezvous, settings).attempt(reason); },
            [&](const Error& error) {
              fail_meeting(error.code(), error.what(), error.failure().ranks, settings);
            });
    if (done) return *std::move(done);
    log(DSC_LOG_LEVEL_DEBUG, "start-up is attempted again: %s", reason.c_str());
    if (settings.deadline.passed()) fail_meeting(DSC_ERR_TIMEOUT, reason, {}, settings);
    sleep_until(Deadline::after_ms(kPauseMs));
  }
}

}  // namespace dsc
