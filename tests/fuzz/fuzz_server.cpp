// The server, compared with the model: requests over several connections, waits that others end, canceled
// waits, connections that end in the middle of a frame or send invalid frames.
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
#include "store_model.hpp"
#include "store_servers.hpp"

namespace dsc::fuzz {
namespace {

constexpr size_t kClients = 4;

class Wire {
 public:
  explicit Wire(ServerUnderTest& server) : server_(server), fd_(server.connect()) {}

  void say(Bytes bytes) {
    (void)!::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    server_.run();
  }

  std::string hear(size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t here = 0; here < bytes;) {
      const ssize_t got = receive(text.data() + here, bytes - here);
      FUZZ_REQUIRE(got > 0);
      here += static_cast<size_t>(got);
    }
    return text;
  }

  // Sends nothing more, and waits until the other side ends as well.
  void end() {
    ::shutdown(fd_.get(), SHUT_WR);
    server_.run();
    char unread[256];
    ssize_t got;
    do got = receive(unread, sizeof unread);
    while (got > 0);
    FUZZ_REQUIRE(got == 0 || errno == ECONNRESET);
  }

 private:
  // libFuzzer's alarm interrupts calls
  ssize_t receive(char* to, size_t most) {
    ssize_t got;
    do got = ::recv(fd_.get(), to, most, 0);
    while (got < 0 && errno == EINTR);
    return got;
  }

  ServerUnderTest& server_;
  UniqueFd fd_;
};

// A connection that has proved that it knows the token.
class Client {
 public:
  explicit Client(ServerUnderTest& server) : wire_(server) {
    const std::string greeting = wire_.hear(kServerHelloBytes);
    ClientHello introduction;
    introduction.flags = kNeedsToken;
    introduction.job = job_fingerprint("");
    const std::string text = encode(introduction);
    const SessionKeys keys(the_token(), greeting, text);
    wire_.say(text + std::string(bytes_of(keys.client_proof())));
    const std::string verdict = wire_.hear(kResultBytes + kProofBytes);
    FUZZ_REQUIRE(verdict.substr(0, kResultBytes) == std::string(kResultBytes, '\0'));
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

  // Sends one of several kinds of data that the server must refuse.
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

// One run: what its clients do, one after another. The connections are kept for the next run.
class Session {
 public:
  explicit Session(std::unique_ptr<ServerUnderTest> server) : server_(std::move(server)) {}

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
    if (!client) client = std::make_unique<Client>(*server_);
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
    if (action == 2) return client.send(FrameType::kCancel, "");  // cancels a wait that does not exist
    StoreRequest request = request_from(input);
    if (action == 3) {
      request.value.resize(kMostUnaskedBytes + input.byte());
      ask_for_room(client, 2 * kMostUnaskedBytes);
    }
    ask(client, request);
  }

  void talk_strangely(Input& input) {
    Wire stranger(*server_);
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

  // The server must grant the room, because no other client asks.
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

  // Waits until the server has seen everything.
  void settle() {
    size_t members = 0, waiting = 0;
    for (const auto& client : clients_) {
      members += client != nullptr;
      waiting += client && client->waits_for;
    }
    const Deadline patience = Deadline::after_ms(kPatienceMs);
    for (StoreServer::Counts counts{}; counts.members != members || counts.waiting != waiting ||
                                       counts.unauthenticated != 0 || counts.incoming != 0;) {
      FUZZ_REQUIRE(!patience.passed());
      server_->run();
      counts = server_->counts();
    }
  }

  const std::unique_ptr<ServerUnderTest> server_;
  std::array<std::unique_ptr<Client>, kClients> clients_;
  StoreModel model_;
};

}  // namespace

void fuzz_server(Bytes bytes) {
  static Session session(bare_server());
  session.run(Input(bytes));
}

void fuzz_server_tcp(Bytes bytes) {
  static Session session(whole_server());
  session.run(Input(bytes));
}

}  // namespace dsc::fuzz
