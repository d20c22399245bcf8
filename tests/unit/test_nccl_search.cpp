// Where a library is searched for, and in which order. The loader and the folders are made up by the test.
#include "device/search.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "nccl_support.hpp"

using namespace dsc;
using namespace dsc::test;

namespace {

constexpr WantedLibrary kWanted{.name = "NCCL",
                                .file = "libnccl.so.2",
                                .option = "nccl.library",
                                .variable = "DSC_NCCL_LIBRARY",
                                .only_one = "ncclGetVersion",
                                .wheel_folder = "nvidia/nccl/lib"};

// A simulated file system with a loader. A path may be a link to another file. An opened file counts as
// loaded from then on.
struct MadeUpSystem {
  std::map<std::string, std::string> files;  // path or name -> the file that it leads to
  std::map<std::string, std::vector<std::string>> folders;
  std::set<std::string> broken;
  std::vector<std::string> loaded;
  std::vector<std::string> opened;  // all attempts in their order, including failed ones

  void* open(const std::string& name, OpenMode mode, std::string& why) {
    if (mode == OpenMode::load) opened.push_back(name);
    const auto found = files.find(name);
    if (found == files.end() || broken.contains(name)) {
      why = name + (found == files.end() ? ": no such file" : ": file too short");
      return nullptr;
    }
    const bool is_loaded = std::ranges::find(loaded, found->second) != loaded.end();
    if (!is_loaded && mode == OpenMode::only_if_loaded) return nullptr;
    return &files.find(found->second)->second;
  }

  Loader loader() {
    return {.loaded = [this](const char*) { return loaded; },
            .open = [this](const std::string& name, OpenMode mode,
                           std::string& why) { return open(name, mode, why); },
            .path_of = [](void* handle) { return *static_cast<std::string*>(handle); },
            .symbol = [](void*, const char*) -> void* { return nullptr; },
            .list = [this](const std::string& folder) { return folders[folder]; }};
  }

  void add(const std::string& path) { files[path] = path; }

  void add_wheel(const std::string& site_packages) {
    add(site_packages + "/nvidia/nccl/lib/libnccl.so.2");
    folders[site_packages + "/nvidia/nccl/lib"] = {"__init__.py", "libnccl.so.2"};
  }

  Outcome search(const Variables& variables, const std::string& path = {}) {
    return outcome_of([&] { return find_library(kWanted, path, environment_of(variables), loader()).path; });
  }
};

// A system that has a copy of the library in every place that is searched. No copy is loaded in the process.
MadeUpSystem full_system() {
  MadeUpSystem system;
  for (const char* path : {"/given.so", "/variable.so", "/conda/lib/libnccl.so.2", "/system/libnccl.so.2"})
    system.add(path);
  system.files["libnccl.so.2"] = "/system/libnccl.so.2";
  for (const char* path : {"", "relative", "/first", "/second", "/venv/lib/python3.9/site-packages",
                           "/conda/lib/python3.12/site-packages"})
    system.add_wheel(path);
  system.folders["/venv/lib/"] = {"libpython3.9.so", "pkgconfig", "python3.9"};
  system.folders["/conda/lib/"] = system.folders["/conda/lib"] = {"libnccl.so.2", "python3.12"};
  return system;
}

const Variables kAll = {{"DSC_NCCL_LIBRARY", "/variable.so"},
                        {"PYTHONPATH", ":relative::/none:/first:/second"},
                        {"VIRTUAL_ENV", "/venv"},
                        {"CONDA_PREFIX", "/conda"}};

Variables without(std::initializer_list<const char*> names) {
  Variables rest = kAll;
  for (const char* name : names) rest.erase(name);
  return rest;
}

void each_place_comes_before_the_next(void**) {
  MadeUpSystem system = full_system();
  CHECK_TEXT(system.search(kAll, "/given.so"), "/given.so");
  CHECK_TEXT(system.search(kAll), "/variable.so");
  CHECK_TEXT(system.search(without({"DSC_NCCL_LIBRARY"})), "/first/nvidia/nccl/lib/libnccl.so.2");
  CHECK_TEXT(system.search(without({"DSC_NCCL_LIBRARY", "PYTHONPATH"})),
             "/venv/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2");
  CHECK_TEXT(system.search(without({"DSC_NCCL_LIBRARY", "PYTHONPATH", "VIRTUAL_ENV"})),
             "/conda/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
  system.folders["/conda/lib/python3.12/site-packages/nvidia/nccl/lib"].clear();
  CHECK_TEXT(system.search({{"CONDA_PREFIX", "/conda"}}), "/conda/lib/libnccl.so.2");
  CHECK_TEXT(system.search({{"CONDA_PREFIX", "conda"}}), "/system/libnccl.so.2");
  CHECK_TEXT(system.search({}), "/system/libnccl.so.2");
  system.loaded = {"/conda/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"};
  CHECK_TEXT(system.search(without({"DSC_NCCL_LIBRARY"})), system.loaded[0]);
}

void nothing_is_opened_after_the_first_that_fits(void**) {
  MadeUpSystem system = full_system();
  system.search(without({"DSC_NCCL_LIBRARY"}));
  assert_true(system.opened == std::vector<std::string>{"/first/nvidia/nccl/lib/libnccl.so.2"});
  system.opened.clear();
  system.loaded = {"/second/nvidia/nccl/lib/libnccl.so.2"};
  system.search(without({"DSC_NCCL_LIBRARY"}));
  assert_true(system.opened.empty());
}

void a_named_path_is_the_only_one(void**) {
  MadeUpSystem system = full_system();
  CHECK_FAILURE(system.search(kAll, "/missing.so"), "/missing.so: no such file", "setting nccl.library");
  CHECK_FAILURE(system.search({{"DSC_NCCL_LIBRARY", "/gone.so"}}), "/gone.so: no such file",
                "DSC_NCCL_LIBRARY");
  assert_true(system.opened == (std::vector<std::string>{"/missing.so", "/gone.so"}));
}

void a_second_copy_is_refused(void**) {
  MadeUpSystem system = full_system();
  system.loaded = {"/first/nvidia/nccl/lib/libnccl.so.2"};
  CHECK_FAILURE(system.search(kAll), "DSC_NCCL_LIBRARY names /variable.so", system.loaded[0]);
  CHECK_FAILURE(system.search(kAll, "/given.so"), "setting nccl.library names /given.so", system.loaded[0]);
  system.loaded = {"/one.so", "/two.so"};
  CHECK_FAILURE(system.search({}), "two copies of NCCL, /one.so and /two.so");
  CHECK_FAILURE(system.search({}, "/one.so"), "two copies of NCCL, /one.so and /two.so");
  assert_true(system.opened.empty());
}

void another_name_of_the_loaded_copy_is_the_same(void**) {
  MadeUpSystem system = full_system();
  system.files["/link.so"] = "/given.so";
  system.loaded = {"/given.so"};
  CHECK_TEXT(system.search({{"DSC_NCCL_LIBRARY", "/link.so"}}), "/given.so");
}

void a_wheel_that_cannot_be_loaded_is_passed_over_and_named(void**) {
  MadeUpSystem system = full_system();
  system.broken = {"/first/nvidia/nccl/lib/libnccl.so.2"};
  const Variables python = {{"PYTHONPATH", "/first:/second"}};
  CHECK_TEXT(system.search(python), "/second/nvidia/nccl/lib/libnccl.so.2");
  system.broken.insert({"/second/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"});
  CHECK_FAILURE(
      system.search(python), "/first/nvidia/nccl/lib/libnccl.so.2: file too short",
      "; libnccl.so.2: file too short; set nccl.library or DSC_NCCL_LIBRARY to the path of the library");
}

void a_failure_says_where_was_looked(void**) {
  MadeUpSystem system;
  system.folders["/venv/lib/"] = {"python3.11"};
  CHECK_FAILURE(
      system.search({{"VIRTUAL_ENV", "/venv"}, {"PYTHONPATH", "/a:/b"}, {"CONDA_PREFIX", "/conda"}}),
      "libnccl.so.2: no such file; set nccl.library or DSC_NCCL_LIBRARY to the path of the library",
      "also not found in /a/nvidia/nccl/lib, /b/nvidia/nccl/lib, "
      "/venv/lib/python3.11/site-packages/nvidia/nccl/lib, /conda/lib");
  CHECK_FAILURE(system.search({{"PYTHONPATH", "relative"}}), "NCCL cannot be loaded: libnccl.so.2");
  assert_true(system.opened == (std::vector<std::string>{"libnccl.so.2", "libnccl.so.2"}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_place_comes_before_the_next),
      cmocka_unit_test(nothing_is_opened_after_the_first_that_fits),
      cmocka_unit_test(a_named_path_is_the_only_one),
      cmocka_unit_test(a_second_copy_is_refused),
      cmocka_unit_test(another_name_of_the_loaded_copy_is_the_same),
      cmocka_unit_test(a_wheel_that_cannot_be_loaded_is_passed_over_and_named),
      cmocka_unit_test(a_failure_says_where_was_looked),
  };
  return cmocka_run_group_tests_name("nccl_search", tests, nullptr, nullptr);
}
