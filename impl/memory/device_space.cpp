// Memory of the device of a group. The driver or kernels do the work on streams.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/memory.hpp"
#include "device/buffer.hpp"
#include "device/context.hpp"
#include "dtype/dtype.hpp"
#include "memory/space.hpp"

namespace dsc {
namespace {

static_assert(sizeof(Norm) == Kernels::kNormResultBytes);

DeviceStream* stream_of(void* stream) { return static_cast<DeviceStream*>(stream); }
DeviceEvent* event_of(const Mark& mark) { return static_cast<const PooledEvent*>(mark.get())->get(); }

class DeviceSpace final : public Space {
 public:
  explicit DeviceSpace(Comm& group) : Space(group, group.device()), context_(*group.device_context()) {}

  void prepare() const override { static_cast<void>(kernels()); }
  bool is_prepared() const override { return context_.kernels->is_loaded(); }

  Memory allocate(size_t bytes) override {
    return {static_cast<std::byte*>(group().allocate_on_device(std::max<size_t>(bytes, 1))),
            [](std::byte* memory) { call_out([&] { release_memory(memory); }); }};
  }
  Memory allocate_own(size_t bytes) override { return allocate(bytes); }
  Memory take(size_t bytes, void* stream) override;
  Memory stage(size_t bytes) override;

  std::shared_ptr<void> make_stream() override {
    const auto stream = std::make_shared<Stream>(context_.device, 0);
    return {stream, stream->get()};
  }
  bool is_captured(void* stream) const override {
    const DeviceScope scope(device());
    return is_capturing(device(), stream_of(stream));
  }
  bool is_of_thread(void* stream) const noexcept override { return stream == kPerThreadStream; }
  Mark mark(void* stream) override;
  void follow(void* stream, const Mark& mark) override {
    const DeviceScope scope(device());
    if (mark) device().wait(stream_of(stream), event_of(mark));
  }
  bool wait_for(const Mark& mark, Deadline deadline) const override {
    return !mark || dsc::wait_for(device(), event_of(mark), deadline);
  }

  void copy(const ElementCopy& copy, void* stream) override;
  void add(const ElementCopy& copy, void* stream) override;
  void divide(const Elements& elements, int divisor, void* stream) override;
  void zero(void* at, size_t bytes, void* stream) override {
    const DeviceScope scope(device());
    if (bytes > 0) device().zero(address_of(at), bytes, stream_of(stream));
  }
  void copy_rows(const RowsCopy& copy, void* stream) override;
  void gather(const PartsCopy& copy, void* stream) override;
  void scatter(const PartsCopy& copy, void* stream) override;

  size_t norm_bytes() const noexcept override { return Kernels::norm_bytes(); }

 private:
  const Device& device() const noexcept { return *context_.device; }
  const Kernels& kernels() const { return context_.kernels->get(); }
  void convert(const ElementCopy& copy, double scale, void* stream) const;

  const DeviceContext context_;
};

// Returns whether a conversion loses bits. If it does, numbers are rounded before they are scaled or counted,
// so that results equal those in host memory.
bool narrows(int32_t from, int32_t to) { return dtype_bytes(to) < dtype_bytes(from); }

BucketCopy launch_of(const PartsCopy& copy, std::vector<BucketPart>& parts) {
  for (const auto& [tensor, count, offset] : copy.parts) parts.push_back({address_of(tensor), count, offset});
  return {.parts = parts,
          .tensor_dtype = copy.tensor_dtype,
          .bucket = address_of(copy.block),
          .bucket_dtype = copy.block_dtype,
          .scale = copy.scale,
          .norm = address_of(copy.norm)};
}

Memory DeviceSpace::take(size_t bytes, void* stream) {
  const auto buffer = std::make_shared<DeviceBuffer>(device(), std::max<size_t>(bytes, 1), stream_of(stream));
  return {buffer, static_cast<std::byte*>(buffer->data())};
}

Memory DeviceSpace::stage(size_t bytes) {
  const auto buffer = std::make_shared<PinnedBuffer>(context_.device, bytes);
  return {buffer, buffer->data()};
}

Mark DeviceSpace::mark(void* stream) {
  const DeviceScope scope(device());
  auto event = std::make_shared<PooledEvent>(context_.events->take());
  device().record(event->get(), stream_of(stream));
  return event;
}

void DeviceSpace::convert(const ElementCopy& copy, double scale, void* stream) const {
  kernels().copy({.from = address_of(copy.from),
                  .to = address_of(copy.to),
                  .count = copy.count,
                  .from_dtype = copy.from_dtype,
                  .to_dtype = copy.to_dtype,
                  .scale = scale},
                 stream_of(stream));
}

void DeviceSpace::copy(const ElementCopy& copy, void* stream) {
  if (copy.count == 0) return;
  const DeviceScope scope(device());
  if (copy.scale == 1 && copy.from_dtype == copy.to_dtype)
    return device().copy(address_of(copy.to), address_of(copy.from), copy.count * dtype_bytes(copy.to_dtype),
                         stream_of(stream));
  const bool in_two_steps = copy.scale != 1 && narrows(copy.from_dtype, copy.to_dtype);
  convert(copy, in_two_steps ? 1 : copy.scale, stream);
  if (in_two_steps) scale({copy.to, copy.count, copy.to_dtype}, copy.scale, stream);
}

// Elements of another type are first converted into separate memory.
void DeviceSpace::add(const ElementCopy& copy, void* stream) {
  if (copy.count == 0) return;
  if (copy.to == copy.from && copy.to_dtype == copy.from_dtype)  // the kernel requires two different inputs
    return scale({copy.to, copy.count, copy.to_dtype}, 2, stream);
  const DeviceScope scope(device());
  Memory converted;
  DeviceAddress from = address_of(copy.from);
  if (copy.from_dtype != copy.to_dtype) {
    converted = take(copy.count * dtype_bytes(copy.to_dtype), stream);
    from = address_of(converted.get());
    ElementCopy conversion = copy;
    conversion.to = converted.get();
    convert(conversion, 1, stream);
  }
  const DeviceAddress to = address_of(copy.to);
  kernels().sum_parts({.from = std::min(to, from),
                       .to = to,
                       .count = copy.count,
                       .n_parts = 2,
                       .dtype = copy.to_dtype,
                       .part_bytes = std::max(to, from) - std::min(to, from)},
                      stream_of(stream));
}

void DeviceSpace::divide(const Elements& elements, int divisor, void* stream) {
  if (elements.count == 0) return;
  const DeviceScope scope(device());
  kernels().sum_parts({.from = address_of(elements.data),
                       .to = address_of(elements.data),
                       .count = elements.count,
                       .n_parts = 1,
                       .dtype = elements.dtype,
                       .divisor = static_cast<double>(divisor)},
                      stream_of(stream));
}

void DeviceSpace::copy_rows(const RowsCopy& copy, void* stream) {
  const DeviceScope scope(device());
  if (copy.rows == 1)
    return device().copy(address_of(copy.to), address_of(copy.from), copy.row_bytes, stream_of(stream));
  kernels().copy_strided({.from = address_of(copy.from),
                          .to = address_of(copy.to),
                          .parts = 1,
                          .rows = copy.rows,
                          .row_bytes = copy.row_bytes,
                          .from_part = 0,
                          .from_row = copy.from_stride,
                          .to_part = 0,
                          .to_row = copy.to_stride},
                         stream_of(stream));
}

void DeviceSpace::gather(const PartsCopy& copy, void* stream) {
  const DeviceScope scope(device());
  std::vector<BucketPart> parts;
  BucketCopy launch = launch_of(copy, parts);
  if (narrows(copy.tensor_dtype, copy.block_dtype) && (copy.scale != 1 || copy.norm)) {
    launch.scale = 1;
    launch.norm = 0;
    kernels().gather(launch, stream_of(stream));
    for (BucketPart& part : parts) part.tensor = launch.bucket + part.offset * dtype_bytes(copy.block_dtype);
    launch.tensor_dtype = copy.block_dtype;
    launch.scale = copy.scale;
    launch.norm = address_of(copy.norm);
  }
  kernels().gather(launch, stream_of(stream));
}

void DeviceSpace::scatter(const PartsCopy& copy, void* stream) {
  const DeviceScope scope(device());
  std::vector<BucketPart> parts;
  kernels().scatter(launch_of(copy, parts), stream_of(stream));
}

}  // namespace

std::unique_ptr<Space> Space::of_device(Comm& group) { return std::make_unique<DeviceSpace>(group); }

}  // namespace dsc
