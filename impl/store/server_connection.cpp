// A connection of the server. Its messages are the hello of the server, the hello of the client, the result
// of the handshake, and then frames.
#include <sys/socket.h>

#include <algorithm>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/fixed_text.hpp"
#include "base/fork_close.hpp"
#include "base/guard.hpp"
#include "store/bytes.hpp"
#include "store/server_core.hpp"
#include "store/store.hpp"
#include "store/tcp_options.hpp"

namespace dsc {
namespace {

using asio::ip::tcp;
constexpr size_t kMagicBytes = sizeof(uint64_t);
constexpr size_t kKeptBytes = 4096;  // larger buffers are released after use
// Data is read in pieces of this size, so that memory grows with the data that has arrived, and not with the
// announced size.
constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kMostWaitingBytes = size_t{64} << 20;

}  // namespace

template <typename Step>
void ServerConnection::take_step(Step step) noexcept {
  capture(step, [this](dsc_result_t, const char*) { close(); });
}

ServerConnection::ServerConnection(ServerCore& core, tcp::socket socket)
    : core_(core), socket_(std::move(socket)), since_(std::chrono::steady_clock::now()) {
  close_in_child(socket_.native_handle());
}

// When this runs, the core has already removed the connection from its lists.
ServerConnection::~ServerConnection() {
  if (socket_.is_open()) keep_in_child(socket_.native_handle());
}

// Sends the server's hello, and starts to read without waiting for the write to finish.
void ServerConnection::greet(Pending::iterator entry) {
  pending_entry_ = entry;
  take_step([this] {
    ServerHello server_hello;
    server_hello.flags = core_.options_.token ? kNeedsToken : 0;
    server_hello.incarnation = core_.incarnation_;
    server_hello.nonce = random_nonce();
    server_hello_ = encode(server_hello);
    asio::async_write(socket_, asio::buffer(server_hello_),
                      [self = shared_from_this()](const asio::error_code& error, size_t) {
                        if (error) self->close();
                      });
    read_magic();
  });
}

// Detects clients of another protocol by their first bytes.
void ServerConnection::read_magic() {
  asio::async_read(socket_, asio::buffer(client_hello_.data(), kMagicBytes),
                   [self = shared_from_this()](const asio::error_code& error, size_t bytes) {
                     if (!self->socket_.is_open()) return;
                     ByteReader reader(std::string_view(self->client_hello_.data(), bytes));
                     if (!error && reader.number<uint64_t>() == kStoreMagic)
                       return self->take_step([&] { self->read_client_hello(); });
                     if (bytes > 0)
                       self->core_.refuse("the client does not use the protocol of libdsc's store");
                     self->close();
                   });
}

void ServerConnection::read_client_hello() {
  asio::async_read(socket_,
                   asio::buffer(client_hello_.data() + kMagicBytes, client_hello_.size() - kMagicBytes),
                   [self = shared_from_this()](const asio::error_code& error, size_t) {
                     // The connection may have been closed after everything was read.
                     if (!self->socket_.is_open()) return;
                     if (error) return self->close();
                     self->take_step([&] { self->check_client_hello(); });
                   });
}

void ServerConnection::check_client_hello() {
  const std::string_view all(client_hello_.data(), client_hello_.size());
  const auto client_hello = decode_client_hello(all.substr(0, kClientHelloBytes));
  if (!client_hello || client_hello->version != kStoreVersion) {
    FixedText<80> reason("the hello of the client is not valid");
    if (client_hello)
      reason = FixedText<80>().add("the client uses protocol version %u, expected %u", client_hello->version,
                                   kStoreVersion);
    core_.refuse(reason.c_str());
    return close();
  }
  keys_.emplace(core_.options_.token, server_hello_, all.substr(0, kClientHelloBytes));
  if (!equal_bytes(bytes_of(keys_->client_proof()), all.substr(kClientHelloBytes))) return refuse_token();
  become_member(client_hello->job == core_.job_);
}

// Refuses the client without giving a reason: the proof consists of zeros, which no client accepts.
void ServerConnection::refuse_token() {
  core_.refuse("the client and the store do not have the same token");
  out_.assign(kResultBytes + kProofBytes, '\0');
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this()](const asio::error_code&, size_t) { self->close(); });
}

// Sends the result of the handshake with the server's proof. A client of another job gets ADDR_IN_USE, and
// its connection is then closed.
void ServerConnection::become_member(bool welcome) {
  core_.members_.insert(shared_from_this());
  core_.pending_.erase(*std::exchange(pending_entry_, std::nullopt));
  core_.pending_count_ = core_.pending_.size();
  core_.members_count_ = core_.members_.size();
  ++core_.authenticated_;
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(welcome ? DSC_OK : DSC_ERR_ADDR_IN_USE));
  out_ = writer.take();
  const Digest proof = keys_->server_proof(out_);
  out_ += bytes_of(proof);
  incoming_.emplace(keys_->to_server());
  outgoing_.emplace(keys_->to_client());
  keys_.reset();
  writing_ = true;
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this(), welcome](const asio::error_code& error, size_t) {
                      self->writing_ = false;
                      if (error || !welcome) return self->close();
                      self->take_step([&] { self->read_head(); });
                    });
}

void ServerConnection::read_head() {
  in_.resize(kFrameHeadBytes);
  if (in_.capacity() > kKeptBytes) in_.shrink_to_fit();
  asio::async_read(socket_, asio::buffer(in_),
                   [self = shared_from_this()](const asio::error_code& error, size_t) {
                     if (error) return self->close();
                     self->take_step([&] { self->take_head(); });
                   });
}

// Until a request is answered, the only frame that may arrive is its cancellation, which has no payload.
void ServerConnection::take_head() {
  const auto payload_bytes = incoming_->payload_bytes(in_);
  if (!payload_bytes || *payload_bytes > std::max(room_, kMostUnaskedBytes)) return close();
  if (owes_answer() && *payload_bytes > 0) return close();
  frame_bytes_ = kFrameHeadBytes + *payload_bytes + kFrameCodeBytes;
  read_rest();
}

void ServerConnection::read_rest() {
  const size_t here = in_.size();
  const size_t piece = std::min(frame_bytes_ - here, kPieceBytes);
  in_.resize(here + piece);
  asio::async_read(socket_, asio::buffer(in_.data() + here, piece),
                   [self = shared_from_this()](const asio::error_code& error, size_t) {
                     if (error) return self->close();
                     self->take_step([&] {
                       if (self->in_.size() < self->frame_bytes_) return self->read_rest();
                       self->take_frame();
                     });
                   });
}

void ServerConnection::take_frame() {
  const auto type = incoming_->open(in_);
  if (type != FrameType::kCancel) expect_slow_reader(false);
  if (type == FrameType::kRequest && !owes_answer())
    take_request();
  else if (type == FrameType::kRoom && !owes_answer())
    ask_for_room();
  else if (type == FrameType::kCancel)
    cancel();
  else
    close();
  if (socket_.is_open()) read_head();
}

void ServerConnection::take_request() {
  request_ = decode_request(payload_of(in_));
  if (!request_) return close();
  core_.ready_.push_back(shared_from_this());
  core_.pump();
}

// Called when the client cancels its request. If the answer has already been sent, the cancellation has no
// effect.
void ServerConnection::cancel() {
  if (std::exchange(room_wanted_, 0) > 0) return tell_of_room();
  if (!request_) return;
  cancelled_ = true;
  if (!waits_at_) return;  // serve() will send the answer
  stop_waiting();
  answer(timed_out());
}

StoreReply ServerConnection::timed_out() const {
  StoreReply reply;
  reply.code = DSC_ERR_TIMEOUT;
  capture([&] { fail_missing(core_.table_.missing(*request_)); },
          [&](dsc_result_t, const char* text) { reply.value = text; });
  return reply;
}

StoreReply ServerConnection::no_room() const {
  return {DSC_ERR_TIMEOUT, 0, "the store did not have enough free memory for this request in time"};
}

void ServerConnection::serve() noexcept {
  if (!socket_.is_open() || writing_ || waits_at_) return;
  take_step([this] {
    if (std::exchange(owes_room_, false)) return send(room_ > 0 ? StoreReply{} : no_room());
    if (!request_) return;
    const StoreReply reply = carry_out();
    if (!waits_at_) answer(reply);
  });
}

// Executes the request. Returns an empty reply if the request has to wait.
StoreReply ServerConnection::carry_out() {
  StoreReply reply;
  capture(
      [&] {
        check_request(*request_, core_.options_.limits);
        if (const auto key =
                waits(request_->op) ? core_.table_.first_missing(*request_, looked_to_) : std::nullopt) {
          if (cancelled_)
            reply = timed_out();
          else
            wait_for(*key);
          return;
        }
        if (request_->op == StoreOp::kWill) return make_will();
        reply = core_.apply(*request_);
      },
      [&](dsc_result_t code, const char* text) {
        reply.code = code;
        reply.value = text;
      });
  return reply;
}

void ServerConnection::make_will() {
  if (request_->value.size() > kMostWillBytes)
    fail(DSC_ERR_INVALID_ARG, "the will has %zu bytes, expected at most %zu", request_->value.size(),
         kMostWillBytes);
  auto will = request_->value.empty() ? std::nullopt : decode_request(request_->value);
  if (!request_->value.empty() && (!will || !changes(will->op)))
    fail(DSC_ERR_INVALID_ARG, "the will is not a request that changes a key");
  will_ = std::move(will);
}

// Ignores errors, because the client that could receive them is gone.
void ServerConnection::carry_out_will() noexcept {
  const auto will = std::exchange(will_, std::nullopt);
  if (!will || core_.io_.stopped() || core_.retired_) return;
  capture([&] { core_.apply(*will); }, [](dsc_result_t, const char*) {});
  core_.pump();
}

// A waiting request no longer counts as admitted. Otherwise the request that sets its key might never be
// admitted. The memory of waiting requests with many keys has a separate limit.
void ServerConnection::wait_for(size_t key) {
  if (waiting_bytes_ == 0 && request_->keys.size() > 1) {
    size_t bytes = 0;
    for (const std::string& name : request_->keys) bytes += sizeof(std::string) + name.size();
    if (core_.waiting_bytes_ + bytes > kMostWaitingBytes)
      fail(DSC_ERR_NOSPACE,
           "waiting requests already use %zu bytes for keys, and these %zu more bytes exceed the limit of "
           "%zu; wait for fewer keys at a time",
           core_.waiting_bytes_, bytes, kMostWaitingBytes);
    core_.waiting_bytes_ += waiting_bytes_ = bytes;
  }
  looked_to_ = key;
  waits_at_ = core_.waiting_.emplace(request_->keys[key], this);
  core_.waiting_count_ = core_.waiting_.size();
  std::string().swap(request_->value);
  std::string().swap(request_->expected);
  leave_room();
}

void ServerConnection::answer(const StoreReply& reply) {
  request_.reset();
  leave_room();
  core_.waiting_bytes_ -= std::exchange(waiting_bytes_, 0);
  looked_to_ = 0;
  cancelled_ = false;
  send(reply);
}

// Starts to send a reply. Its bytes count in bytes_on_their_way_ until they are sent. While that number is
// too high, pump() serves no further requests, which limits the memory for replies.
void ServerConnection::send(const StoreReply& reply) {
  out_ = outgoing_->seal(FrameType::kReply, encode(reply));
  writing_ = true;
  core_.bytes_on_their_way_ += out_.size();
  if (out_.size() > kMostUnaskedBytes) expect_slow_reader(true);
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this(), bytes = out_.size()](const asio::error_code& error, size_t) {
                      self->writing_ = false;
                      if (self->out_.capacity() > kKeptBytes) std::string().swap(self->out_);
                      if (error) self->close();
                      self->take_step([&] {
                        if (self->owes_answer() && !self->waits_at_) self->core_.ready_.push_back(self);
                      });
                      self->core_.sent(bytes);
                    });
}

// A client reads each reply before it sends its next request.
void ServerConnection::expect_slow_reader(bool is_slow) noexcept {
  if (std::exchange(has_slow_reader_, is_slow) != is_slow) set_unread_limit(socket_.native_handle(), is_slow);
}

void ServerConnection::stop_waiting() noexcept {
  if (!waits_at_) return;
  core_.waiting_.erase(*std::exchange(waits_at_, std::nullopt));
  core_.waiting_count_ = core_.waiting_.size();
}

void ServerConnection::reset_connection() noexcept {
  asio::error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

void ServerConnection::close() noexcept {
  if (!socket_.is_open()) return;
  stop_waiting();
  core_.waiting_bytes_ -= std::exchange(waiting_bytes_, 0);
  keep_in_child(socket_.native_handle());
  asio::error_code ignored;
  socket_.close(ignored);
  // Keeps this object alive, because members_ may hold the last reference to it.
  const std::shared_ptr<ServerConnection> keep = shared_from_this();
  if (pending_entry_) core_.pending_.erase(*std::exchange(pending_entry_, std::nullopt));
  core_.members_.erase(keep);
  core_.pending_count_ = core_.pending_.size();
  core_.members_count_ = core_.members_.size();
  leave_room();
  carry_out_will();
}

}  // namespace dsc
