// The store's table, compared with the model: each reply, each error, and the whole content after each
// request.
#include <algorithm>

#include "base/guard.hpp"
#include "fuzz.hpp"
#include "store_model.hpp"

namespace dsc::fuzz {
namespace {

void check_same(const KeyTable& table, const StoreModel& model) {
  FUZZ_REQUIRE(table.size() == model.entries().size());
  FUZZ_REQUIRE(table.bytes() == model.bytes());
  for (const auto& [key, value] : model.entries()) {
    const std::string* const kept = table.find(key);
    FUZZ_REQUIRE(kept != nullptr && *kept == value);
  }
}

bool lacks(const StoreModel& model, const StoreRequest& request, const std::string& key) {
  const auto found = model.entries().find(key);
  if (found == model.entries().end()) return true;
  return request.op == StoreOp::kFollow && found->second.size() <= static_cast<uint64_t>(request.number);
}

void check_missing(const KeyTable& table, const StoreModel& model, const StoreRequest& request,
                   size_t start) {
  std::vector<std::string> missing;
  for (const std::string& key : request.keys)
    if (lacks(model, request, key)) missing.push_back(key);
  FUZZ_REQUIRE(table.missing(request) == missing);
  const auto first = table.first_missing(request, request.keys.empty() ? 0 : start % request.keys.size());
  FUZZ_REQUIRE(first.has_value() == !missing.empty());
  if (first) FUZZ_REQUIRE(lacks(model, request, request.keys[*first]));
}

}  // namespace

void fuzz_table(Bytes bytes) {
  Input input(bytes);
  KeyTable table(kSmallLimits);
  StoreModel model;
  while (!input.empty()) {
    const StoreRequest request = request_from(input);
    const StoreModel::Answer expected = model.apply(request);
    std::optional<StoreReply> reply = StoreReply{};
    capture([&] { reply = table.apply(request); },
            [&](dsc_result_t code, const char* text) {
              FUZZ_REQUIRE(*text != '\0');
              reply->code = code;
            });
    FUZZ_REQUIRE(reply.has_value() == !expected.waits);
    if (reply) {
      FUZZ_REQUIRE(reply->code == expected.reply.code);
      FUZZ_REQUIRE(reply->number == expected.reply.number);
      FUZZ_REQUIRE(reply->value == expected.reply.value);
    }
    check_same(table, model);
    check_missing(table, model, request, input.byte());
  }
}

}  // namespace dsc::fuzz
