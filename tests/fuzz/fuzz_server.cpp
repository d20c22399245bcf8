// The real server on this host against the model: requests over several connections, waits that others end,
// waits that are cancelled, connections that end in the middle of a frame or send what is none.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "fuzz.hpp"
#include "store/bytes.hpp"
#include "store/frame.hpp"
#include "store/handshake.hpp"
#include "store/server.hpp"
#include "store_model.hpp"

namespace dsc::fuzz {
namespace {

constexpr int kPatienceMs = 10000;
constexpr size_t kClients = 4;

Token the_token() { return parse_token(std::string(64, '5'), "the token"); }

StoreServer& server() {
  static StoreServer only = [] {
    StoreServer::Options options;
    options.addresses = resolve("127.0.0.1", 0, "the address", Deadline::after_ms(kPatienceMs));
    options.token = the_token();
    options.limits = kSmallLimits;
    return StoreServer(std::move(options));
  }();
  return only;
}

template <typename Condition>
void await(Condition condition) {
  for (const Deadline patience = Deadline::after_ms(kPatienceMs); !condition(); ::sched_yield())
    FUZZ_REQUIRE(!patience.passed());
}

class Wire {
 public:
  Wire() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server().port());
    const timeval patience{kPatienceMs / 1000, 0};
    const int one = 1;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    bind_to_another_address();
    FUZZ_REQUIRE(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }

  void say(Bytes bytes) { (void)!::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  std::string hear(size_t bytes) {
    std::string text(bytes, '\0');
    FUZZ_REQUIRE(::recv(fd_.get(), text.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
    return text;
  }

  // Says no more, and sees that the other side ends as well.
  void end() {
    ::shutdown(fd_.get(), SHUT_WR);
    char byte;
    ssize_t got;
    do got = ::recv(fd_.get(), &byte, 1, 0);
    while (got > 0);
    FUZZ_REQUIRE(got == 0 || errno == ECONNRESET);
  }

 private:
  // Each of loopback's has ports of its own; those of one would be used up within a minute.
  void bind_to_another_address() {
    static uint32_t number = 0;
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + ++number % (1 << 20));
    FUZZ_REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
  }

  UniqueFd fd_;
};

// A connection that has proved its token.
class Client {
 public:
  Client() {
    const std::string greeting = wire_.hear(kGreetingBytes);
    Introduction introduction;
    introduction.flags = kNeedsToken;
    introduction.job = job_fingerprint("");
    const std::string text = encode(introduction);
    const SessionKeys keys(the_token(), greeting, text);
    wire_.say(text + std::string(bytes_of(keys.client_proof())));
    const std::string verdict = wire_.hear(kVerdictBytes + kProofBytes);
    FUZZ_REQUIRE(verdict.substr(0, kVerdictBytes) == std::string(kVerdictBytes, '\0'));
    outgoing_.emplace(keys.to_server());
    incoming_.emplace(keys.to_client());
  }

  void send(FrameType type, Bytes payload) {
    last_ = outgoing_->seal(type, payload);
    wire_.say(last_);
  }

  StoreReply receive() {
    const std::string head = wire_.hear(kFrameHeadBytes);
    const auto payload = incoming_->payload_bytes(head);
    FUZZ_REQUIRE(payload.has_value());
    const std::string frame = head + wire_.hear(*payload + kFrameCodeBytes);
    FUZZ_REQUIRE(incoming_->open(frame) == FrameType::kReply);
    return decode_reply(payload_of(frame)).value();
  }

  // Something that the server cannot take, of several kinds.
  void send_broken(Input& input) {
    std::string frame = outgoing_->seal(FrameType::kRequest, encode(StoreRequest{}));
    const size_t place = input.byte() % frame.size();
    switch (input.below(4)) {
      case 0:
        frame.resize(place);
        break;
      case 1:
        frame[place] = static_cast<char>(frame[place] ^ (1 << input.below(8)));
        break;
      case 2:
        frame = last_.empty() ? std::string(64, '\xff') : last_;
        break;
      default:
        frame = outgoing_->seal(FrameType::kReply, input.take(place));
    }
    wire_.say(frame);
    wire_.end();
  }

  std::optional<StoreRequest> waits_for;
  std::optional<StoreRequest> will;

 private:
  Wire wire_;
  std::optional<FrameCounter> outgoing_;
  std::optional<FrameCounter> incoming_;
  std::string last_;
};

// One run: what its clients do, one after another. Connections stay for the next run.
class Session {
 public:
  void run(Input input) {
    while (!input.empty()) step(input);
    for (auto& client : clients_)
      if (client && client->waits_for) cancel(*client);
    Client& last = client_at(0);
    while (!model_.entries().empty())
      ask(last, {StoreOp::kRemove, {model_.entries().begin()->first}, "", "", 0});
    ask(last, {StoreOp::kCount, {}, "", "", 0});
    settle();
  }

 private:
  Client& client_at(size_t i) {
    auto& client = clients_[i];
    if (!client) client = std::make_unique<Client>();
    return *client;
  }

  void step(Input& input) {
    const uint8_t choice = input.byte();
    const size_t index = choice % kClients;
    const size_t action = choice / kClients % 16;
    if (action == 0) return talk_strangely(input);
    Client& client = client_at(index);
    if (action == 1) return break_up(index, input);
    if (client.waits_for) return cancel(client);
    if (action == 2) return client.send(FrameType::kCancel, "");  // of nothing
    StoreRequest request = request_from(input);
    if (action == 3) {
      request.value.resize(kMostUnaskedBytes + input.byte());
      ask_for_room(client, 2 * kMostUnaskedBytes);
    }
    ask(client, request);
  }

  void talk_strangely(Input& input) {
    Wire stranger;
    stranger.say(input.take(input.byte()));
    stranger.end();
    settle();
  }

  void break_up(size_t index, Input& input) {
    clients_[index]->send_broken(input);
    const auto will = clients_[index]->will;
    clients_[index].reset();
    if (will && model_.apply(*will).reply.code == DSC_OK) hear_the_waiting();
    settle();
  }

  // There is room, for nobody else asks.
  static void ask_for_room(Client& client, size_t bytes) {
    ByteWriter writer;
    writer.number(static_cast<uint32_t>(bytes));
    client.send(FrameType::kRoom, writer.take());
    FUZZ_REQUIRE(client.receive().code == DSC_OK);
  }

  void ask_for_will(Client& client, const StoreRequest& request) {
    const auto will = decode_request(request.value);
    const bool fits = request.keys.empty() && request.value.size() <= kMostWillBytes;
    const bool right = fits && (request.value.empty() || (will && changes(will->op)));
    client.send(FrameType::kRequest, encode(request));
    check(client.receive(), {right ? DSC_OK : DSC_ERR_INVALID_ARG, 0, ""});
    if (right) client.will = request.value.empty() ? std::nullopt : will;
  }

  void cancel(Client& client) {
    client.send(FrameType::kCancel, "");
    FUZZ_REQUIRE(client.receive().code == DSC_ERR_TIMEOUT);
    client.waits_for.reset();
  }

  void ask(Client& client, const StoreRequest& request) {
    if (request.op == StoreOp::kWill) return ask_for_will(client, request);
    const StoreModel::Answer expected = model_.apply(request);
    client.send(FrameType::kRequest, encode(request));
    if (expected.waits) {
      client.waits_for = request;
      return settle();
    }
    check(client.receive(), expected.reply);
    if (changes(request.op) && expected.reply.code == DSC_OK) hear_the_waiting();
  }

  void hear_the_waiting() {
    for (auto& client : clients_) {
      if (!client || !client->waits_for) continue;
      const StoreModel::Answer expected = model_.apply(*client->waits_for);
      if (expected.waits) continue;
      check(client->receive(), expected.reply);
      client->waits_for.reset();
    }
    settle();
  }

  static void check(const StoreReply& reply, const StoreReply& expected) {
    FUZZ_REQUIRE(reply.code == expected.code);
    FUZZ_REQUIRE(reply.number == expected.number);
    FUZZ_REQUIRE(reply.code == DSC_OK ? reply.value == expected.value : !reply.value.empty());
  }

  // The server has seen all that was done.
  void settle() {
    size_t members = 0, waiting = 0;
    for (const auto& client : clients_) {
      members += client != nullptr;
      waiting += client && client->waits_for;
    }
    await([&] {
      const StoreServer::Counts counts = server().counts();
      return counts.members == members && counts.waiting == waiting && counts.strangers == 0;
    });
  }

  std::array<std::unique_ptr<Client>, kClients> clients_;
  StoreModel model_;
};

}  // namespace

void fuzz_server(Bytes bytes) {
  static Session session;
  session.run(Input(bytes));
}

}  // namespace dsc::fuzz
