// Loads fake libraries, or checks the reason why one is refused. A library cannot be unloaded, so each case
// runs in a separate process.
#include "engine_nccl/nccl_library.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "device/cuda_library.hpp"
#include "nccl_support.hpp"

using namespace dsc;
using namespace dsc::test;

namespace {

// Runs the body in a child process with additional environment variables, and returns its outcome. The code
// is 1 if the child did not finish.
Outcome apart(const Variables& variables, const std::function<std::string()>& body) {
  int ends[2];
  assert_int_equal(::pipe(ends), 0);
  const pid_t child = ::fork();
  assert_true(child >= 0);
  if (child == 0) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    const Outcome outcome = outcome_of(body);
    const std::string text = std::to_string(outcome.code) + " " + outcome.text;
    const bool written = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  assert_int_equal(::waitpid(child, &status, 0), child);
  if (status != 0 || text.empty()) return {1, "the child ended with status " + std::to_string(status)};
  return {std::atoi(text.c_str()), text.substr(text.find(' ') + 1)};
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename(); }

// Describes the library as "NAME VERSION [FEATURE...] WARNING".
std::string shown(const NcclLibrary& nccl) {
  std::string text = file_name(nccl.path) + " " + nccl.version + " [";
  for (const char* feature : nccl.features)
    text += std::string(feature == nccl.features[0] ? "" : " ") + feature;
  return text + "] " + nccl.warning;
}

Outcome load(const Variables& variables, const Variables& asked = {}) {
  return apart(asked, [&] { return shown(load_nccl({}, environment_of(variables), process_loader())); });
}

Outcome load_path(const std::string& path) { return load({{"DSC_NCCL_LIBRARY", path}}); }

Outcome load_version(const char* version) {
  return load({{"DSC_NCCL_LIBRARY", FAKE_WHOLE}}, {{"FAKE_NCCL_VERSION", version}});
}

// Loads NCCL in a process that has already loaded these libraries, as a framework does.
Outcome load_beside(std::initializer_list<const char*> files, const Variables& variables) {
  return apart({}, [&] {
    for (const char* file : files)
      if (!::dlopen(file, RTLD_NOW | RTLD_LOCAL)) return std::string("not loaded: ") + ::dlerror();
    return shown(load_nccl({}, environment_of(variables), process_loader()));
  });
}

constexpr const char* kAllFeatures =
    "[config_init split scalable_init mem_alloc windows revoke shrink all_to_all gather scatter] ";

class Folder {
 public:
  Folder() { assert_non_null(::mkdtemp(path_.data())); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "dsc_nccl_XXXXXX";
};

void a_whole_library_has_all(void**) {
  CHECK_TEXT(load_path(FAKE_WHOLE), file_name(FAKE_WHOLE) + " 2.28.9 " + kAllFeatures);
  CHECK_TEXT(apart({},
                   [] {
                     const NcclLibrary nccl = load_nccl(FAKE_WHOLE, environment_of({}), process_loader());
                     return std::string(nccl.functions.get_error_string(NcclResult::success)) + ", " +
                            nccl.functions.get_last_error(nullptr);
                   }),
             "fake NCCL: no error, fake NCCL");
}

// Every function pointer points to the function of the same name.
void each_symbol_has_its_place(void**) {
  CHECK_TEXT(apart({},
                   [] {
                     const NcclLibrary nccl = load_nccl(FAKE_WHOLE, environment_of({}), process_loader());
                     void* places[sizeof(NcclFunctions) / sizeof(void*)];
                     std::memcpy(places, &nccl.functions, sizeof places);
                     std::string names;
                     for (void* place : places) {
                       Dl_info info{};
                       if (::dladdr(place, &info) && info.dli_sname)
                         names += std::string(info.dli_sname + 4) + " ";
                     }
                     return names;
                   }),
             "GetVersion GetErrorString GetLastError GetUniqueId CommInitRankConfig CommFinalize CommDestroy "
             "CommAbort CommGetAsyncError CommCount CommCuDevice CommUserRank GroupStart GroupEnd AllReduce "
             "Reduce Broadcast AllGather ReduceScatter Send Recv RedOpCreatePreMulSum RedOpDestroy CommSplit "
             "CommInitRankScalable MemAlloc MemFree CommWindowRegister CommWindowDeregister CommRevoke "
             "CommShrink AlltoAll Gather Scatter ");
}

void features_are_those_whose_symbols_are_there(void**) {
  CHECK_TEXT(load_path(FAKE_BARE), file_name(FAKE_BARE) + " 2.28.9 [config_init] ");
  CHECK_TEXT(load_path(FAKE_HALF), file_name(FAKE_HALF) +
                                       " 2.28.9 [config_init split scalable_init windows revoke shrink "
                                       "all_to_all gather scatter] ");
  CHECK_TEXT(apart({},
                   [] {
                     const NcclFunctions half =
                         load_nccl(FAKE_HALF, environment_of({}), process_loader()).functions;
                     return std::string(half.mem_alloc || half.mem_free ? "one of two" : "none of two");
                   }),
             "none of two");
}

void what_is_no_nccl_is_refused(void**) {
  CHECK_FAILURE(load_path(FAKE_LACKING), FAKE_LACKING, "has no ncclCommAbort; expected NCCL 2.18");
  CHECK_FAILURE(load_path(FAKE_OTHER), FAKE_OTHER, "has no ncclGetVersion; expected NCCL 2.18");
  CHECK_FAILURE(load_path("/nowhere/libnccl.so.2"), "DSC_NCCL_LIBRARY", "/nowhere/libnccl.so.2",
                "No such file");
  const Folder folder;
  CHECK_FAILURE(load_path(folder / "."), folder / ".", "Is a directory");
  const std::string text = folder / "libnccl.so.2";
  std::ofstream(text) << std::string(4096, 'x');
  CHECK_FAILURE(load_path(text), text, "invalid ELF header");
}

void versions_too_old_are_refused(void**) {
  CHECK_FAILURE(load_version("21210"), FAKE_WHOLE, "NCCL 2.12.10, expected 2.18 or newer");
  CHECK_FAILURE(load_version("2804"), "NCCL 2.8.4, expected 2.18 or newer");
  CHECK_FAILURE(load_version("21799"), "NCCL 2.17.99, expected 2.18 or newer");
  CHECK_FAILURE(load_version("-1"), "ncclGetVersion", "failed", "version -1");
  CHECK_TEXT(load_version("23007"), file_name(FAKE_WHOLE) + " 2.30.7 " + kAllFeatures);
}

void versions_known_to_be_broken_are_named(void**) {
  const auto warns = [](int number, const char* words) {
    return nccl_warning(number).find(words) != std::string::npos;
  };
  CHECK_TEXT(load_version("22803"),
             file_name(FAKE_WHOLE) + " 2.28.3 " + kAllFeatures +
                 "NCCL 2.28.3 has known bugs: it can crash after an abort (fixed in 2.28.9)");
  assert_true(warns(22808, "crash after an abort") && warns(22501, "abort can hang"));
  assert_true(warns(21800, "port scan") && warns(22702, "port scan") && warns(22501, "port scan"));
  for (const int sound : {22703, 22802, 22809, 23007}) assert_string_equal(nccl_warning(sound).c_str(), "");
}

void a_copy_in_the_process_is_the_one(void**) {
  const std::string whole = file_name(FAKE_WHOLE) + " 2.28.9 " + kAllFeatures;
  CHECK_TEXT(load_beside({FAKE_WHOLE}, {}), whole);
  CHECK_TEXT(load_beside({FAKE_FRAMEWORK}, {}), whole);
  CHECK_FAILURE(load_beside({FAKE_WHOLE}, {{"DSC_NCCL_LIBRARY", FAKE_BARE}}), FAKE_WHOLE, FAKE_BARE,
                "expected one");
  CHECK_FAILURE(load_beside({FAKE_FRAMEWORK, FAKE_BARE}, {}), FAKE_WHOLE, FAKE_BARE, "two copies");
  const Folder folder;
  const std::string link = folder / "link.so";
  std::filesystem::create_symlink(FAKE_WHOLE, link);
  CHECK_TEXT(load_beside({FAKE_WHOLE}, {{"DSC_NCCL_LIBRARY", link}}), whole);
}

void a_refused_copy_is_not_loaded(void**) {
  CHECK_TEXT(apart({},
                   [] {
                     ::dlopen(FAKE_WHOLE, RTLD_NOW | RTLD_LOCAL);
                     const Outcome refused = outcome_of(
                         [] { return load_nccl(FAKE_BARE, environment_of({}), process_loader()).path; });
                     const bool loaded = ::dlopen(FAKE_BARE, RTLD_NOW | RTLD_NOLOAD) != nullptr;
                     return std::string(result_name(refused.code)) + (loaded ? ", loaded" : ", not loaded");
                   }),
             "DSC_ERR_NO_BACKEND, not loaded");
}

void wheels_are_found(void**) {
  const Folder folder;
  const std::filesystem::path lib = folder / "lib/python3.11/site-packages/nvidia/nccl/lib";
  std::filesystem::create_directories(lib);
  std::filesystem::copy_file(FAKE_WHOLE, lib / "libnccl.so.2");
  const std::string found = std::string("libnccl.so.2 2.28.9 ") + kAllFeatures;
  CHECK_TEXT(load({{"VIRTUAL_ENV", folder / ""}}), found);
  CHECK_TEXT(load({{"CONDA_PREFIX", folder / "."}}), found);
  CHECK_TEXT(load({{"PYTHONPATH", "/nowhere:" + (folder / "lib/python3.11/site-packages")}}), found);
  CHECK_TEXT(
      apart({},
            [&] {
              return load_nccl({}, environment_of({{"VIRTUAL_ENV", folder / "."}}), process_loader()).path;
            }),
      (folder / "./lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"));
}

Outcome load_driver(const char* path, const Variables& asked) {
  return apart(asked, [path] {
    const CudaLibrary cuda = load_cuda({}, environment_of({{"DSC_CUDA_LIBRARY", path}}), process_loader());
    return file_name(cuda.path) + " " + cuda.version + ", " + std::to_string(cuda.devices) + " devices";
  });
}

void a_driver_says_what_it_has(void**) {
  CHECK_TEXT(load_driver(FAKE_CUDA, {}), file_name(FAKE_CUDA) + " 13.0, 2 devices");
  CHECK_TEXT(load_driver(FAKE_CUDA, {{"FAKE_CUDA_VERSION", "12000"}, {"FAKE_CUDA_DEVICES", "1"}}),
             file_name(FAKE_CUDA) + " 12.0, 1 devices");
}

void a_driver_that_is_of_no_use_says_why(void**) {
  CHECK_FAILURE(load_driver(FAKE_CUDA, {{"FAKE_CUDA_INIT", "101"}}), "cuInit of ", FAKE_CUDA,
                "failed: FAKE_CUDA_ERROR, the fake driver says so");
  CHECK_FAILURE(load_driver(FAKE_CUDA, {{"FAKE_CUDA_INIT", "34"}}), "failed: error 34");
  CHECK_FAILURE(load_driver(FAKE_CUDA, {{"FAKE_CUDA_VERSION", "11080"}}),
                "CUDA 11.8, expected 12.0 or newer");
  CHECK_FAILURE(load_driver(FAKE_CUDA, {{"FAKE_CUDA_DEVICES", "0"}}), "shows no device");
  CHECK_FAILURE(load_driver(FAKE_CUDA, {{"CUDA_VISIBLE_DEVICES", ""}}),
                "CUDA_VISIBLE_DEVICES may hide the devices");
  CHECK_FAILURE(load_driver(FAKE_WHOLE, {}), FAKE_WHOLE, "has no cuInit; expected a driver");
  CHECK_FAILURE(load_driver("/nowhere/libcuda.so.1", {}), "/nowhere/libcuda.so.1", "DSC_CUDA_LIBRARY");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_whole_library_has_all),
      cmocka_unit_test(each_symbol_has_its_place),
      cmocka_unit_test(features_are_those_whose_symbols_are_there),
      cmocka_unit_test(what_is_no_nccl_is_refused),
      cmocka_unit_test(versions_too_old_are_refused),
      cmocka_unit_test(versions_known_to_be_broken_are_named),
      cmocka_unit_test(a_copy_in_the_process_is_the_one),
      cmocka_unit_test(a_refused_copy_is_not_loaded),
      cmocka_unit_test(wheels_are_found),
      cmocka_unit_test(a_driver_says_what_it_has),
      cmocka_unit_test(a_driver_that_is_of_no_use_says_why),
  };
  return cmocka_run_group_tests_name("nccl_library", tests, nullptr, nullptr);
}
