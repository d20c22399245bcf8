// Which cards of the machine a process sees, in which order, and how the cards are identified.
#include "cuda_cards.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

namespace fake_gpu {
namespace {

constexpr const char* kUuidMark = "GPU-";

uint64_t mixed(uint64_t number) {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

uint64_t machine() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  uint64_t hash = 0;
  for (const char* letter = host; *letter; ++letter) hash = mixed(hash + static_cast<unsigned char>(*letter));
  return hash;
}

std::string text_of(const dsc::CudaUuid& uuid) {
  std::string text = kUuidMark;
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    char byte[4];
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    std::snprintf(byte, sizeof byte, dash ? "-%02x" : "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += byte;
  }
  return text;
}

// Returns the only card whose UUID begins with this text.
std::optional<int> card_of_uuid(std::string begin, int cards) {
  std::optional<int> found;
  std::transform(begin.begin() + 4, begin.end(), begin.begin() + 4,
                 [](unsigned char letter) { return std::tolower(letter); });
  for (int card = 0; card < cards; ++card) {
    if (!text_of(uuid_of(card)).starts_with(begin)) continue;
    if (found) return {};
    found = card;
  }
  return found;
}

// Characters after the digits are ignored.
std::optional<int> card_of_number(const std::string& text, int cards) {
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  return end != text.c_str() && number >= 0 && number < cards ? std::optional(static_cast<int>(number))
                                                              : std::nullopt;
}

}  // namespace

dsc::CudaUuid uuid_of(int card) {
  dsc::CudaUuid uuid{};
  const uint64_t first = mixed(machine() + static_cast<uint64_t>(card) + 1), second = mixed(first);
  std::memcpy(uuid.bytes, &first, 8);
  std::memcpy(uuid.bytes + 8, &second, 8);
  return uuid;
}

std::vector<int> visible_cards(int cards, const char* list) {
  std::vector<int> visible;
  for (int card = 0; !list && card < cards; ++card) visible.push_back(card);
  if (!list) return visible;
  const bool by_uuid = std::string(list).starts_with(kUuidMark);
  for (std::string rest = list;;) {
    const size_t end = rest.find(',');
    const std::string one = rest.substr(0, end);
    if (by_uuid && !one.starts_with(kUuidMark)) return visible;
    const auto card = by_uuid ? card_of_uuid(one, cards) : card_of_number(one, cards);
    if (!card) return visible;
    if (std::find(visible.begin(), visible.end(), *card) != visible.end()) return {};
    visible.push_back(*card);
    if (end == std::string::npos) return visible;
    rest.erase(0, end + 1);
  }
}

}  // namespace fake_gpu
