// FAKE_NCCL_FAULT is a list of WHAT[@RANK][#N], separated by ';'. Without RANK the fault occurs on all ranks,
// without #N it occurs every time. RANK is the rank in the communicator that ncclCommInitRank made, and
// applies to communicators made from it too. N counts from 1 in each process: operations are counted over all
// communicators of the rank, other things are counted separately.
//
//   init_hang, init_fail, init_slow     ncclCommInitRankConfig and -Scalable
//   split_hang, split_fail, split_slow  ncclCommSplit and -Shrink
//   finalize_hang, finalize_fail, finalize_slow
//   abort_hang                          never returns
//   abort_slow                          takes 300 ms, like every "slow" fault
//   remote_error    an async error at this operation, which also hangs
//   op_hang         the operation never completes on its stream
//   in_progress     the call of this operation stays in progress forever; nothing is put on the stream
//   invalid_usage   the call of this operation returns this error immediately
//
// ncclCommAbort ends all hangs. ncclCommRevoke ends those on a stream, too. FAKE_NCCL_SLOW_MS is how long a
// nonblocking communicator stays in progress after the call of an operation.
#include <cstdlib>
#include <thread>

#include "nccl_comm.hpp"

namespace fake_gpu {
namespace {

struct Fault {
  std::string what;
  int rank = -1, number = -1;
};

Fault parse(const std::string& text) {
  const size_t at = text.find('@'), hash = text.find('#');
  Fault fault{.what = text.substr(0, std::min(at, hash))};
  if (at != std::string::npos) fault.rank = std::atoi(&text[at + 1]);
  if (hash != std::string::npos) fault.number = std::atoi(&text[hash + 1]);
  return fault;
}

std::vector<Fault> parse_all() {
  const char* const text = std::getenv("FAKE_NCCL_FAULT");
  std::vector<Fault> faults;
  for (std::string rest = text ? text : ""; !rest.empty();) {
    const size_t end = rest.find(';');
    faults.push_back(parse(rest.substr(0, end)));
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return faults;
}

constexpr std::chrono::milliseconds kSlow{300};

}  // namespace

bool strikes(const std::string& what, int world_rank, int number) {
  static const auto* const faults = new std::vector<Fault>(parse_all());
  for (const Fault& fault : *faults)
    if (fault.what == what && (fault.rank < 0 || fault.rank == world_rank) &&
        (fault.number < 0 || fault.number == number))
      return true;
  return false;
}

int count(const std::string& what, int world_rank) {
  static std::mutex lock;
  static auto* const counts = new std::map<std::pair<std::string, int>, int>;
  const std::lock_guard guard(lock);
  return ++(*counts)[{what, world_rank}];
}

NcclResult fault_before(Comm& comm, const std::string& what) {
  const int number = count(what, comm.world_rank);
  if (strikes(what + "_slow", comm.world_rank, number)) std::this_thread::sleep_for(kSlow);
  if (strikes(what + "_hang", comm.world_rank, number)) {
    hang(comm, [&] { return ended(comm); });
    return NcclResult::internal_error;
  }
  if (strikes(what + "_fail", comm.world_rank, number))
    return failed(comm, NcclResult::system_error, "fake NCCL: scripted failure of " + what);
  return NcclResult::success;
}

}  // namespace fake_gpu
