// Defaults for communicators that are not bound to a device.
#include "comm/comm.hpp"

#include "base/error.hpp"
#include "comm/work_set.hpp"

namespace dsc {

const WorldInfo& Comm::world_info() const noexcept {
  static const WorldInfo unknown;
  return unknown;
}

void Comm::run_group(const std::vector<Call>& calls) { run_all(*this, calls); }

std::shared_ptr<Work> Comm::start_group(const std::vector<Call>& calls) { return start_all(*this, calls); }

void* Comm::allocate_on_device(size_t) {
  fail(DSC_ERR_UNSUPPORTED, "this communicator is bound to no device: see device of dsc_init_options_t");
}

std::shared_ptr<Comm> Comm::adopt_nccl(void*, const GroupOptions&) {
  fail(DSC_ERR_UNSUPPORTED, "this communicator is bound to no device: see device of dsc_init_options_t");
}

}  // namespace dsc
