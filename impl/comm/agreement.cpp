#include "comm/agreement.hpp"

#include <algorithm>
#include <string_view>

#include "base/hash.hpp"
#include "comm/describe.hpp"
#include "comm/gather.hpp"

namespace dsc {
namespace {

constexpr size_t kRanksShown = 16;

struct TextDigest {
  uint64_t hash;
  uint64_t bytes;

  bool operator==(const TextDigest&) const = default;
};

std::string joined(std::span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) (text += line) += '\n';
  return text;
}

std::vector<TextDigest> gather_digests(Comm& comm, uint64_t tag, const std::string& text) {
  return gather_all(comm, OpKind::kVerify, tag, TextDigest{fnv1a(text), text.size()});
}

std::vector<std::string> gather_texts(Comm& comm, uint64_t tag, std::string text,
                                      std::span<const TextDigest> digests) {
  const size_t longest = std::ranges::max(digests, {}, &TextDigest::bytes).bytes;
  text.resize(longest);
  std::string all(longest * digests.size(), '\0');
  gather_bytes(comm, OpKind::kVerify, tag, text.data(), all.data(), longest);
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < digests.size(); ++rank)
    texts.push_back(all.substr(rank * longest, digests[rank].bytes));
  return texts;
}

// Removes the first line from `text` and returns it.
std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

Disagreement first_difference(std::span<const std::string> texts) {
  std::vector<std::string_view> rest(texts.begin(), texts.end());
  for (size_t number = 0;; ++number) {
    std::vector<std::string_view> line;
    std::ranges::transform(rest, std::back_inserter(line), next_line);
    const auto other = std::ranges::find_if(line, [&](auto text) { return text != line[0]; });
    if (other == line.end()) continue;  // the loop ends, because the texts differ in some line
    Disagreement result{number, std::string(line[0]), std::string(*other), {}};
    for (size_t rank = 0; rank < line.size(); ++rank)
      if (line[rank] == *other) result.ranks.push_back(static_cast<int>(rank));
    return result;
  }
}

}  // namespace

std::optional<Disagreement> find_disagreement(Comm& comm, uint64_t tag, std::span<const std::string> lines) {
  if (comm.size() == 1) return std::nullopt;
  const std::string text = joined(lines);
  const std::vector<TextDigest> digests = gather_digests(comm, tag, text);
  if (std::ranges::count(digests, digests[0]) == comm.size()) return std::nullopt;
  return first_difference(gather_texts(comm, tag, text, digests));
}

std::string ranks_text(std::span<const int> ranks) {
  return ranks.size() > kRanksShown ? list_ranks(ranks.first(kRanksShown)) + ", ..." : list_ranks(ranks);
}

}  // namespace dsc
