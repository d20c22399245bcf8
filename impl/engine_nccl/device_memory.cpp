// Memory of the device that all ranks allocate together.
#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/group_ids.hpp"
#include "comm/memory.hpp"
#include "comm/outcome.hpp"
#include "engine_nccl/nccl_engine.hpp"

namespace dsc {
namespace {

constexpr uint64_t kAllocatedTag = 0x64657661, kRegisteredTag = 0x64657672;

// One rank's memory, which the destructor frees.
class DeviceMemory {
 public:
  DeviceMemory(const std::shared_ptr<NcclEngine>& engine, const NcclGroup& group, size_t bytes)
      : world_(group.world), engine_(engine), bytes_(bytes) {
    const DeviceScope scope(device());
    if (nccl().mem_alloc) {
      group.check(nccl().mem_alloc(&data_, bytes), "ncclMemAlloc");
    } else {
      CudaAddress address = 0;
      device().check(device().cuda().mem_alloc(&address, bytes), "cuMemAlloc");
      data_ = reinterpret_cast<void*>(address);
    }
    const auto address = address_of(data_);
    device().zero(address, bytes, nullptr);
    device().check(device().cuda().stream_synchronize(nullptr), "cuStreamSynchronize");
  }
  // Memory that NCCL still uses is freed when its communicator has ended.
  ~DeviceMemory() {
    if (!data_) return;
    const auto give_back = [world = world_, data = data_] {
      const DeviceScope scope(*world.nccl.device);
      const NcclFunctions& nccl = world.nccl.library->functions;
      if (nccl.mem_alloc)
        nccl.mem_free(data);
      else
        world.nccl.device->cuda().mem_free(address_of(data));
    };
    call_out([&] {
      if (has_left_window()) return give_back();
      communicator_->after_end(give_back);
    });
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const noexcept { return data_; }
  // Collective. Registers the memory with NCCL if the library can do that.
  void register_window(std::shared_ptr<NcclCommunicator> communicator, const NcclWait& limits) {
    if (!communicator) return;
    communicator_ = std::move(communicator);
    is_known_ = true;  // NCCL may know the memory even if the registration fails
    window_ = communicator_->register_window(data_, bytes_, limits);
    is_known_ = window_ != nullptr;
  }

 private:
  bool has_left_window() const {
    if (!is_known_) return true;
    const auto engine = engine_.lock();
    return engine && window_ && engine->deregister_window(window_);
  }

  const Device& device() const noexcept { return *world_.nccl.device; }
  const NcclFunctions& nccl() const noexcept { return world_.nccl.library->functions; }

  const DeviceWorld world_;
  const std::weak_ptr<NcclEngine> engine_;
  const size_t bytes_;
  void* data_ = nullptr;
  NcclWindow* window_ = nullptr;
  bool is_known_ = false;  // true if NCCL may use the memory
  std::shared_ptr<NcclCommunicator> communicator_;
};

}  // namespace

void* NcclEngine::allocate(size_t bytes) {
  std::shared_ptr<DeviceMemory> made;
  run_on_all(*group_.host, OpKind::kMemAlloc, mix_id(kAllocatedTag, bytes), "",
             [&] { made = std::make_shared<DeviceMemory>(shared_from_this(), group_, bytes); });
  run_on_all(*group_.host, OpKind::kMemAlloc, mix_id(kRegisteredTag, bytes), "",
             [&] { made->register_window(group_.communicator, ending_.wait_limits(0)); });
  void* const data = made->data();
  keep_memory(data, bytes, std::move(made));
  return data;
}

}  // namespace dsc
