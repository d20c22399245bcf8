#include "store/server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <asio/ip/v6_only.hpp>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/fork_close.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/process_guard.hpp"
#include "base/thread.hpp"
#include "store/server_core.hpp"
#include "store/tcp_options.hpp"

namespace dsc {
namespace {

using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
constexpr auto kWatchPeriod = std::chrono::milliseconds(250);
constexpr auto kRetryPeriod = std::chrono::milliseconds(50);
constexpr auto kLogPeriod = std::chrono::minutes(1);
constexpr size_t kFewPending = 64;
// Limits of the queue of a listening socket, which has one entry per rank. In a longer queue, a flood
// could delay the hello so much that an honest client takes the server for another program.
constexpr int kLeastInQueue = 512;
constexpr int kMostInQueue = 4096;
constexpr size_t kMostBytesOnTheirWay = size_t{64} << 20;

void warn_if_unauthenticated(const StoreServer::Options& options) {
  for (const SocketAddress& address : options.addresses)
    if (!options.token && !is_loopback(address))
      return log(DSC_LOG_LEVEL_WARN,
                 "the store at %s has no token: any process that reaches the port can join and write",
                 to_text(address).c_str());
}

}  // namespace

void require_token(const std::vector<SocketAddress>& addresses, const Token& token, const char* role) {
  if (token) return;
  for (const SocketAddress& address : addresses)
    if (!is_loopback(address))
      fail(DSC_ERR_AUTH,
           "the store would %s at %s without a token; create a token, for example with openssl rand -hex 32, "
           "and "
           "set DSC_TOKEN to it on all ranks, or set DSC_ALLOW_UNAUTHENTICATED=1",
           role, to_text(address).c_str());
}

StoreServer::StoreServer(Options options) {
  if (!options.allow_unauthenticated) require_token(options.addresses, options.token, "listen");
  warn_if_unauthenticated(options);
  mark_process();
  core_ = std::make_unique<ServerCore>(std::move(options));
  port_ = core_->listen();
  core_->start();
}

StoreServer::~StoreServer() = default;

StoreServer::Counts StoreServer::counts() const { return core_->counts(); }

void StoreServer::retire() noexcept { core_->retire(); }

ServerCore::ServerCore(StoreServer::Options options)
    : options_(std::move(options)),
      incarnation_(random_nonce()),
      job_(job_fingerprint(options_.job_id)),
      table_(options_.limits) {}

ServerCore::~ServerCore() {
  io_.stop();
  if (thread_.joinable()) thread_.join();
  for (Listener& listener : listeners_) keep_in_child(listener.acceptor.native_handle());
  ready_.clear();
  in_line_.clear();
  for (const auto& connection : ServerConnection::Pending(pending_)) connection->close();
  for (const auto& member : decltype(members_)(members_)) member->close();
}

// Returns the port at which the server listens on all addresses. A port that is free at one address may be in
// use at another; in that case the next attempt uses another port.
uint16_t ServerCore::listen() {
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i)
    if (const uint16_t port = try_to_listen()) return port;
  fail(DSC_ERR_ADDR_IN_USE, "found no port that is free on each of the %zu addresses",
       options_.addresses.size());
}

// All addresses use the port of the first address. Returns 0 if that port is in use at another address.
uint16_t ServerCore::try_to_listen() {
  uint16_t port = 0;
  for (const SocketAddress& address : options_.addresses) {
    if (open(address, port) == Opened::kInUse) {
      for (Listener& listener : listeners_) keep_in_child(listener.acceptor.native_handle());
      listeners_.clear();
      return 0;
    }
    if (port == 0 && !listeners_.empty()) port = listeners_.front().acceptor.local_endpoint().port();
  }
  if (listeners_.empty())
    fail(DSC_ERR_CONFIG, "%s is not an address of this host", to_text(options_.addresses.front()).c_str());
  return port;
}

// If the port is in use, returns kInUse if the caller may try another port, and otherwise throws ADDR_IN_USE.
ServerCore::Opened ServerCore::open(const SocketAddress& address, uint16_t port) {
  tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), &address.storage, address.bytes);
  endpoint.resize(address.bytes);
  const bool free_choice = endpoint.port() == 0;
  if (port != 0) endpoint.port(port);
  Listener& listener = listeners_.emplace_back(io_);
  tcp::acceptor& acceptor = listener.acceptor;
  asio::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.protocol() == tcp::v6())
    acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(std::clamp(options_.world_size, kLeastInQueue, kMostInQueue), error);
  if (!error) {
    close_in_child(acceptor.native_handle());
    return Opened::kYes;
  }
  listeners_.pop_back();
  if (error == asio::error::address_family_not_supported || error.value() == EADDRNOTAVAIL)
    return Opened::kNotHere;
  if (error != asio::error::address_in_use)
    fail_errno(error.value(), "listening at %s", host_and_port(to_text(address), endpoint.port()).c_str());
  if (!free_choice)
    fail(DSC_ERR_ADDR_IN_USE, "port %u of %s is taken; choose another port", endpoint.port(),
         to_text(address).c_str());
  return Opened::kInUse;
}

void ServerCore::start() {
  for (Listener& listener : listeners_) accept(listener);
  thread_ = start_thread("dsc-store", [this] {
    const auto work = asio::make_work_guard(io_);
    while (!io_.stopped())
      capture(
          [this] { io_.run(); },
          [](dsc_result_t, const char* text) { log(DSC_LOG_LEVEL_ERROR, "the store's thread: %s", text); });
  });
}

StoreServer::Counts ServerCore::counts() const noexcept {
  return {authenticated_, refused_, pending_count_, members_count_, waiting_count_, incoming_bytes_};
}

// Shuts down the listening sockets, so that another server can listen at the same port. They are not closed,
// because any thread may call this, and only the server's thread may close them.
void ServerCore::retire() noexcept {
  retired_.store(true);
  for (Listener& listener : listeners_) ::shutdown(listener.acceptor.native_handle(), SHUT_RD);
}

void ServerCore::accept(Listener& listener) {
  listener.acceptor.async_accept([this, &listener](const asio::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || (error && retired_.load())) return;
    if (error) return accept_later(listener);
    accept(listener);
    set_control_options(socket.native_handle());
    admit(std::move(socket));
  });
}

void ServerCore::admit(tcp::socket socket) {
  shed_pending(kFewPending + 2 * static_cast<size_t>(options_.world_size) - 1);
  pending_.push_back(std::make_shared<ServerConnection>(*this, std::move(socket)));
  pending_count_ = pending_.size();
  pending_.back()->greet(std::prev(pending_.end()));
  watch_pending();
}

// Called when the process has no free descriptors. Closes the oldest unauthenticated connection, which frees
// a descriptor, and accepts again after a moment.
void ServerCore::accept_later(Listener& listener) {
  if (!pending_.empty()) shed_pending(pending_.size() - 1);
  listener.retry.expires_after(kRetryPeriod);
  listener.retry.async_wait([this, &listener](const asio::error_code& error) {
    if (!error) accept(listener);
  });
}

// Closes unauthenticated connections until at most `most` remain. Closes the oldest ones first, because an
// honest client completes the handshake in one round trip.
void ServerCore::shed_pending(size_t most) {
  while (pending_.size() > most) {
    refuse("too many clients connect at the same time");
    pending_.front()->reset_connection();
  }
}

// Closes connections that do not complete the handshake in time.
void ServerCore::watch_pending() {
  if (watching_ || pending_.empty()) return;
  watching_ = true;
  watch_.expires_after(kWatchPeriod);
  watch_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    watching_ = false;
    const auto oldest = Clock::now() - std::chrono::milliseconds(options_.authentication_ms);
    while (!pending_.empty() && pending_.front()->since() <= oldest) {
      refuse("the handshake with a client took too long");
      pending_.front()->reset_connection();
    }
    watch_pending();
  });
}

void ServerCore::refuse(const char* reason) noexcept {
  ++refused_;
  ++refused_since_log_;
  if (Clock::now() < next_log_) return;
  next_log_ = Clock::now() + kLogPeriod;
  log(DSC_LOG_LEVEL_WARN,
      "the store refused a connection: %s (refused since the previous warning of this kind: %" PRIu64 ")",
      reason, std::exchange(refused_since_log_, 0));
}

StoreReply ServerCore::apply(const StoreRequest& request) {
  StoreReply reply = *table_.apply(request);
  if (changes(request.op)) key_changed(request.keys[0]);
  return reply;
}

// Wakes the requests that wait for this key, one at a time. If memory runs out in between, the remaining
// requests are still waiting.
void ServerCore::key_changed(const std::string& key) {
  for (auto entry = waiting_.find(key); entry != waiting_.end(); entry = waiting_.find(key)) {
    ready_.push_back(entry->second->shared_from_this());
    entry->second->wake();
    waiting_.erase(entry);
  }
  waiting_count_ = waiting_.size();
}

void ServerCore::pump() noexcept {
  while (!ready_.empty() && bytes_on_their_way_ < kMostBytesOnTheirWay) {
    const auto connection = std::move(ready_.front());
    ready_.pop_front();
    connection->serve();
  }
}

void ServerCore::sent(size_t bytes) noexcept {
  bytes_on_their_way_ -= bytes;
  pump();
}

}  // namespace dsc
