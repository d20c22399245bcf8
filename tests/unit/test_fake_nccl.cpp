// The fake NCCL does as the real one does.
#include "fake_gpu_support.hpp"

using namespace fake_test;

namespace {

void sum(const Rank& self) {
  CHECK_NCCL(settled(self.comm));
  const size_t count = 100'000;
  const Array<float> in(count, static_cast<float>(self.rank + 1)), out(count);
  CHECK_NCCL(
      ncclAllReduce(in.data(), out.data(), count, NcclType::float32, NcclOp::sum, self.comm, self.stream));
  CHECK_CUDA(cuStreamSynchronize(self.stream));
  CHECK(out.holds(static_cast<float>(self.ranks * (self.ranks + 1) / 2)));
  for (int i = 0; i < 2000; ++i)
    CHECK_NCCL(
        ncclAllReduce(in.data(), out.data(), 4, NcclType::float32, NcclOp::sum, self.comm, self.stream));
  CHECK_CUDA(cuStreamSynchronize(self.stream));
  CHECK(ncclCommFinalize(self.comm) == NcclResult::in_progress);
  CHECK_NCCL(settled(self.comm));
  CHECK_NCCL(ncclCommDestroy(self.comm));
  CHECK(fake_gpu_misuses() == 0);
}

void threads_are_ranks(void**) {
  in_child(kShared, [] { as_threads(3, sum); });
}

void processes_are_ranks(void**) { as_processes(3, {}, sum); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(threads_are_ranks),
      cmocka_unit_test(processes_are_ranks),
  };
  return cmocka_run_group_tests_name("fake_nccl", tests, nullptr, nullptr);
}
