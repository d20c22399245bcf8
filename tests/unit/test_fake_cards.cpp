// The GPUs of the fake driver: how they are identified, and which of them a process sees.
#include <array>
#include <set>

#include "fake_gpu_support.hpp"

using namespace fake_test;

namespace {

const Variables kFive = {{"FAKE_CUDA_DEVICES", "5"}};

using Uuid = std::array<unsigned char, sizeof(dsc::CudaUuid)>;

Uuid uuid_of(CudaDevice device) {
  dsc::CudaUuid uuid;
  CHECK_CUDA(cuDeviceGetUuid_v2(&uuid, device));
  Uuid bytes;
  std::memcpy(bytes.data(), &uuid, sizeof uuid);
  return bytes;
}

std::string text_of(const Uuid& uuid) {
  char text[50];
  const auto number = [&](size_t at, size_t bytes) {
    unsigned long long value = 0;
    for (size_t i = at; i < at + bytes; ++i) value = value << 8 | uuid[i];
    return value;
  };
  std::snprintf(text, sizeof text, "GPU-%08llx-%04llx-%04llx-%04llx-%012llx", number(0, 4), number(4, 2),
                number(6, 2), number(8, 2), number(10, 6));
  return text;
}

constexpr int kCards = 5;

std::vector<Uuid> uuids_of(const Variables& variables) {
  std::vector<Uuid> uuids(kCards);
  int to_parent[2];
  assert_int_equal(::pipe(to_parent), 0);
  in_child(variables, [&] {
    int count = 0;
    CHECK_CUDA(cuInit(0));
    CHECK_CUDA(cuDeviceGetCount(&count));
    for (int device = 0; device < count; ++device) {
      const Uuid uuid = uuid_of(device);
      CHECK(::write(to_parent[1], uuid.data(), uuid.size()) == static_cast<ssize_t>(uuid.size()));
    }
  });
  ::close(to_parent[1]);
  const ssize_t bytes = ::read(to_parent[0], uuids.data(), uuids.size() * sizeof(Uuid));
  ::close(to_parent[0]);
  assert_true(bytes >= 0);
  uuids.resize(static_cast<size_t>(bytes) / sizeof(Uuid));
  return uuids;
}

void a_card_has_one_uuid_in_all_processes(void**) {
  const std::vector<Uuid> all = uuids_of(kFive);
  assert_int_equal(all.size(), kCards);
  assert_int_equal(std::set<Uuid>(all.begin(), all.end()).size(), kCards);
  assert_true(all == uuids_of(kFive));
  in_child({}, [] {
    dsc::CudaUuid uuid;
    CHECK(cuDeviceGetUuid_v2(&uuid, 0) == CudaResult::not_initialized);
    CHECK_CUDA(cuInit(0));
    CHECK(cuDeviceGetUuid_v2(&uuid, 2) == CudaResult::invalid_device);
    CHECK(cuDeviceGetUuid_v2(nullptr, 0) == CudaResult::invalid_value);
  });
}

void expect_cards(const std::string& visible, const std::vector<int>& cards) {
  const std::vector<Uuid> all = uuids_of(kFive);
  std::vector<Uuid> expected;
  for (const int card : cards) expected.push_back(all[static_cast<size_t>(card)]);
  const Variables variables{{"FAKE_CUDA_DEVICES", "5"}, {"CUDA_VISIBLE_DEVICES", visible}};
  if (!cards.empty()) {
    assert_true(uuids_of(variables) == expected);
    return;
  }
  in_child(variables, [] {
    int count = 0;
    for (int i = 0; i < 2; ++i) CHECK(cuInit(0) == CudaResult::no_device);
    CHECK(cuDeviceGetCount(&count) == CudaResult::not_initialized);
  });
}

void visible_devices_are_chosen_by_number(void**) {
  expect_cards("3,0,4", {3, 0, 4});
  expect_cards(" 1, 2", {1, 2});
  expect_cards("2gpu,1", {2, 1});
  expect_cards("1,5,2", {1});
  expect_cards("1,-1,2", {1});
  expect_cards("1,,2", {1});
  for (const char* const nothing : {"", "-1", "5", "none", "1,1", "NoDevFiles"}) expect_cards(nothing, {});
}

void visible_devices_are_chosen_by_uuid(void**) {
  std::vector<std::string> texts;
  for (const Uuid& uuid : uuids_of(kFive)) texts.push_back(text_of(uuid));
  expect_cards(texts[3] + "," + texts[1], {3, 1});
  expect_cards(texts[2].substr(0, 14), {2});
  expect_cards(texts[2] + ",GPU-00000000-0000," + texts[1], {2});
  expect_cards(texts[2] + ",1", {2});
  expect_cards("1," + texts[2], {1});
  for (const std::string& nothing : {std::string("GPU-"), texts[1] + "0", texts[1] + "," + texts[1]})
    expect_cards(nothing, {});
}

void a_visible_device_is_the_same_card(void**) {
  in_child({{"FAKE_CUDA_DEVICES", "5"}, {"CUDA_VISIBLE_DEVICES", "3,0"}}, [] {
    const Device first(0), second(1);
    CudaDevice current = -1;
    char name[32];
    CHECK_CUDA(cuCtxGetDevice(&current));
    CHECK_CUDA(cuDeviceGetName(name, sizeof name, 0));
    CHECK(current == 1 && std::string(name) == "fake device 3");
    CHECK(cuDeviceGet(&current, 2) == CudaResult::invalid_device);
  });
}

// Two processes of one machine, each with its own numbering of the GPUs.
NcclResult as_two(const char* first, const char* second) {
  const NcclUniqueId id = fresh_id();
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank)
    children.push_back(start_child([&] {
      ::setenv("CUDA_VISIBLE_DEVICES", rank == 0 ? first : second, 1);
      be_rank(id, rank, 2, 0, [](const Rank& self) {
        const NcclResult state = settled(self.comm);
        CHECK_NCCL(ncclCommAbort(self.comm));
        if (state != NcclResult::success) ::_exit(static_cast<int>(state));
      });
    }));
  int seen[2];
  for (int rank = 0; rank < 2; ++rank) seen[rank] = WEXITSTATUS(status_of(children[rank]));
  assert_int_equal(seen[0], seen[1]);
  return static_cast<NcclResult>(seen[0]);
}

void nccl_wants_a_card_for_each_rank(void**) {
  assert_true(as_two("0", "1") == NcclResult::success);
  assert_true(as_two("1", "1,0") == NcclResult::invalid_usage);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_card_has_one_uuid_in_all_processes),
      cmocka_unit_test(visible_devices_are_chosen_by_number),
      cmocka_unit_test(visible_devices_are_chosen_by_uuid),
      cmocka_unit_test(a_visible_device_is_the_same_card),
      cmocka_unit_test(nccl_wants_a_card_for_each_rank),
  };
  return cmocka_run_group_tests_name("fake_cards", tests, nullptr, nullptr);
}
