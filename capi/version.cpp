#include "dsc/version.h"

#include <cstring>

#include "base/guard.hpp"
#include "bootstrap/pmix.hpp"

namespace {

struct Feature {
  const char* name;
  int32_t available;
};

const Feature kFeatures[] = {{"host", 1}, {"nccl", 0},    {"cuda", 0}, {"pmix", dsc::has_pmix() ? 1 : 0},
                             {"gloo", 0}, {"pipeline", 1}};

}  // namespace

dsc_result_t dsc_version(int32_t* major, int32_t* minor, int32_t* patch) {
  return dsc::guard_pure(__func__, [&] {
    if (major) *major = DSC_VERSION_MAJOR;
    if (minor) *minor = DSC_VERSION_MINOR;
    if (patch) *patch = DSC_VERSION_PATCH;
  });
}

dsc_result_t dsc_feature(const char* name, int32_t* available) {
  return dsc::guard_pure(__func__, [&] {
    if (!name) dsc::fail(DSC_ERR_INVALID_ARG, "name is NULL");
    if (!available) dsc::fail(DSC_ERR_INVALID_ARG, "available is NULL");
    for (const Feature& feature : kFeatures) {
      if (std::strcmp(name, feature.name) != 0) continue;
      *available = feature.available;
      return;
    }
    dsc::fail(DSC_ERR_INVALID_ARG,
              "unknown feature \"%.32s\", expected host, nccl, cuda, pmix, gloo or pipeline", name);
  });
}
