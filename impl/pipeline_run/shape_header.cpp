#include "pipeline_run/shape_header.hpp"

#include <bit>
#include <cstring>
#include <string>

#include "base/error.hpp"

namespace dsc {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are in memory");

constexpr uint32_t kMagic = 0x53435344;  // the bytes "DSCS"
constexpr uint16_t kVersion = 1;

struct Front {
  uint32_t magic;
  uint16_t version;
  uint16_t tensors;
  uint64_t sequence;
  int32_t micro_batch;
  int32_t part;
};
static_assert(sizeof(Front) == 24, "no padding");

struct Kind {
  int32_t dtype;
  int32_t dimensions;
};

Kind kind_of(const Tensor& tensor) noexcept {
  return {tensor.dtype, static_cast<int32_t>(tensor.shape.size())};
}

Front front_of(const ShapeHeader& header, std::span<const Tensor> tensors) noexcept {
  return {.magic = kMagic,
          .version = kVersion,
          .tensors = static_cast<uint16_t>(tensors.size()),
          .sequence = header.sequence,
          .micro_batch = header.micro_batch,
          .part = header.part};
}

template <typename T>
void put(std::vector<std::byte>& bytes, const T* values, size_t n) {
  const auto* first = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), first, first + n * sizeof(T));
}

void expect(bool is_so, const char* what, uint64_t came, uint64_t expected) {
  if (!is_so)
    fail(DSC_ERR_MISMATCH, "the header of an activation has %s %llu, expected %llu", what,
         static_cast<unsigned long long>(came), static_cast<unsigned long long>(expected));
}

void check_front(const Front& came, const Front& expected) {
  expect(came.magic == expected.magic, "magic", came.magic, expected.magic);
  expect(came.version == expected.version, "version", came.version, expected.version);
  expect(came.sequence == expected.sequence, "sequence number", came.sequence, expected.sequence);
  expect(came.micro_batch == expected.micro_batch, "micro-batch", static_cast<uint32_t>(came.micro_batch),
         static_cast<uint32_t>(expected.micro_batch));
  expect(came.part == expected.part, "part", static_cast<uint32_t>(came.part),
         static_cast<uint32_t>(expected.part));
  expect(came.tensors == expected.tensors, "tensors", came.tensors, expected.tensors);
}

}  // namespace

size_t shape_header_bytes(std::span<const Tensor> tensors) noexcept {
  size_t bytes = sizeof(Front);
  for (const Tensor& tensor : tensors) bytes += sizeof(Kind) + tensor.shape.size_bytes();
  return bytes;
}

std::vector<std::byte> write_shape_header(const ShapeHeader& header, std::span<const Tensor> tensors) {
  std::vector<std::byte> bytes;
  bytes.reserve(shape_header_bytes(tensors));
  const Front front = front_of(header, tensors);
  put(bytes, &front, 1);
  for (const Tensor& tensor : tensors) {
    const Kind kind = kind_of(tensor);
    put(bytes, &kind, 1);
    put(bytes, tensor.shape.data(), tensor.shape.size());
  }
  return bytes;
}

void read_shape_header(std::span<const std::byte> bytes, const ShapeHeader& expected,
                       std::span<const Tensor> tensors, int64_t* const* positions) {
  expect(bytes.size() == shape_header_bytes(tensors), "bytes", bytes.size(), shape_header_bytes(tensors));
  Front front;
  std::memcpy(&front, bytes.data(), sizeof front);
  check_front(front, front_of(expected, tensors));
  size_t at = sizeof front;
  for (const Tensor& tensor : tensors) {
    Kind came;
    std::memcpy(&came, bytes.data() + at, sizeof came);
    const Kind own = kind_of(tensor);
    expect(came.dtype == own.dtype, "dtype", static_cast<uint32_t>(came.dtype),
           static_cast<uint32_t>(own.dtype));
    expect(came.dimensions == own.dimensions, "dimensions", static_cast<uint32_t>(came.dimensions),
           static_cast<uint32_t>(own.dimensions));
    at += sizeof came + tensor.shape.size_bytes();
  }
  at = sizeof front;
  for (size_t i = 0; i < tensors.size(); ++i) {
    at += sizeof(Kind);
    if (!tensors[i].shape.empty())
      std::memcpy(positions[i], bytes.data() + at, tensors[i].shape.size_bytes());
    at += tensors[i].shape.size_bytes();
  }
}

}  // namespace dsc
