// The address where a job meets: init_method, ports, and host lists of launchers. Each is compared with what
// was written, or with a simpler parser.
#include <cstdlib>
#include <optional>
#include <string>

#include "base/guard.hpp"
#include "bootstrap/host_list.hpp"
#include "bootstrap/init_method.hpp"
#include "fuzz.hpp"

namespace dsc::fuzz {
namespace {

constexpr size_t kLongestHost = 253;

bool is_digit(char c) { return std::string_view("0123456789").find(c) != std::string_view::npos; }

bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_';
}

std::string address_text(const MasterAddress& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return "tcp://" + (brackets ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

void init_method(Input input) {
  const std::string all(input.rest());
  const std::string text(all.c_str());
  dsc_result_t code = DSC_OK;
  std::optional<MasterAddress> address;
  capture([&] { address = parse_init_method(text.c_str()); },
          [&](dsc_result_t failed, const char* why) {
            code = failed;
            FUZZ_REQUIRE(std::string_view(why).find("init_method") != std::string_view::npos);
          });
  const bool of_file = text.starts_with("file:///") && text.size() > std::string_view("file:///").size();
  const bool without_address = text == "env://" || text == "pmix://" || of_file;
  FUZZ_REQUIRE(code == DSC_OK || code == DSC_ERR_INVALID_ARG);
  FUZZ_REQUIRE(without_address == (code == DSC_OK && !address));
  if (!address) return;
  FUZZ_REQUIRE(text.starts_with("tcp://") && !address->host.empty());
  FUZZ_REQUIRE(address->port >= 1 && address->port <= 65535);
  const auto again = parse_init_method(address_text(*address).c_str());
  FUZZ_REQUIRE(again && again->host == address->host && again->port == address->port);
}

// A host and a port that were joined to a text must be split into the same parts.
void put_together(Input input) {
  const int32_t port = 1 + (input.byte() << 8 | input.byte()) % 65535;
  std::string host;
  for (const char c : input.rest())
    if (is_name_character(c) || c == ':') host += c;
  if (host.empty()) return;
  const auto address = parse_init_method(address_text({host, port}).c_str());
  FUZZ_REQUIRE(address && address->host == host && address->port == port);
}

void port(Input input) {
  const std::string text(input.rest());
  long value = 0;
  for (const char c : text) value = is_digit(c) && value <= 65535 ? value * 10 + (c - '0') : 65536;
  const bool good = !text.empty() && value >= 1 && value <= 65535;
  FUZZ_REQUIRE(parse_port(text) == (good ? std::optional(static_cast<int32_t>(value)) : std::nullopt));
}

// A parser for the full grammar of names and ranges. What it takes from the text is always valid.
class SlurmGrammar {
 public:
  explicit SlurmGrammar(std::string_view text) : rest_(text) {}

  std::optional<std::string> first_host() {
    const auto first = host();
    while (first && !rest_.empty())
      if (!take(',') || !host()) return std::nullopt;
    return first && first->size() <= kLongestHost ? first : std::nullopt;
  }

 private:
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string run_of(bool (*belongs)(char)) {
    std::string run;
    while (!rest_.empty() && belongs(rest_[0])) {
      run += rest_[0];
      rest_.remove_prefix(1);
    }
    return run;
  }

  std::optional<std::string> host() {
    std::string name;
    const size_t before = rest_.size();
    while (!rest_.empty() && rest_[0] != ',') {
      name += run_of(is_name_character);
      if (rest_.empty() || rest_[0] == ',') break;
      const auto number = take('[') ? first_number() : std::nullopt;
      if (!number) return std::nullopt;
      name += *number;
    }
    return rest_.size() < before ? std::optional(name) : std::nullopt;
  }

  std::optional<std::string> first_number() {
    const auto first = range();
    while (first && !take(']'))
      if (!take(',') || !range()) return std::nullopt;
    return first;
  }

  std::optional<std::string> range() {
    const std::string first = run_of(is_digit);
    if (first.empty() || (take('-') && run_of(is_digit).empty())) return std::nullopt;
    return first;
  }

  std::string_view rest_;
};

void slurm(Input input) {
  const Bytes list = input.rest();
  FUZZ_REQUIRE(first_slurm_host(list) == SlurmGrammar(list).first_host());
}

std::string json_string(Input& input) {
  std::string text = "\"";
  for (const char c : input.take(input.below(6))) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

std::string json_value(Input& input, int depth) {
  const size_t kind = input.below(depth > 0 ? 5 : 3);
  if (kind == 0) return std::to_string(input.byte());
  if (kind == 1) return input.below(2) ? "null" : "true";
  if (kind == 2) return json_string(input);
  std::string text = kind == 3 ? "[" : "{";
  for (size_t n = input.below(3); n > 0; --n) {
    if (text.size() > 1) text += " ,";
    if (kind == 4) text += json_string(input) + ":";
    text += json_value(input, depth - 1);
  }
  return text + (kind == 3 ? "]" : "}");
}

// The target writes a document with its hosts among other members, some of which are deeply nested.
void sagemaker(Input input) {
  std::string before, host;
  for (size_t n = input.below(4); n > 0; --n)
    before += json_string(input) + " : " + json_value(input, 3) + ", ";
  for (const char c : input.take(input.below(12)))
    if (is_name_character(c) || c == ':') host += c;
  const bool empty = host.empty();
  const std::string behind = input.below(2) ? ",\"algo-2\"]" : "]";
  const std::string json =
      "{" + before + "\"hosts\":[" + (empty ? "]" : "\"" + host + "\"" + behind) + ",\"hosts\":[\"other\"]}";
  if (before.find("\"hosts\"") != std::string::npos) return;
  FUZZ_REQUIRE(first_sagemaker_host(json) == (empty ? std::nullopt : std::optional(host)));
}

// Parses any bytes. The parsers may only return names that a host can have.
void any_list(Input input) {
  const Bytes text = input.rest();
  for (const auto& host : {first_sagemaker_host(text), host_before_colon(text), plain_host(text)}) {
    if (!host) continue;
    FUZZ_REQUIRE(!host->empty() && host->size() <= kLongestHost);
    FUZZ_REQUIRE(std::ranges::all_of(*host, [](char c) { return is_name_character(c) || c == ':'; }));
    FUZZ_REQUIRE(text.find(*host) != Bytes::npos);
  }
}

}  // namespace

void fuzz_address(Bytes bytes) {
  Input input(bytes);
  constexpr void (*kParts[])(Input) = {init_method, put_together, port, slurm, sagemaker, any_list};
  const size_t part = input.below(std::size(kParts));
  kParts[part](input);
}

}  // namespace dsc::fuzz
