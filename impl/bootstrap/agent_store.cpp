#include "bootstrap/agent_store.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "store/address.hpp"

namespace dsc {
namespace {

constexpr char kValidate = 0;
constexpr uint32_t kMagic = 0x3C85F7CE;
constexpr char kCountKeys = 7;
constexpr size_t kQuestions = 4;
// The largest number of keys that is accepted from an agent. If another program answers, its bytes, read as a
// number, are larger.
constexpr int64_t kMostKeys = int64_t{1} << 32;
constexpr char kStopWaiting = 0;
constexpr char kReady = 0;

// Appends a number in the byte order of the machine, as PyTorch's protocol does.
template <typename T>
void append_value(std::string& message, T value) {
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& message, std::string_view text) {
  append_value<uint64_t>(message, text.size());
  message += text;
}

std::string hex_bytes(const void* data, size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(data)[i];
    text += (i == 0 ? "" : " ");
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// Tries all addresses of the host in turn until one accepts the connection or the deadline passes.
TcpStream reach(const std::string& host, int32_t port, Deadline deadline) {
  constexpr int64_t kAddressMs = 2'000;  // limit for each address, so that the other addresses are tried too
  constexpr int64_t kPauseMs = 100;      // pause before all addresses are tried again
  const auto addresses = resolve(host, static_cast<uint16_t>(port), "MASTER_ADDR", deadline);
  std::string tried;
  do {
    tried.clear();
    for (const SocketAddress& address : addresses) {
      int error = 0;
      if (auto stream = TcpStream::connect(address, sooner(deadline, Deadline::after_ms(kAddressMs)), error))
        return stream;
      tried += (tried.empty() ? "" : ", ") + to_text(address) + " (" +
               std::generic_category().message(error) + ")";
    }
    sleep_until(sooner(deadline, Deadline::after_ms(kPauseMs)));
  } while (!deadline.passed());
  fail(DSC_ERR_TIMEOUT, "%.100s:%d cannot be reached; tried %.250s", host.c_str(), port, tried.c_str());
}

}  // namespace

std::string agent_prefix(const Environment& environment, uint32_t world) {
  return "dsc/" + environment("TORCHELASTIC_RUN_ID").value_or("none") + "/" +
         environment("TORCHELASTIC_RESTART_COUNT").value_or("0") + "/" + std::to_string(world) + "/";
}

AgentStore::AgentStore(std::string host, int32_t port, std::string prefix)
    : host_(std::move(host)), port_(port), prefix_(std::move(prefix)) {}

std::string AgentStore::request(Request kind) const {
  constexpr char kNumbers[] = {1, 3, 5, 6, 7};  // codes of the requests in the order of enum Request
  return std::string(1, static_cast<char>(kNumbers[static_cast<size_t>(kind)] - (handshake_ ? 0 : 1)));
}

std::string AgentStore::key_text(std::string_view key) const {
  std::string text;
  append_text(text, "/" + prefix_ + std::string(key));  // PyTorch's own clients also prefix keys with a slash
  return text;
}

void AgentStore::fail_foreign(const void* data, size_t bytes) const {
  fail(DSC_ERR_PROTOCOL, "%.100s:%d answers, but is not PyTorch's store, which torchrun runs there (got %s)",
       host_.c_str(), port_, hex_bytes(data, bytes).c_str());
}

// Throws an error that explains why an answer is missing or incomplete.
void AgentStore::fail_short(const void* data, size_t bytes, Deadline deadline) const {
  if (bytes > 0 && !greeted_) fail_foreign(data, bytes);
  if (deadline.passed())
    fail(DSC_ERR_TIMEOUT, "%.100s:%d accepts connections, but PyTorch's store did not answer there in time",
         host_.c_str(), port_);
  if (greeted_) fail_errno(ECONNRESET, "the store of torchrun's agent at %.100s:%d", host_.c_str(), port_);
  fail(DSC_ERR_PROTOCOL,
       "%.100s:%d closes the connection: it is not PyTorch's store, which torchrun runs there", host_.c_str(),
       port_);
}

void AgentStore::send(const std::string& message, Deadline deadline) {
  if (stream_.write(message, deadline) < message.size()) fail_short(nullptr, 0, deadline);
}

template <typename T>
T AgentStore::answer(Deadline deadline) {
  T value;
  const size_t got = stream_.read(reinterpret_cast<char*>(&value), sizeof value, deadline);
  if (got < sizeof value) fail_short(&value, got, deadline);
  return value;
}

void AgentStore::connect(Deadline deadline) {
  if (greeted_) return;
  stream_ = reach(host_, port_, deadline);
  handshake_ = knows_handshake(deadline);
  if (!handshake_) {
    stream_ = reach(host_, port_, deadline);
    check_without_handshake(deadline);
  }
  greeted_ = true;
}

// Returns whether the agent uses the newer protocol. Sends the greeting of that protocol, followed by several
// requests that every newer version answers. An older version takes all this for a request to store a value,
// and takes bytes 1 to 8 for the length of its key. No process can allocate that much, so an older version
// closes the connection immediately.
bool AgentStore::knows_handshake(Deadline deadline) {
  std::string greeting(1, kValidate);
  append_value(greeting, kMagic);
  greeting += std::string(kQuestions, kCountKeys);
  if (stream_.write(greeting, deadline) < greeting.size()) return false;
  for (size_t i = 0; i < kQuestions; ++i) {
    int64_t count = 0;
    const size_t got = stream_.read(reinterpret_cast<char*>(&count), sizeof count, deadline);
    if (i == 0 && got == 0 && !deadline.passed()) return false;
    if (got < sizeof count) fail_short(&count, got, deadline);
    check_count(count);
  }
  return true;
}

void AgentStore::check_count(int64_t count) const {
  if (count < 0 || count > kMostKeys) fail_foreign(&count, sizeof count);
}

void AgentStore::check_without_handshake(Deadline deadline) {
  send(request(Request::kCountKeys), deadline);
  check_count(answer<int64_t>(deadline));
}

// Closes the connection if the body throws. Otherwise the rest of an answer could be taken for the next
// answer.
template <typename Body>
auto AgentStore::converse(Deadline deadline, Body body) {
  struct Closer {
    AgentStore& store;
    bool done = false;
    ~Closer() {
      if (done) return;
      store.greeted_ = false;
      store.stream_ = TcpStream();
    }
  } closer{*this};
  connect(deadline);
  auto result = body();
  closer.done = true;
  return result;
}

// A set request has no reply. Therefore a check of the key follows it, whose reply shows that the value was
// stored.
void AgentStore::put(std::string_view key, std::string_view value, Deadline deadline) {
  if (value.size() > kMostValueBytes)
    fail(DSC_ERR_INVALID_ARG, "the value has %zu bytes, expected at most %zu", value.size(), kMostValueBytes);
  const char answered = converse(deadline, [&] {
    std::string message = request(Request::kSet) + key_text(key);
    append_text(message, value);
    message += request(Request::kCheck);
    append_value<uint64_t>(message, 1);
    send(message + key_text(key), deadline);
    return answer<char>(deadline);
  });
  if (answered != kReady) fail_foreign(&answered, sizeof answered);
}

// First waits for the key, because in the agent it is an error to get a missing key.
std::string AgentStore::get(std::string_view key, int32_t owner, Deadline deadline) {
  return converse(deadline, [&] {
    std::string message = request(Request::kWait);
    append_value<uint64_t>(message, 1);
    send(message + key_text(key), deadline);
    char stop = 0;
    const size_t came = stream_.read(&stop, sizeof stop, deadline);
    if (came == 0 && !deadline.passed()) fail_short(&stop, came, deadline);
    if (came == 0)
      fail(DSC_ERR_TIMEOUT, "the key '%.60s' of rank %d did not arrive through torchrun's agent at %.100s:%d",
           std::string(key).c_str(), owner, host_.c_str(), port_);
    if (stop != kStopWaiting) fail_foreign(&stop, sizeof stop);
    send(request(Request::kGet) + key_text(key), deadline);
    const auto bytes = answer<uint64_t>(deadline);
    if (bytes > kMostValueBytes) fail_foreign(&bytes, sizeof bytes);
    std::string value(bytes, '\0');
    const size_t got = stream_.read(value.data(), value.size(), deadline);
    if (got < bytes) fail_short(value.data(), got, deadline);
    return value;
  });
}

}  // namespace dsc
