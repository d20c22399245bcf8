#include "store/channel.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/process_guard.hpp"
#include "store/bytes.hpp"
#include "store/frame.hpp"
#include "store/handshake.hpp"
#include "store/tcp_stream.hpp"

namespace dsc {
namespace {

constexpr int kConnectMs = 2000;  // limit for connecting to each address
constexpr int kHelloMs = 5000;
constexpr int kCancelMs = 1000;

// Returns the error code for a received number. The number is checked, because a hostile peer may send any
// value.
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

// Returns an explanation if this host has no address of the same family, or no route.
std::string no_way(const SocketAddress& address, int error) {
  if (error != ENETUNREACH && error != EAFNOSUPPORT && error != EADDRNOTAVAIL) return "";
  const char* const family = address.storage.ss_family == AF_INET6 ? "IPv6" : "IPv4";
  return std::string("this host has no route to this ") + family + " address: ";
}

// A channel over TCP. It begins with a handshake, and then exchanges authenticated frames.
class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(const StoreTarget& target) : target_(target.text()) {}

  // Returns false and sets failure.reason if another attempt may succeed.
  bool open(const StoreTarget& target, Deadline deadline, Failure& failure) {
    if (!reach(target, deadline, failure.reason)) return false;
    failure.reached = true;
    return read_server_hello(deadline, failure.reason) && prove_token(target, deadline, failure.reason);
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

  std::string own_address() const override { return stream_.own_address(); }

  void send(const StoreRequest& request, Deadline deadline) override {
    const std::string payload = encode(request);
    if (payload.size() > kMostUnaskedBytes)
      fail(DSC_ERR_INVALID_ARG, "%s: the request has %zu bytes, expected at most %zu",
           store_op_name(request.op), payload.size(), kMostUnaskedBytes);
    in_step_ = false;
    in_.clear();
    came_ = 0;
    send_frame(FrameType::kRequest, payload, deadline);
  }

  std::optional<StoreReply> receive(Deadline deadline) override {
    if (!read_up_to(kFrameHeadBytes, deadline)) return std::nullopt;
    const auto payload_bytes = incoming_->payload_bytes(std::string_view(in_).substr(0, kFrameHeadBytes));
    if (!payload_bytes) fail_frame();
    if (!read_up_to(kFrameHeadBytes + *payload_bytes + kFrameCodeBytes, deadline)) return std::nullopt;
    in_step_ = true;
    return open_reply();
  }

  void cancel(Deadline deadline) override { send_frame(FrameType::kCancel, {}, deadline); }

  void cut() noexcept override { stream_.cut(); }

  bool usable() override { return in_step_ && stream_.has_no_input(); }

 private:
  void send_frame(FrameType type, std::string_view payload, Deadline deadline) {
    const std::string frame = outgoing_->seal(type, payload);
    if (stream_.write(frame, deadline) < frame.size())
      fail_short("the store at " + target_ + " accepts no more requests");
  }

  // Returns false if the bytes have not all arrived by the deadline. The next call then continues to read.
  bool read_up_to(size_t bytes, Deadline deadline) {
    if (in_.size() < bytes) in_.resize(bytes);
    if (came_ < bytes) came_ += stream_.read(in_.data() + came_, bytes - came_, deadline);
    if (came_ < bytes && stream_.ended()) fail_short({});
    return came_ >= bytes;
  }

  StoreReply open_reply() {
    if (incoming_->open(in_) != FrameType::kReply) fail_frame();
    auto reply = decode_reply(payload_of(in_));
    if (!reply) fail_frame();
    return *std::move(reply);
  }

  // Tries each address until one accepts the connection.
  bool reach(const StoreTarget& target, Deadline deadline, std::string& reason) {
    for (const SocketAddress& address : target.addresses) {
      int error = 0;
      stream_ = TcpStream::connect(address, sooner(deadline, Deadline::after_ms(kConnectMs)), error);
      if (stream_) return true;
      reason = no_way(address, error) + std::generic_category().message(error);
    }
    return false;
  }

  // Reads the server's hello. Throws if another attempt would fail too. Otherwise returns false and sets
  // `reason`.
  bool read_server_hello(Deadline deadline, std::string& reason) {
    const Deadline hello_deadline = Deadline::after_ms(kHelloMs);
    server_hello_.resize(kServerHelloBytes);
    server_hello_.resize(
        stream_.read(server_hello_.data(), server_hello_.size(), sooner(deadline, hello_deadline)));
    const auto server_hello = decode_server_hello(server_hello_);
    if (server_hello && server_hello->version != kStoreVersion)
      fail(DSC_ERR_VERSION, "the store at %s uses protocol version %u, expected %u", target_.c_str(),
           server_hello->version, kStoreVersion);
    if (server_hello) {
      needs_token_ = (server_hello->flags & kNeedsToken) != 0;
      incarnation_ = server_hello->incarnation;
      return true;
    }
    if (!could_be_hello(server_hello_))
      fail(DSC_ERR_PROTOCOL, "%s answers, but is not libdsc (got %s)", target_.c_str(),
           hex_of(server_hello_).c_str());
    if (hello_deadline.passed())
      fail(DSC_ERR_PROTOCOL,
           "%s accepts connections, but sends nothing: it is not libdsc, or its process is stopped",
           target_.c_str());
    return give_up(reason, "it accepts connections, but sent no hello; is it libdsc?");
  }

  bool give_up(std::string& reason, const char* what) {
    reason = what;
    stream_ = {};
    return false;
  }

  static bool could_be_hello(std::string_view bytes) {
    const std::string expected = encode(ServerHello{});
    const size_t known = std::min(bytes.size(), sizeof(kStoreMagic));
    return bytes.substr(0, known) == std::string_view(expected).substr(0, known);
  }

  // Proves to the server that this process has the token, and checks the server's proof. Afterwards both
  // directions are authenticated.
  bool prove_token(const StoreTarget& target, Deadline deadline, std::string& reason) {
    if (needs_token_ && !target.token)
      fail(DSC_ERR_AUTH,
           "the store at %s requires a token, but this process has none: set DSC_TOKEN_FILE or DSC_TOKEN",
           target_.c_str());
    if (!needs_token_ && target.token)
      fail(DSC_ERR_AUTH, "this process has a token, but the store at %s has none", target_.c_str());
    ClientHello client_hello;
    client_hello.flags = target.token ? kNeedsToken : 0;
    client_hello.nonce = random_nonce();
    client_hello.job = job_fingerprint(target.job_id);
    const std::string text = encode(client_hello);
    const SessionKeys keys(target.token, server_hello_, text);
    const Digest proof = keys.client_proof();
    const Deadline reply_deadline = sooner(deadline, Deadline::after_ms(kHelloMs));
    stream_.write(text + std::string(bytes_of(proof)), reply_deadline);
    std::string result(kResultBytes + kProofBytes, '\0');
    if (stream_.read(result.data(), result.size(), reply_deadline) < result.size())
      return give_up(
          reason, stream_.ended()
                      ? "the store closed the connection: the store is ending, or it has too many connections"
                      : "the store did not answer the hello");
    check_result(result, keys);
    incoming_.emplace(keys.to_client());
    outgoing_.emplace(keys.to_server());
    in_step_ = true;
    return true;
  }

  void check_result(std::string_view answer, const SessionKeys& keys) const {
    const std::string_view code = answer.substr(0, kResultBytes);
    if (!equal_bytes(bytes_of(keys.server_proof(code)), answer.substr(kResultBytes)))
      fail(DSC_ERR_AUTH, "the store at %s and this process do not have the same token", target_.c_str());
    ByteReader reader(code);
    const auto result = reader.number<uint32_t>();
    if (result != DSC_OK)
      fail(error_of(result),
           "the store at %s belongs to a job with another id; choose another MASTER_PORT or DSC_JOB_ID",
           target_.c_str());
  }

  // If the server leaves a request unread in its socket, TCP_USER_TIMEOUT ends the connection after a few
  // seconds. A large request is therefore sent only when the server has room for all of it.
  void ask_for_room(StoreOp op, size_t bytes, Deadline deadline) {
    ByteWriter writer;
    writer.number(static_cast<uint32_t>(bytes));
    exchange(FrameType::kRoom, op, writer.take(), deadline);
  }

  // Until the exchange is complete, the channel counts as unusable, because a late reply could be taken for
  // the reply to the next request.
  StoreReply exchange(FrameType type, StoreOp op, std::string_view payload, Deadline deadline) {
    in_step_ = false;
    const std::string frame = outgoing_->seal(type, payload);
    in_.resize(kFrameHeadBytes);
    const SlowReader slow_reader(stream_, payload.size() > kMostUnaskedBytes);
    const size_t sent = stream_.write(frame, deadline);
    size_t came = sent < frame.size() ? 0 : stream_.read(in_.data(), in_.size(), deadline);
    if (came < in_.size() && !stream_.ended())
      came += cancel_request(std::string_view(frame).substr(sent), came);
    if (came < in_.size())
      fail_short(std::string(store_op_name(op)) + ": the store at " + target_ + " does not answer");
    StoreReply reply = receive_rest(deadline);
    in_step_ = true;
    if (reply.code != DSC_OK) fail(error_of(static_cast<uint32_t>(reply.code)), "%s", reply.value.c_str());
    return reply;
  }

  // Called after the deadline. Cancels the request, so that the server replies immediately. Returns how many
  // bytes of the reply's head have arrived.
  size_t cancel_request(std::string_view unsent, size_t came) {
    const Deadline cancel_deadline = Deadline::after_ms(kCancelMs);
    if (stream_.write(unsent, cancel_deadline) < unsent.size()) return 0;
    const std::string cancel = outgoing_->seal(FrameType::kCancel, {});
    if (stream_.write(cancel, cancel_deadline) < cancel.size()) return 0;
    return stream_.read(in_.data() + came, in_.size() - came, cancel_deadline);
  }

  StoreReply receive_rest(Deadline deadline) {
    const auto payload_bytes = incoming_->payload_bytes(in_);
    if (!payload_bytes) fail_frame();
    const size_t rest = *payload_bytes + kFrameCodeBytes;
    in_.resize(kFrameHeadBytes + rest);
    const Deadline rest_deadline = later(deadline, Deadline::after_ms(kCancelMs));
    if (stream_.read(in_.data() + kFrameHeadBytes, rest, rest_deadline) < rest)
      fail_short("the store at " + target_ + " stopped in the middle of an answer");
    return open_reply();
  }

  [[noreturn]] void fail_short(const std::string& what) {
    if (stream_.ended())
      fail(DSC_ERR_PEER_DEAD, "the store at %s is gone: %s", target_.c_str(), stream_.why_ended().c_str());
    fail(DSC_ERR_TIMEOUT, "%s", what.c_str());
  }

  [[noreturn]] void fail_frame() const {
    fail(DSC_ERR_PROTOCOL, "the store at %s sent a frame with a wrong number or authentication code",
         target_.c_str());
  }

  const std::string target_;
  TcpStream stream_;
  std::string server_hello_;
  std::string in_;
  size_t came_ = 0;  // bytes that have arrived so far of a reply that is received in steps
  std::optional<FrameCounter> incoming_;
  std::optional<FrameCounter> outgoing_;
  Nonce incarnation_{};
  bool needs_token_ = false;
  bool in_step_ = false;
};

}  // namespace

std::unique_ptr<Channel> Channel::connect(const StoreTarget& target, Deadline deadline, Failure& failure) {
  mark_process();
  failure.reached = false;  // failure.reason keeps the reason of an earlier attempt until there is a new one
  auto channel = std::make_unique<TcpChannel>(target);
  if (!channel->open(target, deadline, failure)) return nullptr;
  return channel;
}

}  // namespace dsc
