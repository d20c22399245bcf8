// The fake CUDA driver does as the real one does.
#include "fake_gpu_support.hpp"

using namespace fake_test;

namespace {

constexpr CudaResult kNoContext{201}, kBadHandle{400}, kNotReady{600}, kBadAddress{700};

void nothing_works_before_init(void**) {
  in_child({}, [] {
    int count = 0;
    CudaAddress address = 0;
    CHECK(cuDeviceGetCount(&count) == CudaResult::not_initialized);
    CHECK_CUDA(cuInit(0));
    CHECK_CUDA(cuDeviceGetCount(&count));
    CHECK(count == 2);
    CHECK(cuMemAlloc_v2(&address, 8) == kNoContext);
    CHECK(fake_gpu_misuses() == 0);
  });
}

void pointers_say_what_they_are(void**) {
  in_child({}, [] {
    const Device device(1);
    const Array<int> memory(4);
    dsc::CudaPointerAttribute which[] = {dsc::CudaPointerAttribute::memory_type,
                                         dsc::CudaPointerAttribute::is_managed,
                                         dsc::CudaPointerAttribute::device_ordinal};
    unsigned type = 9, managed = 9;
    int ordinal = 9;
    void* values[] = {&type, &managed, &ordinal};
    CHECK_CUDA(cuPointerGetAttributes(3, which, values, memory.address() + 4));
    CHECK(type == 2 && managed == 0 && ordinal == 1);
    CHECK_CUDA(cuPointerGetAttributes(3, which, values, reinterpret_cast<CudaAddress>(&type)));
    CHECK(type == 0 && managed == 0 && ordinal == 0);
    CudaAddress everywhere = 0;
    CHECK_CUDA(cuMemAllocManaged(&everywhere, 16, 1));
    CHECK_CUDA(cuPointerGetAttributes(3, which, values, everywhere));
    CHECK(type == 2 && managed == 1);
    void* pinned = nullptr;
    CHECK_CUDA(cuMemHostAlloc(&pinned, 16, 0));
    CHECK_CUDA(cuPointerGetAttributes(3, which, values, reinterpret_cast<CudaAddress>(pinned)));
    CHECK(type == 1 && managed == 0);
    CHECK_CUDA(cuMemFreeHost(pinned));
    CHECK_CUDA(cuMemFree_v2(everywhere));
    CHECK(fake_gpu_misuses() == 0);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_works_before_init),
      cmocka_unit_test(pointers_say_what_they_are),
  };
  return cmocka_run_group_tests_name("fake_gpu", tests, nullptr, nullptr);
}
