#include "dsc/version.h"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/guard.hpp"
#include "base/json.hpp"
#include "bootstrap/pmix.hpp"
#include "checks.hpp"
#include "device/cuda_library.hpp"
#include "device/kernels.hpp"
#include "engine_nccl/nccl_library.hpp"
#include "give.hpp"
#include "transport/library.hpp"

namespace {

struct Feature {
  const char* name;
  int32_t available;
};

const Feature kFeatures[] = {{"host", 1},
                             {"nccl", DSC_HAS_NCCL},
                             {"cuda", dsc::has_kernels() ? 1 : 0},
                             {"pmix", dsc::has_pmix() ? 1 : 0},
                             {"gloo", DSC_HAS_GLOO},
                             {"pipeline", 1}};

struct Engine {
  const char* name;
  bool available = false;
  std::string path{}, version{}, reason{}, warning{};
  std::vector<const char*> features{};
  std::optional<int> devices{};
};

// `look` sets path and version, or throws the reason why there is none.
template <typename Look>
Engine look_for(const char* name, Look&& look) {
  Engine engine{.name = name};
  engine.available =
      dsc::capture([&] { look(engine); }, [&](dsc_result_t, const char* why) { engine.reason = why; });
  return engine;
}

void look_for_cuda(Engine& engine) {
  const dsc::CudaLibrary cuda = dsc::load_cuda({}, dsc::process_environment(), dsc::process_loader());
  engine.path = cuda.path;
  engine.version = cuda.version;
  engine.devices = cuda.devices;
}

// What was found is shown also where there is no driver for it.
void look_for_nccl(Engine& engine) {
  const dsc::NcclLibrary nccl = dsc::load_nccl({}, dsc::process_environment(), dsc::process_loader());
  engine.path = nccl.path;
  engine.version = nccl.version;
  engine.warning = nccl.warning;
  engine.features = nccl.features;
  dsc::load_cuda({}, dsc::process_environment(), dsc::process_loader());
}

void look_for_pmix(Engine& engine) {
  const dsc::PmixPlace place = dsc::find_pmix(dsc::process_environment());
  engine.path = place.path;
  engine.version = place.version;
}

void look_for_gloo(Engine& engine) {
  const dsc::TransportLibrary library = dsc::load_transport(dsc::process_environment());
  engine.path = library.path;
  engine.version = library.table->library;
}

void write_engine(dsc::JsonWriter& json, const Engine& engine) {
  json.begin_object(engine.name);
  json.field("available", engine.available);
  json.field_or_null("path", engine.path);
  json.field_or_null("version", engine.version);
  json.field_or_null("reason", engine.reason);
  json.field_or_null("warning", engine.warning);
  if (engine.devices) json.field("devices", *engine.devices);
  if (!engine.features.empty()) {
    json.begin_array("features");
    for (const char* feature : engine.features) json.text(feature);
    json.end_array();
  }
  json.end_object();
}

std::string engine_report() {
  const Engine engines[] = {{.name = "host", .available = true},
                            look_for("nccl", look_for_nccl),
                            look_for("cuda", look_for_cuda),
                            look_for("pmix", look_for_pmix),
                            look_for("gloo", look_for_gloo)};
  dsc::JsonWriter json;
  json.begin_object();
  for (const Engine& engine : engines) write_engine(json, engine);
  json.end_object();
  return json.take();
}

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

dsc_result_t dsc_engine_report(char* text, size_t capacity, size_t* bytes) {
  return dsc::guard(__func__, [&] { return dsc::give_text(engine_report(), text, capacity, bytes); });
}
