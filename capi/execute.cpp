#include "execute.hpp"

#include "base/guard.hpp"

namespace dsc {

dsc_work_t* give_out(Comm& comm, const std::shared_ptr<Work>& started) {
  dsc_work_t* work = nullptr;
  capture([&] { work = open_handle<dsc_work_t>(HandleKind::kWork, started); },
          [&](dsc_result_t code, const char* text) {
            comm.abort();
            capture([&] { started->wait(Deadline::never()); }, [](dsc_result_t, const char*) {});
            throw Error(code, text);
          });
  return work;
}

void check_work_of_batch(const Comm& comm, dsc_work_t** work) {
  if (comm.coalesced && work)
    fail(DSC_ERR_INVALID_ARG,
         "work is not NULL, expected NULL in a batch: dsc_batch_end() gives the work of the batch");
}

void execute(Comm& comm, Call& call, void* stream, dsc_work_t** work) {
  check_work_of_batch(comm, work);
  call.stream = stream;
  if (comm.coalesced) {
    comm.coalesced->push_back(call);
    return;
  }
  if (!work) {
    comm.run(call);
    return;
  }
  *work = give_out(comm, comm.start(call));
}

}  // namespace dsc
