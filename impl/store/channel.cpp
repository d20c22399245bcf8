#include "store/channel.hpp"

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/fork_close.hpp"
#include "base/process_guard.hpp"
#include "store/bytes.hpp"
#include "store/frame.hpp"
#include "store/handshake.hpp"
#include "store/tcp_options.hpp"

namespace dsc {
namespace {

using asio::ip::tcp;
constexpr int kConnectMs = 2000;  // of each address
constexpr int kGreetingMs = 5000;
constexpr int kCancelMs = 1000;

tcp::endpoint endpoint_of(const SocketAddress& address) {
  tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), &address.storage, address.bytes);
  endpoint.resize(address.bytes);
  return endpoint;
}

// A peer could send any number.
dsc_result_t error_of(uint32_t number) {
  const auto code = static_cast<dsc_result_t>(number);
  return code < DSC_OK && code >= DSC_ERR_INTERNAL ? code : DSC_ERR_PROTOCOL;
}

std::string hex_of(std::string_view bytes) {
  constexpr size_t kShown = 8;
  std::string text;
  for (const char c : bytes.substr(0, kShown)) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%s%02x", text.empty() ? "" : " ", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(const StoreTarget& target) : target_(target.text()) {}

  ~TcpChannel() override { close(); }

  // False, and the reason, if another try makes sense.
  bool open(const StoreTarget& target, Deadline deadline, Failure& failure) {
    if (!reach(target, deadline, failure.reason)) return false;
    failure.reached = true;
    return hear_greeting(deadline, failure.reason) && introduce(target, deadline, failure.reason);
  }

  const Nonce& incarnation() const override { return incarnation_; }

  StoreReply ask(const StoreRequest& request, Deadline deadline) override {
    const std::string payload = encode(request);
    if (payload.size() > kMaxPayloadBytes)
      fail(DSC_ERR_INVALID_ARG, "%s: the request has %zu bytes, expected at most %zu",
           store_op_name(request.op), payload.size(), kMaxPayloadBytes);
    if (payload.size() > kMostUnaskedBytes) ask_for_room(request.op, payload.size(), deadline);
    return exchange(FrameType::kRequest, request.op, payload, deadline);
  }

  bool usable() override {
    if (!in_step_ || !socket_.is_open()) return false;
    char byte;
    const ssize_t got = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }

 private:
  // An address that does not answer is given up for the next one.
  bool reach(const StoreTarget& target, Deadline deadline, std::string& reason) {
    for (const SocketAddress& address : target.addresses) {
      begin();
      socket_.async_connect(endpoint_of(address), [this](const asio::error_code& error) { end(error, 0); });
      const bool ended = run(sooner(deadline, Deadline::after_ms(kConnectMs)));
      if (ended && !error_) {
        close_in_child(socket_.native_handle());
        set_tcp_options(socket_.native_handle());
        return true;
      }
      reason = ended ? error_.message() : "no answer";
      close();
    }
    return false;
  }

  bool hear_greeting(Deadline deadline, std::string& reason) {
    const Deadline patience = Deadline::after_ms(kGreetingMs);
    begin_read(0, kGreetingBytes);
    const bool whole = run(sooner(deadline, patience)) && !error_;
    if (!done_) close();  // tells how much came
    const std::string_view heard = std::string_view(in_).substr(0, bytes_);
    const auto greeting = decode_greeting(heard);
    if (greeting && greeting->version != kStoreVersion)
      fail(DSC_ERR_VERSION, "the store at %s speaks version %u, this library %u", target_.c_str(),
           greeting->version, kStoreVersion);
    if (whole && greeting) {
      needs_token_ = (greeting->flags & kNeedsToken) != 0;
      incarnation_ = greeting->incarnation;
      return true;
    }
    if (!could_be_greeting(heard))
      fail(DSC_ERR_PROTOCOL, "%s answers, but is not libdsc (got %s)", target_.c_str(),
           hex_of(heard).c_str());
    if (patience.passed())
      fail(DSC_ERR_PROTOCOL,
           "%s takes connections, but says nothing: it is not libdsc, or its process is stopped",
           target_.c_str());
    return give_up(reason, "it takes connections, but no greeting came: is it libdsc?");
  }

  bool give_up(std::string& reason, const char* what) {
    reason = what;
    close();
    return false;
  }

  static bool could_be_greeting(std::string_view bytes) {
    const std::string expected = encode(Greeting{});
    const size_t known = std::min(bytes.size(), sizeof(kStoreMagic));
    return bytes.substr(0, known) == std::string_view(expected).substr(0, known);
  }

  bool introduce(const StoreTarget& target, Deadline deadline, std::string& reason) {
    if (needs_token_ && !target.token)
      fail(DSC_ERR_AUTH,
           "the store at %s wants a token, but this process has none: set DSC_TOKEN_FILE or DSC_TOKEN",
           target_.c_str());
    if (!needs_token_ && target.token)
      fail(DSC_ERR_AUTH, "this process has a token, but the store at %s has none", target_.c_str());
    Introduction introduction;
    introduction.flags = target.token ? kNeedsToken : 0;
    introduction.nonce = random_nonce();
    introduction.job = job_fingerprint(target.job_id);
    const std::string text = encode(introduction);
    const SessionKeys keys(target.token, in_, text);
    const Digest proof = keys.client_proof();
    write(text + std::string(bytes_of(proof)));
    begin_read(0, kVerdictBytes + kProofBytes);
    if (!run(sooner(deadline, Deadline::after_ms(kGreetingMs))))
      return give_up(reason, "the store did not answer the introduction");
    if (error_) return give_up(reason, "the store ended the connection: it ends, or has too many");
    check_verdict(in_, keys);
    incoming_.emplace(keys.to_client());
    outgoing_.emplace(keys.to_server());
    in_step_ = true;
    return true;
  }

  void check_verdict(std::string_view verdict, const SessionKeys& keys) const {
    const std::string_view code = verdict.substr(0, kVerdictBytes);
    if (!equal_bytes(bytes_of(keys.server_proof(code)), verdict.substr(kVerdictBytes)))
      fail(DSC_ERR_AUTH, "the store at %s and this process do not have the same token", target_.c_str());
    ByteReader reader(code);
    const auto result = reader.number<uint32_t>();
    if (result != DSC_OK)
      fail(error_of(result),
           "the store at %s is of a job with another id; choose another MASTER_PORT or DSC_JOB_ID",
           target_.c_str());
  }

  void ask_for_room(StoreOp op, size_t bytes, Deadline deadline) {
    ByteWriter writer;
    writer.number(static_cast<uint32_t>(bytes));
    exchange(FrameType::kRoom, op, writer.take(), deadline);
  }

  StoreReply exchange(FrameType type, StoreOp op, std::string_view payload, Deadline deadline) {
    in_step_ = false;
    send(type, payload);
    begin_read(0, kFrameHeadBytes);
    if (!run(deadline) && !cancel()) {
      close();
      fail(DSC_ERR_TIMEOUT, "%s: the store at %s does not answer", store_op_name(op), target_.c_str());
    }
    StoreReply reply = receive_rest(deadline);
    if (writing_) fail_frame();  // an answer to what was not asked yet
    in_step_ = true;
    if (reply.code != DSC_OK) fail(error_of(static_cast<uint32_t>(reply.code)), "%s", reply.value.c_str());
    return reply;
  }

  void send(FrameType type, std::string_view payload) { write(outgoing_->seal(type, payload)); }

  // Goes out while the answer is waited for; whoever reads sees it fail.
  void write(std::string bytes) {
    out_ = std::move(bytes);
    writing_ = true;
    asio::async_write(socket_, asio::buffer(out_),
                      [this](const asio::error_code&, size_t) { writing_ = false; });
  }

  // Asks for the answer at once. False if it does not come even so.
  bool cancel() {
    const Deadline patience = Deadline::after_ms(kCancelMs);
    run_while([this] { return writing_ && !done_; }, patience);
    if (writing_) return false;  // the request itself has not gone out
    if (!done_) send(FrameType::kCancel, {});
    return run(patience);
  }

  StoreReply receive_rest(Deadline deadline) {
    require_connection();
    const auto payload_bytes = incoming_->payload_bytes(in_);
    if (!payload_bytes) fail_frame();
    begin_read(kFrameHeadBytes, *payload_bytes + kFrameCodeBytes);
    if (!run(later(deadline, Deadline::after_ms(kCancelMs)))) {
      close();
      fail(DSC_ERR_TIMEOUT, "the store at %s stopped in the middle of an answer", target_.c_str());
    }
    require_connection();
    if (incoming_->open(in_) != FrameType::kReply) fail_frame();
    auto reply = decode_reply(payload_of(in_));
    if (!reply) fail_frame();
    return *std::move(reply);
  }

  void require_connection() const {
    if (error_)
      fail(DSC_ERR_PEER_DEAD, "the store at %s is gone: %s", target_.c_str(), error_.message().c_str());
  }

  [[noreturn]] void fail_frame() {
    close();
    fail(DSC_ERR_PROTOCOL, "the store at %s sent a frame that is not its next one", target_.c_str());
  }

  void begin() {
    done_ = false;
    bytes_ = 0;
    error_ = {};
  }

  // Into in_, behind what is kept of it.
  void begin_read(size_t kept, size_t bytes) {
    begin();
    in_.resize(kept + bytes);
    asio::async_read(socket_, asio::buffer(in_.data() + kept, bytes),
                     [this](const asio::error_code& error, size_t got) { end(error, got); });
  }

  void end(const asio::error_code& error, size_t bytes) {
    done_ = true;
    error_ = error;
    bytes_ = bytes;
  }

  // True once what was begun has ended.
  bool run(Deadline deadline) {
    run_while([this] { return !done_; }, deadline);
    return done_;
  }

  // What can be done at once is done even if the deadline has passed.
  template <typename Condition>
  void run_while(Condition condition, Deadline deadline) {
    using std::chrono::steady_clock;
    io_.restart();
    io_.poll();
    while (condition() && !deadline.passed()) {
      io_.restart();
      if (deadline.ns == Deadline::never().ns)
        io_.run_one();
      else
        io_.run_one_until(steady_clock::time_point(std::chrono::nanoseconds(deadline.ns)));
    }
  }

  void close() noexcept {
    if (!socket_.is_open()) return;
    keep_in_child(socket_.native_handle());
    asio::error_code ignored;
    socket_.close(ignored);
    io_.restart();
    io_.poll();  // the handlers of what was cut off
  }

  const std::string target_;
  asio::io_context io_{1};
  tcp::socket socket_{io_};
  std::string in_;
  std::string out_;
  bool writing_ = false;
  std::optional<FrameCounter> incoming_;
  std::optional<FrameCounter> outgoing_;
  Nonce incarnation_{};
  bool needs_token_ = false;
  bool in_step_ = false;
  bool done_ = false;
  size_t bytes_ = 0;
  asio::error_code error_;
};

}  // namespace

std::unique_ptr<Channel> Channel::connect(const StoreTarget& target, Deadline deadline, Failure& failure) {
  mark_process();
  failure.reached = false;  // the reason of an earlier try is better than none
  auto channel = std::make_unique<TcpChannel>(target);
  if (!channel->open(target, deadline, failure)) return nullptr;
  return channel;
}

}  // namespace dsc
