// One connection of a store's server: greeting, introduction, verdict, then frames.
#include <sys/socket.h>

#include <asio/read.hpp>
#include <asio/write.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/fork_close.hpp"
#include "base/guard.hpp"
#include "store/bytes.hpp"
#include "store/server_core.hpp"
#include "store/store.hpp"

namespace dsc {
namespace {

using asio::ip::tcp;
constexpr size_t kMagicBytes = sizeof(uint64_t);
constexpr size_t kKeptBytes = 4096;  // of a buffer, once what was longer is done

}  // namespace

ServerConnection::ServerConnection(ServerCore& core, tcp::socket socket)
    : core_(core), socket_(std::move(socket)), since_(std::chrono::steady_clock::now()) {
  close_in_child(socket_.native_handle());
}

// It is in no list any more.
ServerConnection::~ServerConnection() {
  if (socket_.is_open()) keep_in_child(socket_.native_handle());
}

void ServerConnection::greet(Strangers::iterator place) {
  stranger_ = place;
  Greeting greeting;
  greeting.flags = core_.options_.token ? kNeedsToken : 0;
  greeting.incarnation = core_.incarnation_;
  greeting.nonce = random_nonce();
  greeting_ = encode(greeting);
  asio::async_write(socket_, asio::buffer(greeting_),
                    [self = shared_from_this()](const asio::error_code& error, size_t) {
                      if (error) self->close();
                    });
  read_magic();
}

// Whoever speaks another protocol is known by his first bytes.
void ServerConnection::read_magic() {
  asio::async_read(socket_, asio::buffer(introduction_.data(), kMagicBytes),
                   [self = shared_from_this()](const asio::error_code& error, size_t bytes) {
                     if (!self->socket_.is_open()) return;
                     ByteReader reader(std::string_view(self->introduction_.data(), bytes));
                     if (!error && reader.number<uint64_t>() == kStoreMagic) return self->read_introduction();
                     if (bytes > 0) self->core_.refuse("another protocol");
                     self->close();
                   });
}

void ServerConnection::read_introduction() {
  asio::async_read(socket_,
                   asio::buffer(introduction_.data() + kMagicBytes, introduction_.size() - kMagicBytes),
                   [self = shared_from_this()](const asio::error_code& error, size_t) {
                     if (error) return self->close();
                     self->judge();
                   });
}

// A wrong token is answered by silence: there is nothing to learn from it.
void ServerConnection::judge() {
  const std::string_view all(introduction_.data(), introduction_.size());
  const auto introduction = decode_introduction(all.substr(0, kIntroductionBytes));
  if (!introduction || introduction->version != kStoreVersion) {
    core_.refuse("another version");
    return close();
  }
  keys_.emplace(core_.options_.token, greeting_, all.substr(0, kIntroductionBytes));
  if (!equal_bytes(bytes_of(keys_->client_proof()), all.substr(kIntroductionBytes))) {
    core_.refuse("a wrong token");
    return close();
  }
  become_member(introduction->job == core_.job_);
}

void ServerConnection::become_member(bool welcome) {
  if (stranger_) {
    core_.members_.insert(shared_from_this());
    core_.strangers_.erase(*std::exchange(stranger_, std::nullopt));
    core_.strangers_count_ = core_.strangers_.size();
    core_.members_count_ = core_.members_.size();
    ++core_.authenticated_;
  }
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
                      self->read_head();
                    });
}

void ServerConnection::read_head() {
  in_.resize(kFrameHeadBytes);
  if (in_.capacity() > kKeptBytes) in_.shrink_to_fit();
  asio::async_read(socket_, asio::buffer(in_),
                   [self = shared_from_this()](const asio::error_code& error, size_t) {
                     if (error) return self->close();
                     const auto payload_bytes = self->incoming_->payload_bytes(self->in_);
                     if (!payload_bytes) return self->close();
                     self->read_rest(*payload_bytes);
                   });
}

void ServerConnection::read_rest(size_t payload_bytes) {
  const size_t rest = payload_bytes + kFrameCodeBytes;
  in_.resize(kFrameHeadBytes + rest);
  asio::async_read(socket_, asio::buffer(in_.data() + kFrameHeadBytes, rest),
                   [self = shared_from_this()](const asio::error_code& error, size_t) {
                     if (error) return self->close();
                     self->take_frame();
                   });
}

void ServerConnection::take_frame() {
  const auto type = incoming_->open(in_);
  if (type == FrameType::kRequest && !request_) {
    request_ = decode_request(payload_of(in_));
    if (!request_) return close();
    core_.ready_.push_back(shared_from_this());
    core_.pump();
  } else if (type == FrameType::kCancel) {
    if (waits_at_) {
      stop_waiting();
      StoreReply reply;
      reply.code = DSC_ERR_TIMEOUT;
      capture([&] { fail_missing(*request_, core_.table_.missing(*request_)); },
              [&](dsc_result_t, const char* text) { reply.value = text; });
      answer(reply);
    }
  } else {
    return close();
  }
  if (socket_.is_open()) read_head();
}

void ServerConnection::serve() {
  if (!socket_.is_open() || !request_ || writing_ || waits_at_) return;
  StoreReply reply = carry_out();
  if (!waits_at_) answer(reply);
}

// An empty reply while it has to wait.
StoreReply ServerConnection::carry_out() {
  StoreReply reply;
  capture(
      [&] {
        if (auto done = core_.table_.apply(*request_)) {
          reply = *std::move(done);
          if (changes(request_->op)) core_.key_changed(request_->keys[0]);
          return;
        }
        const std::string key = core_.table_.missing(*request_).front();
        waits_at_ = core_.waiting_.emplace(key, this);
        core_.waiting_count_ = core_.waiting_.size();
      },
      [&](dsc_result_t code, const char* text) {
        reply.code = code;
        reply.value = text;
      });
  return reply;
}

void ServerConnection::answer(const StoreReply& reply) {
  request_.reset();
  out_ = outgoing_->seal(FrameType::kReply, encode(reply));
  writing_ = true;
  core_.bytes_on_their_way_ += out_.size();
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this(), bytes = out_.size()](const asio::error_code& error, size_t) {
                      self->writing_ = false;
                      if (self->out_.capacity() > kKeptBytes) std::string().swap(self->out_);
                      if (error) self->close();
                      if (self->request_ && !self->waits_at_) self->core_.ready_.push_back(self);
                      self->core_.sent(bytes);
                    });
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
  keep_in_child(socket_.native_handle());
  asio::error_code ignored;
  socket_.close(ignored);
  if (stranger_) {
    const auto place = *std::exchange(stranger_, std::nullopt);
    const auto keep = std::move(*place);  // erasing it would end this object
    core_.strangers_.erase(place);
    core_.strangers_count_ = core_.strangers_.size();
    return;
  }
  const auto found = core_.members_.find(shared_from_this());
  if (found == core_.members_.end()) return;
  const auto keep = *found;
  core_.members_.erase(found);
  core_.members_count_ = core_.members_.size();
}

}  // namespace dsc
