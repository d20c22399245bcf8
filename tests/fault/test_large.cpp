// Tests more than 2^31 elements without needing that much memory. The middle of every buffer is one small
// piece that is mapped again and again. The beginning and the end have separate memory, so that what is
// written there can be checked.
#include <setjmp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "crew.hpp"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kSize = 2;
constexpr size_t kPiece = size_t{2} << 20;
constexpr size_t kCount = (size_t{1} << 31) + 3;
constexpr uint8_t kUnwritten = 0x5a;

// A buffer of `bytes` bytes whose middle repeats.
class Tiled {
 public:
  explicit Tiled(size_t bytes) : bytes_(bytes), pieces_(bytes / kPiece + 1) {
    for (int& fd : fds_) {
      fd = memfd_create("tile", MFD_CLOEXEC);
      if (fd < 0 || ftruncate(fd, kPiece) != 0) return;
    }
    void* room =
        mmap(nullptr, pieces_ * kPiece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return;
    base_ = static_cast<uint8_t*>(room);
    for (size_t piece = 0; piece < pieces_; ++piece)
      if (mmap(base_ + piece * kPiece, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               fds_[section(piece * kPiece)], 0) == MAP_FAILED)
        return;
    made_ = true;
    for (const size_t at : {size_t{0}, kPiece, (pieces_ - 1) * kPiece})
      std::memset(base_ + at, kUnwritten, kPiece);
  }
  ~Tiled() {
    if (base_) munmap(base_, pieces_ * kPiece);
    for (const int fd : fds_) close(fd);
  }
  Tiled(const Tiled&) = delete;
  Tiled& operator=(const Tiled&) = delete;

  bool made() const { return made_; }
  uint8_t* data() const { return base_; }
  // Returns the part of the buffer that contains the byte: 0 for the beginning, 1 for the middle, 2 for the
  // end.
  size_t section(size_t index) const { return index < kPiece ? 0 : index / kPiece + 1 < pieces_ ? 1 : 2; }
  uint8_t value(int rank, size_t index) const {
    const size_t within = index % kPiece;
    return static_cast<uint8_t>(within * 7 + (within >> 9) + section(index) * 11 +
                                static_cast<size_t>(rank) * 29);
  }
  void fill(int rank) {
    for (const size_t at : {size_t{0}, kPiece, (pieces_ - 1) * kPiece})
      for (size_t i = at; i < at + kPiece; ++i) base_[i] = value(rank, i);
  }
  // Returns the index of the first wrong byte of [first, end), or `end`.
  template <typename Expected>
  size_t first_wrong(size_t first, size_t end, Expected expected) const {
    while (first < end && base_[first] == expected(first)) ++first;
    return first;
  }
  // Checks that the memory behind the last byte is unchanged.
  bool guard_holds() const {
    return first_wrong(bytes_, pieces_ * kPiece, [](size_t) { return kUnwritten; }) == pieces_ * kPiece;
  }
  size_t tail() const { return (pieces_ - 1) * kPiece; }
  size_t bytes() const { return bytes_; }

 private:
  const size_t bytes_;
  const size_t pieces_;
  int fds_[3] = {-1, -1, -1};
  uint8_t* base_ = nullptr;
  bool made_ = false;
};

// Checks both ends of the output, and the middle if the output repeats there as the input does.
template <typename Expected>
bool check(Rank& rank, const char* name, const Tiled& out, bool repeats, Expected expected) {
  const size_t ends[][2] = {{0, repeats ? 2 * kPiece : kPiece}, {out.tail(), out.bytes()}};
  for (const auto& [first, end] : ends) {
    const size_t wrong = out.first_wrong(first, end, expected);
    if (wrong != end)
      rank.note("%s: byte %zu is %02x, expected %02x", name, wrong, out.data()[wrong],
                static_cast<unsigned>(expected(wrong)));
  }
  if (!out.guard_holds()) rank.note("%s: something was written behind the end", name);
  return rank.report.note[0] == 0;
}

bool ran(Rank& rank, const char* name, dsc_result_t result) {
  if (result != DSC_OK) rank.note("%s: %s", name, dsc_last_error_message());
  return result == DSC_OK;
}

bool check_reduced(Rank& rank) {
  Tiled in(kCount);
  Tiled out(kCount);
  if (!in.made() || !out.made()) return false;
  in.fill(rank.rank);
  const dsc_result_t result =
      dsc_all_reduce(rank.world, in.data(), out.data(), kCount, DSC_DTYPE_U8, DSC_OP_SUM, nullptr, nullptr);
  return ran(rank, "all_reduce", result) && check(rank, "all_reduce", out, true, [&](size_t i) {
           return static_cast<uint8_t>(in.value(0, i) + in.value(1, i));
         });
}

bool check_moved(Rank& rank, bool message) {
  Tiled in(kCount);
  Tiled out(kCount);
  if (!in.made() || !out.made()) return false;
  in.fill(rank.rank);
  const char* name = message ? "message" : "broadcast";
  dsc_result_t result = DSC_OK;
  if (!message)
    result = dsc_broadcast(rank.world, in.data(), out.data(), kCount, DSC_DTYPE_U8, 1, nullptr, nullptr);
  else if (rank.rank == 1)
    result = dsc_send(rank.world, in.data(), kCount, DSC_DTYPE_U8, 0, nullptr, nullptr);
  else
    result = dsc_recv(rank.world, out.data(), kCount, DSC_DTYPE_U8, 1, nullptr, nullptr);
  if (!ran(rank, name, result)) return false;
  return (message && rank.rank == 1) ||
         check(rank, name, out, true, [&](size_t i) { return in.value(1, i); });
}

// Checks the blocks of both ranks. Their positions within the pieces differ from those in the input.
bool check_gathered(Rank& rank) {
  Tiled in(kCount);
  Tiled out(kCount * kSize);
  if (!in.made() || !out.made()) return false;
  in.fill(rank.rank);
  const dsc_result_t result =
      dsc_all_gather(rank.world, in.data(), out.data(), kCount, DSC_DTYPE_U8, nullptr, nullptr);
  return ran(rank, "all_gather", result) && check(rank, "all_gather", out, false, [&](size_t i) {
           return in.value(static_cast<int>(i / kCount), i % kCount);
         });
}

bool check_scattered(Rank& rank) {
  Tiled in(kCount * kSize);
  Tiled out(kCount);
  if (!in.made() || !out.made()) return false;
  in.fill(rank.rank);
  const dsc_result_t result = dsc_reduce_scatter(rank.world, in.data(), out.data(), kCount, DSC_DTYPE_U8,
                                                 DSC_OP_SUM, nullptr, nullptr);
  const size_t first = static_cast<size_t>(rank.rank) * kCount;
  return ran(rank, "reduce_scatter", result) && check(rank, "reduce_scatter", out, false, [&](size_t i) {
           return static_cast<uint8_t>(in.value(0, first + i) + in.value(1, first + i));
         });
}

bool check_exchanged(Rank& rank) {
  Tiled in(kCount * kSize);
  Tiled out(kCount * kSize);
  if (!in.made() || !out.made()) return false;
  in.fill(rank.rank);
  const dsc_result_t result =
      dsc_all_to_all(rank.world, in.data(), out.data(), kCount, DSC_DTYPE_U8, nullptr, nullptr);
  const size_t first = static_cast<size_t>(rank.rank) * kCount;
  return ran(rank, "all_to_all", result) && check(rank, "all_to_all", out, false, [&](size_t i) {
           return in.value(static_cast<int>(i / kCount), first + i % kCount);
         });
}

void expect_all_right(const std::function<bool(Rank&)>& operation) {
  Crew crew(kSize, [&](Rank& rank) {
    dsc_init_options_t options = rank.options();
    options.timeout_ms = 100'000;
    if (!rank.join(options)) return 2;
    if (!operation(rank)) return 3;
    return dsc_finalize() == DSC_OK ? 0 : 4;
  });
  const bool ended = crew.await_end_of_all(120'000);
  for (int rank = 0; rank < kSize; ++rank)
    if (!ended || crew.status(rank) != 0) fail_msg("%s", crew.describe().c_str());
}

void test_all_reduce(void**) { expect_all_right(check_reduced); }

void test_message(void**) {
  expect_all_right([](Rank& rank) { return check_moved(rank, true); });
}

void test_all_gather(void**) { expect_all_right(check_gathered); }

void test_others(void**) {
  if (!at_length()) return;
  expect_all_right([](Rank& rank) { return check_moved(rank, false); });
  expect_all_right(check_scattered);
  expect_all_right(check_exchanged);
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_all_reduce, end_everything),
      cmocka_unit_test_teardown(test_message, end_everything),
      cmocka_unit_test_teardown(test_all_gather, end_everything),
      cmocka_unit_test_teardown(test_others, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
