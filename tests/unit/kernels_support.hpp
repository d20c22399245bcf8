// A driver that knows only how to launch the kernels, and does so at once on the calling thread.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../support/fake_gpu/fake_gpu.h"
#include "device/kernels.hpp"

namespace support {

struct FakeKernel {
  fake_cuda_kernel run = nullptr;
  std::vector<size_t> param_bytes;
};

inline std::map<std::string, FakeKernel>& fake_kernels() {
  static std::map<std::string, FakeKernel> kernels;
  return kernels;
}

struct FakeDriver {
  std::vector<unsigned> grids;  // of the launches so far
  std::string lacking;          // name of a kernel
  bool refuses_image = false;
  bool refuses_launch = false;
  int modules = 0;
};
inline FakeDriver fake_driver;

inline std::shared_ptr<const dsc::CudaLibrary> fake_cuda() {
  using dsc::CudaResult;
  auto library = std::make_shared<dsc::CudaLibrary>();
  auto& cuda = library->functions;
  cuda.get_error_name = [](CudaResult, const char** name) {
    *name = "FAKE_ERROR";
    return CudaResult::success;
  };
  cuda.get_error_string = [](CudaResult, const char** text) {
    *text = "the fake driver says so";
    return CudaResult::success;
  };
  cuda.module_load_data = [](dsc::CudaModule** module, const void*) {
    if (fake_driver.refuses_image) return CudaResult::no_binary_for_gpu;
    *module = reinterpret_cast<dsc::CudaModule*>(&fake_driver);
    ++fake_driver.modules;
    return CudaResult::success;
  };
  cuda.module_unload = [](dsc::CudaModule*) {
    --fake_driver.modules;
    return CudaResult::success;
  };
  cuda.module_get_function = [](dsc::CudaFunction** function, dsc::CudaModule*, const char* name) {
    const auto found = fake_kernels().find(name);
    if (found == fake_kernels().end() || fake_driver.lacking == name) return static_cast<CudaResult>(500);
    *function = reinterpret_cast<dsc::CudaFunction*>(&found->second);
    return CudaResult::success;
  };
  cuda.launch_kernel = [](dsc::CudaFunction* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned, dsc::CudaStream*,
                          void** params, void**) {
    if (fake_driver.refuses_launch) return CudaResult::invalid_value;
    fake_driver.grids.push_back(grid_x);
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    reinterpret_cast<const FakeKernel*>(function)->run(params, grid, block);
    return CudaResult::success;
  };
  return library;
}

}  // namespace support
