#include "engine_nccl/nccl_engine.hpp"

#include <algorithm>

#include "engine_nccl/status_query.hpp"

namespace dsc {
namespace {

constexpr int kEndingsMs = 1000;

}  // namespace

NcclEngine::NcclEngine(NcclGroup group) : group_(std::move(group)) {
  GroupEngine& host = *group_.host;
  group_.local().bind_to_devices({host.id(), host.name(), host.state.global_ranks()});
  if (!group_.published) return;
  host.on_status_query([published = group_.published](const std::string& question) {
    return answer_of(*published, question);
  });
}

// If the driver reports an error, the communicator fails, because other ranks wait for this call.
int NcclEngine::device_of(const Call& call, const void* buffer) {
  int number = kHostMemory;
  capture([&] { number = device_of_memory(group_.device(), buffer); },
          [&](const Error& error) {
            failures_.fail_operation(call, group_.published ? group_.latest_call() + 1 : 0, error);
          });
  return number;
}

bool NcclEngine::takes(const Call& call) {
  const int own = group_.device().number();
  const void* const buffers[] = {call.send, call.recv == call.send ? nullptr : call.recv};
  int known = 0, on_device = 0;
  for (const void* buffer : buffers) {
    if (!buffer) continue;
    ++known;
    const int number = device_of(call, buffer);
    if (number == kHostMemory) continue;
    ++on_device;
    if (number != own)
      fail(DSC_ERR_INVALID_ARG, "%s is in memory of device %d, but this world is bound to device %d",
           buffer == call.send ? "send" : "recv", number, own);
  }
  if (known == 0) return call.stream != nullptr;
  if (on_device != 0 && on_device != known)
    fail(DSC_ERR_INVALID_ARG, "send is in %s and recv is in %s, expected the same kind of memory",
         device_of(call, call.send) == kHostMemory ? "host memory" : "device memory",
         device_of(call, call.recv) == kHostMemory ? "host memory" : "device memory");
  return on_device != 0;
}

void NcclEngine::note_host_call(const Call& call) {
  if (!group_.published || is_message(call.kind) || group_.host->revoked()) return;
  if (const auto difference = group_.published->publish(call, false))
    failures_.refuse_difference(call, group_.latest_call(), *difference, nullptr);
}

bool NcclEngine::deregister_window(NcclWindow* window) noexcept {
  if (ending_.begun() || ending_.finalized()) return false;
  const NcclFunctions& nccl = group_.world.nccl.library->functions;
  return call_out([&] {
    group_.communicator->enqueue([&](NcclComm* comm) { nccl.comm_window_deregister(comm, window); },
                                 ending_.wait_limits(0));
  });
}

bool NcclEngine::has_running() noexcept {
  return !ending_.finalized() && !group_.host->state.is_closed() && works_.any_running();
}

// An error here fails the group, because the other ranks would wait for this rank. Operations of groups that
// this rank left earlier may still run. The end of the world waits for them, because the process may be about
// to exit.
void NcclEngine::finalize() {
  Call call;
  call.kind = OpKind::kFinalize;
  capture(
      [&] {
        const NcclWait limits = ending_.wait_limits(0);
        works_.drain(DeviceWorks::Drain::kAll, limits.deadline);
        const auto all = links_.communicators();
        for (const auto& communicator : all) communicator->begin_finalize();
        for (const auto& communicator : all) communicator->end_finalize(limits);
        ending_.set_finalized();
      },
      [&](const Error& error) { failures_.fail_operation(call, group_.latest_call(), error); });
  works_.clear();
  if (group_.host->id() == kWorldId)
    NcclEnding::await_all(Deadline::after_ms(std::min(group_.host->timeout_ms() / 2, kEndingsMs)));
}

// Works complete once the communicators have ended.
void NcclEngine::give_up() noexcept {
  if (!ending_.begun()) works_.complete_ended();
  if (!ending_.begin()) return;
  works_.record_uncalled();
  const auto self = weak_from_this().lock();
  if (!self) return;
  NcclEnding::run_beside([self] {
    call_out([&] {
      self->ending_.end(self->links_.communicators());
      self->works_.await_kernels();
    });
    self->ending_.set_ended();
    self->works_.record_uncalled();
  });
}

}  // namespace dsc
