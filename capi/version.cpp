#include "dsc/version.h"

#include <cstring>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/guard.hpp"
#include "base/json.hpp"
#include "bootstrap/pmix.hpp"
#include "checks.hpp"
#include "comm/library_report.hpp"
#include "device/cuda_library.hpp"
#include "device/kernels.hpp"
#include "give.hpp"
#include "session/engine_table.hpp"
#include "transport/library.hpp"

namespace {

struct Library {
  const char* name;
  bool available;  // whether this build supports it
  dsc::LookForLibrary look;
};

void look_for_cuda(dsc::LibraryReport& report) {
  const dsc::CudaLibrary cuda = dsc::load_cuda({}, dsc::process_environment(), dsc::process_loader());
  report.path = cuda.path;
  report.version = cuda.version;
  report.devices = cuda.devices;
}

void look_for_pmix(dsc::LibraryReport& report) {
  const dsc::PmixLocation location = dsc::find_pmix(dsc::process_environment());
  report.path = location.path;
  report.version = location.version;
}

void look_for_gloo(dsc::LibraryReport& report) {
  const dsc::TransportLibrary library = dsc::load_transport(dsc::process_environment());
  report.path = library.path;
  report.version = library.table->library;
}

// Returns the engines, and the libraries that engines and start-up need.
std::vector<Library> libraries() {
  std::vector<Library> all;
  for (const dsc::ReportedEngine& engine : dsc::reported_engines())
    all.push_back({engine.name, engine.available, engine.look});
  all.push_back({"cuda", dsc::has_kernels(), look_for_cuda});
  all.push_back({"pmix", dsc::has_pmix(), look_for_pmix});
  all.push_back({"gloo", DSC_HAS_GLOO, look_for_gloo});
  return all;
}

struct Feature {
  const char* name;
  bool available;
};

std::vector<Feature> features() {
  std::vector<Feature> all;
  for (const Library& library : libraries()) all.push_back({library.name, library.available});
  all.push_back({"pipeline", true});
  return all;
}

// Returns a list such as "host, nccl or cuda".
std::string names_of(const std::vector<Feature>& features) {
  std::string names;
  for (const Feature& feature : features) {
    if (!names.empty()) names += &feature == &features.back() ? " or " : ", ";
    names += feature.name;
  }
  return names;
}

void write_report(dsc::JsonWriter& json, const Library& library) {
  dsc::LibraryReport report;
  std::string reason;
  const bool available =
      dsc::capture([&] { library.look(report); }, [&](dsc_result_t, const char* why) { reason = why; });
  json.begin_object(library.name);
  json.field("available", available);
  json.field_or_null("path", report.path);
  json.field_or_null("version", report.version);
  json.field_or_null("reason", reason);
  json.field_or_null("warning", report.warning);
  if (report.devices) json.field("devices", *report.devices);
  if (!report.features.empty()) {
    json.begin_array("features");
    for (const char* feature : report.features) json.text(feature);
    json.end_array();
  }
  json.end_object();
}

std::string engine_report() {
  dsc::JsonWriter json;
  json.begin_object();
  for (const Library& library : libraries()) write_report(json, library);
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
    const std::vector<Feature> known = features();
    for (const Feature& feature : known) {
      if (std::strcmp(name, feature.name) != 0) continue;
      *available = feature.available ? 1 : 0;
      return;
    }
    dsc::fail(DSC_ERR_INVALID_ARG, "unknown feature \"%.32s\", expected %s", name, names_of(known).c_str());
  });
}

dsc_result_t dsc_engines_json(char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] { return dsc::give_text(engine_report(), text, capacity, needed); });
}
