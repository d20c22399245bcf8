#include "store/request.hpp"

#include "store/bytes.hpp"

namespace dsc {

const char* store_op_name(StoreOp op) noexcept {
  switch (op) {
    case StoreOp::kSet:
      return "set";
    case StoreOp::kGet:
      return "get";
    case StoreOp::kAdd:
      return "add";
    case StoreOp::kCompareSet:
      return "compare_set";
    case StoreOp::kAppend:
      return "append";
    case StoreOp::kCheck:
      return "check";
    case StoreOp::kWait:
      return "wait";
    case StoreOp::kRemove:
      return "delete";
    case StoreOp::kCount:
      return "count";
    case StoreOp::kFollow:
      return "follow";
    case StoreOp::kWill:
      return "will";
  }
  return "unknown";
}

bool changes(StoreOp op) noexcept {
  return op == StoreOp::kSet || op == StoreOp::kAdd || op == StoreOp::kCompareSet || op == StoreOp::kAppend ||
         op == StoreOp::kRemove;
}

bool waits(StoreOp op) noexcept {
  return op == StoreOp::kGet || op == StoreOp::kWait || op == StoreOp::kFollow;
}

std::string encode(const StoreRequest& request) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(request.op));
  writer.number(static_cast<uint64_t>(request.number));
  writer.text(request.value);
  writer.text(request.expected);
  for (const std::string& key : request.keys) writer.text(key);
  return writer.take();
}

std::optional<StoreRequest> decode_request(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreRequest request;
  request.op = static_cast<StoreOp>(reader.number<uint8_t>());
  request.number = static_cast<int64_t>(reader.number<uint64_t>());
  request.value = reader.text();
  request.expected = reader.text();
  while (reader.good() && reader.left() > 0) {
    if (request.keys.size() == kMostRequestKeys) return std::nullopt;
    request.keys.emplace_back(reader.text());
  }
  if (!reader.at_end() || request.op < StoreOp::kSet || request.op > kLastStoreOp) return std::nullopt;
  return request;
}

std::string encode(const StoreReply& reply) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(reply.code));
  writer.number(static_cast<uint64_t>(reply.number));
  writer.raw(reply.value);
  return writer.take();
}

std::optional<StoreReply> decode_reply(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreReply reply;
  reply.code = static_cast<dsc_result_t>(reader.number<uint32_t>());
  reply.number = static_cast<int64_t>(reader.number<uint64_t>());
  reply.value = reader.raw(reader.left());
  if (!reader.at_end()) return std::nullopt;
  return reply;
}

}  // namespace dsc
