// Temporary memory that one call after another borrows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "comm/scratch.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using Memory = std::shared_ptr<std::byte>;

// Takes memory of any size and writes all of it.
Memory taken(dsc::Scratch& scratch, size_t bytes) {
  Memory memory = scratch.take(bytes);
  assert_non_null(memory.get());
  std::memset(memory.get(), 0x5a, bytes);
  return memory;
}

void later_calls_get_the_same_memory(void**) {
  const auto scratch = std::make_shared<dsc::Scratch>();
  assert_null(scratch->take(0).get());
  for (const size_t bytes : {size_t{2}, size_t{1000}, size_t{5} << 20}) {
    const std::byte* const first = taken(*scratch, bytes).get();
    for (int i = 0; i < 3; ++i) assert_ptr_equal(taken(*scratch, bytes).get(), first);
    assert_ptr_equal(taken(*scratch, bytes / 2).get(), first);
  }
}

void what_is_in_use_is_not_given_again(void**) {
  const auto scratch = std::make_shared<dsc::Scratch>();
  std::vector<Memory> all;
  std::set<const std::byte*> different;
  for (size_t i = 0; i < 9; ++i) different.insert(all.emplace_back(taken(*scratch, 1 + 1000 * i)).get());
  assert_int_equal(different.size(), all.size());
}

// The largest blocks are kept, and the smallest block that is large enough is handed out.
void a_few_blocks_are_kept(void**) {
  const auto scratch = std::make_shared<dsc::Scratch>();
  std::vector<Memory> all;
  for (size_t i = 1; i <= 9; ++i) all.push_back(taken(*scratch, 1000 * i));
  std::vector<const std::byte*> kept;
  for (size_t i = 5; i < 9; ++i) kept.push_back(all[i].get());
  all.clear();
  for (size_t i = 0; i < 4; ++i) assert_ptr_equal(all.emplace_back(taken(*scratch, 10)).get(), kept[i]);
}

void memory_outlives_its_communicator(void**) {
  auto scratch = std::make_shared<dsc::Scratch>();
  const Memory memory = taken(*scratch, 100);
  scratch.reset();
  std::memset(memory.get(), 1, 100);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(later_calls_get_the_same_memory),
      cmocka_unit_test(what_is_in_use_is_not_given_again),
      cmocka_unit_test(a_few_blocks_are_kept),
      cmocka_unit_test(memory_outlives_its_communicator),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
