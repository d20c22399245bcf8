#include "engine_nccl/report.hpp"

#include "base/environment.hpp"
#include "device/cuda_library.hpp"
#include "engine_nccl/nccl_library.hpp"

namespace dsc {

void look_for_nccl(LibraryReport& report) {
  const NcclLibrary nccl = load_nccl({}, process_environment(), process_loader());
  report.path = nccl.path;
  report.version = nccl.version;
  report.warning = nccl.warning;
  report.features = nccl.features;
  load_cuda({}, process_environment(), process_loader());
}

}  // namespace dsc
