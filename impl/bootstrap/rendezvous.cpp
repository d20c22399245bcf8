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

constexpr size_t kOtherDescriptors = 64;  // descriptors that a process needs for other purposes
constexpr int kPauseMs = 20;
constexpr int kSecondServerMs = 500;
constexpr int kReadAgainMs = 500;
constexpr int kMostAttemptMs = 4000;
constexpr int kReadersMs = 2000;
constexpr int kVerdictMs = 1000;  // extra time after the deadline, for a result that was sent at the deadline
constexpr int kEndMs = 500;
constexpr int kRefusalMs = 5000;  // time for ranks that were started at about the same time to arrive
constexpr std::string_view kLocationKey = "store";

// Counts the worlds of a job to which this process has belonged. Values in an out-of-band exchange remain
// after the world has ended. With the count in the key, the next world does not read them. All ranks of a
// process join a world together, so they get the same count, whatever their ranks are.
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

// The location of rank 0's store, as rank 0 publishes it through an out-of-band exchange.
struct StoreLocation {
  std::string host;
  uint16_t port = 0;
  std::string token;  // empty if there is no token

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

// Adds the number of the world to the start of all keys.
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

// One attempt of a rank to find the store and to meet the other ranks there.
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
  const std::shared_ptr<Exchange> exchange_;  // null if the store is at the master address
  StoreLocation location_;
};

// Returns the exchange that carries the location of the store: that of the caller, a file, torchrun's agent,
// or PMIx. Returns null if the store is at the master address.
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

// Throws if this process cannot open enough descriptors to serve all ranks. A few connections are always
// possible, and suffice to tell the other ranks the reason one after another.
void Meeting::check_room() {
  constexpr size_t kConnections = 2;  // each rank has one connection for requests and one for the log
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

// Returns whether this host is at the master address, which is the address of the job's rank 0. A world of
// only some ranks of the job may have its rank 0 on another host. Such ranks meet through a store of the
// program.
bool Meeting::is_at_master() const {
  if (launch_.master_addr_from == "default") return false;
  return !rendezvous_.out_of_band ||
         locate_address(launch_.master_addr, settings_.deadline) != AddressLocation::kElsewhere;
}

// Serves a store and publishes its address. If no token is set and only this job can read the exchange,
// publishes a new random token too.
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

// If another rank 0 already uses the port, joins the store there, so that all ranks learn of the conflict.
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

// An out-of-band exchange may still contain the location of an earlier rank 0, so it is read again until a
// connection succeeds. An error other than a timeout is final if the location has not changed after a moment.
// The timeout grows with each attempt, because a server may be slow if many ranks connect at the same time.
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
  // Without a token, rank 0 would refuse to listen, and this rank would wait in vain until the deadline.
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

// Through this connection, rank 0 notices if the process ends. Afterwards the world uses the same connection.
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
  // The store waits for readers until this deadline. Ranks whose start-up deadline has passed no longer read
  // the outcome.
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

// Starts again if the store or its world ends during the meeting, until the deadline passes.
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
