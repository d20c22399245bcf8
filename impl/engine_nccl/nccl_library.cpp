#include "engine_nccl/nccl_library.hpp"

#include "device/symbols.hpp"

namespace dsc {
namespace {

constexpr int kLeastNccl = 21800;  // the first version that splits communicators
constexpr WantedLibrary kNccl{.name = "NCCL",
                              .file = "libnccl.so.2",
                              .option = "nccl.library",
                              .variable = "DSC_NCCL_LIBRARY",
                              .only_one = "ncclGetVersion",
                              .wheel_folder = "nvidia/nccl/lib"};

struct BrokenVersions {
  int first, last;
  const char* what;
};

constexpr BrokenVersions kBroken[] = {
    {0, 22702, "a port scan can make its start-up fail (fixed in 2.27.3)"},
    {22501, 22501, "an abort can hang (fixed in 2.26.2)"},
    {22803, 22808, "it can crash after an abort (fixed in 2.28.9)"},
};

void find_needed(const Symbols& symbols, NcclFunctions& nccl) {
  symbols.need("ncclGetErrorString", nccl.get_error_string);
  symbols.need("ncclGetLastError", nccl.get_last_error);
  symbols.need("ncclGetUniqueId", nccl.get_unique_id);
  symbols.need("ncclCommInitRankConfig", nccl.comm_init_rank_config);
  symbols.need("ncclCommFinalize", nccl.comm_finalize);
  symbols.need("ncclCommDestroy", nccl.comm_destroy);
  symbols.need("ncclCommAbort", nccl.comm_abort);
  symbols.need("ncclCommGetAsyncError", nccl.comm_get_async_error);
  symbols.need("ncclCommCount", nccl.comm_count);
  symbols.need("ncclCommCuDevice", nccl.comm_cu_device);
  symbols.need("ncclCommUserRank", nccl.comm_user_rank);
  symbols.need("ncclGroupStart", nccl.group_start);
  symbols.need("ncclGroupEnd", nccl.group_end);
  symbols.need("ncclAllReduce", nccl.all_reduce);
  symbols.need("ncclReduce", nccl.reduce);
  symbols.need("ncclBroadcast", nccl.broadcast);
  symbols.need("ncclAllGather", nccl.all_gather);
  symbols.need("ncclReduceScatter", nccl.reduce_scatter);
  symbols.need("ncclSend", nccl.send);
  symbols.need("ncclRecv", nccl.recv);
  symbols.need("ncclRedOpCreatePreMulSum", nccl.red_op_create_pre_mul_sum);
  symbols.need("ncclRedOpDestroy", nccl.red_op_destroy);
}

// Features are detected by their symbols, because libraries of other vendors have other version numbers.
std::vector<const char*> find_features(const Symbols& symbols, NcclFunctions& nccl) {
  std::vector<const char*> features = {"config_init"};  // every supported version has it
  const auto one = [&](const char* feature, const char* name, auto*& function) {
    if (symbols.has(name, function)) features.push_back(feature);
  };
  const auto pair = [&](const char* feature, const char* begin, auto*& begins, const char* end, auto*& ends) {
    if (symbols.has(begin, begins) && symbols.has(end, ends))
      features.push_back(feature);
    else
      begins = nullptr;
  };
  one("split", "ncclCommSplit", nccl.comm_split);
  one("scalable_init", "ncclCommInitRankScalable", nccl.comm_init_rank_scalable);
  pair("mem_alloc", "ncclMemAlloc", nccl.mem_alloc, "ncclMemFree", nccl.mem_free);
  pair("windows", "ncclCommWindowRegister", nccl.comm_window_register, "ncclCommWindowDeregister",
       nccl.comm_window_deregister);
  one("revoke", "ncclCommRevoke", nccl.comm_revoke);
  one("shrink", "ncclCommShrink", nccl.comm_shrink);
  one("all_to_all", "ncclAlltoAll", nccl.all_to_all);
  one("gather", "ncclGather", nccl.gather);
  one("scatter", "ncclScatter", nccl.scatter);
  return features;
}

int ask_version(const NcclLibrary& library) {
  int number = 0;
  const NcclResult result = library.functions.get_version(&number);
  if (result != NcclResult::success || number <= 0)
    fail(DSC_ERR_NO_BACKEND, "ncclGetVersion of %.200s failed: result %u, version %d", library.path.c_str(),
         static_cast<unsigned>(result), number);
  if (number < kLeastNccl)
    fail(DSC_ERR_NO_BACKEND, "%.200s is too old: NCCL %s, expected 2.18 or newer", library.path.c_str(),
         nccl_version(number).c_str());
  return number;
}

}  // namespace

std::string nccl_version(int number) {
  const int major = number < 10000 ? 1000 : 10000;  // NCCL 2.9 changed the format
  return std::to_string(number / major) + "." + std::to_string(number % major / 100) + "." +
         std::to_string(number % 100);
}

std::string nccl_warning(int number) {
  std::string known;
  for (const BrokenVersions& broken : kBroken)
    if (number >= broken.first && number <= broken.last)
      known += (known.empty() ? "NCCL " + nccl_version(number) + " has known bugs: " : "; ") + broken.what;
  return known;
}

NcclLibrary load_nccl(const std::string& path, const Environment& environment, const Loader& loader) {
  const FoundLibrary file = find_library(kNccl, path, environment, loader);
  const Symbols symbols(loader, file, "NCCL 2.18 or newer");
  NcclLibrary library;
  library.path = file.path;
  symbols.need("ncclGetVersion", library.functions.get_version);
  const int number = ask_version(library);
  library.number = number;
  library.version = nccl_version(number);
  library.warning = nccl_warning(number);
  find_needed(symbols, library.functions);
  library.features = find_features(symbols, library.functions);
  return library;
}

}  // namespace dsc
