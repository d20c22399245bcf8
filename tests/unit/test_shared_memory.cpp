// Shared memory segments: no holder can shrink or grow one, and a segment that could still be changed is
// refused.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/guard.hpp"
#include "control/segments.hpp"
#include "control/shared_memory.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

constexpr size_t kBytes = size_t{64} << 10;

// Returns the result of mapping the segment, and the message.
dsc_result_t map(int fd, size_t bytes, std::string& text) {
  dsc_result_t result = DSC_OK;
  dsc::capture([&] { dsc::map_segment(fd, bytes, dsc::OnFork::kGone)->data()[bytes - 1] = std::byte{1}; },
               [&](dsc_result_t code, const char* words) { result = code, text = words; });
  return result;
}

dsc::UniqueFd foreign_segment(size_t bytes, int seals) {
  dsc::UniqueFd fd(memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  assert_true(static_cast<bool>(fd));
  assert_int_equal(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) assert_int_equal(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

// A peer has the same descriptor: it may write to the segment, but not change its size.
void nobody_changes_its_size(void**) {
  const dsc::UniqueFd fd = dsc::create_segment("test", kBytes, 1);
  for (const size_t bytes : {size_t{0}, kBytes - 1, kBytes + 1}) {
    assert_int_equal(ftruncate(fd.get(), static_cast<off_t>(bytes)), -1);
    assert_int_equal(errno, EPERM);
  }
  assert_int_equal(posix_fallocate(fd.get(), 0, 2 * kBytes), EPERM);
  assert_int_equal(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  assert_int_equal(errno, EPERM);
  struct stat status {};
  assert_int_equal(fstat(fd.get(), &status), 0);
  assert_int_equal(status.st_size, kBytes);
  assert_int_equal(status.st_mode & 0777, 0600);
  std::string text;
  assert_int_equal(map(fd.get(), kBytes, text), DSC_OK);
}

void one_that_may_change_is_refused(void**) {
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW, kAll | F_SEAL_WRITE}) {
    std::string text;
    assert_int_equal(map(foreign_segment(kBytes, seals).get(), kBytes, text), DSC_ERR_PROTOCOL);
    assert_non_null(std::strstr(text.c_str(), "seals"));
  }
  std::string text;
  assert_int_equal(map(foreign_segment(kBytes, kAll).get(), kBytes, text), DSC_OK);
}

// Access beyond the end of the segment would raise SIGBUS.
void one_that_is_too_small_is_refused(void**) {
  const dsc::UniqueFd small = dsc::create_segment("test", kBytes / 2, 1);
  std::string text;
  assert_int_equal(map(small.get(), kBytes, text), DSC_ERR_PROTOCOL);
  assert_non_null(std::strstr(text.c_str(), "32768 bytes, expected 65536"));
}

// Ranks 0 and 2 of three have an allocation. Memory stays mapped until both have freed their parts, or a
// process has ended.
void an_allocation_ends_when_all_have_freed_it(void**) {
  const auto nobody_ended = [](int) { return false; };
  const auto rank_2_ended = [](int rank) { return rank == 2; };
  for (const size_t bytes : {size_t{1}, kBytes, kBytes + 1}) {
    dsc::Segments first(7, bytes, 3, 0), last(7, bytes, 3, 2);
    last.map(0, first.create(2).get());
    first.map(2, last.create(2).get());
    assert_true(first.holds(2, 0, bytes) && first.holds(2, bytes, 0));
    assert_false(first.holds(2, 0, bytes + 1) || first.holds(2, bytes + 1, 0) || first.holds(2, 1, SIZE_MAX));
    assert_false(first.holds(1, 0, 1) || first.holds(3, 0, 1) || first.has_part(1));
    std::memset(last.own_base(), 0xff, bytes);  // does not look as if the rank had freed it
    assert_false(first.all_have_left(rank_2_ended));
    first.leave();
    assert_false(first.has_part(0) || first.all_have_left(nobody_ended));
    assert_true(first.all_have_left(rank_2_ended));
    assert_true(first.base(2)[bytes - 1] == std::byte{0xff});
    assert_false(last.all_have_left(nobody_ended));
    last.leave();
    assert_true(first.all_have_left(nobody_ended) && last.all_have_left(nobody_ended));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nobody_changes_its_size),
      cmocka_unit_test(one_that_may_change_is_refused),
      cmocka_unit_test(one_that_is_too_small_is_refused),
      cmocka_unit_test(an_allocation_ends_when_all_have_freed_it),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
