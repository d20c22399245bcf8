#include "device/search.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"

namespace dsc {
namespace {

// A path and the option or variable that names it.
struct NamedPath {
  std::string path;
  std::string by;
};

std::optional<NamedPath> named_path(const WantedLibrary& wanted, const std::string& path,
                                    const Environment& environment) {
  if (!path.empty()) return NamedPath{path, std::string("setting ") + wanted.option};
  if (const auto value = environment(wanted.variable)) return NamedPath{*value, wanted.variable};
  return std::nullopt;
}

std::optional<std::string> loaded_copy(const WantedLibrary& wanted, const Loader& loader) {
  if (!wanted.only_one) return std::nullopt;
  const std::vector<std::string> copies = loader.loaded(wanted.only_one);
  if (copies.empty()) return std::nullopt;
  if (copies.size() > 1)
    fail(DSC_ERR_NO_BACKEND, "this process has loaded two copies of %s, %.180s and %.180s: expected one",
         wanted.name, copies[0].c_str(), copies[1].c_str());
  return copies[0];
}

FoundLibrary open_loaded(const WantedLibrary& wanted, const std::string& path, const Loader& loader) {
  std::string why;
  void* const handle = loader.open(path, OpenMode::only_if_loaded, why);
  if (!handle)
    fail(DSC_ERR_NO_BACKEND, "the copy of %s that this process has loaded cannot be used: %.300s",
         wanted.name, why.c_str());
  return {handle, path};
}

// Opens the named file. If a copy of the library is already loaded, the name must refer to that same file.
FoundLibrary open_named(const WantedLibrary& wanted, const NamedPath& named,
                        const std::optional<std::string>& loaded, const Loader& loader) {
  std::string why;
  if (loaded) {
    FoundLibrary copy = open_loaded(wanted, *loaded, loader);
    if (loader.open(named.path, OpenMode::only_if_loaded, why) == copy.handle) return copy;
    fail(DSC_ERR_NO_BACKEND,
         "%s names %.150s, but this process has loaded another copy of %s, %.150s: expected one",
         named.by.c_str(), named.path.c_str(), wanted.name, loaded->c_str());
  }
  void* const handle = loader.open(named.path, OpenMode::load, why);
  if (handle) return {handle, loader.path_of(handle)};
  fail(DSC_ERR_NO_BACKEND, "%s cannot be loaded from %.150s, which %s names: %.250s", wanted.name,
       named.path.c_str(), named.by.c_str(), why.c_str());
}

// Relative entries are skipped, so that native code is never loaded from the current directory.
void add_python_path(const std::string& entries, std::vector<std::string>& folders) {
  for (size_t begin = 0; begin <= entries.size();) {
    const size_t end = std::min(entries.find(':', begin), entries.size());
    if (end > begin && entries[begin] == '/') folders.push_back(entries.substr(begin, end - begin));
    begin = end + 1;
  }
}

void add_interpreters_of(const std::string& prefix, const Loader& loader, std::vector<std::string>& folders) {
  if (!prefix.starts_with('/')) return;
  const std::string lib = prefix + "/lib/";
  for (const std::string& name : loader.list(lib))
    if (name.starts_with("python3")) folders.push_back(std::string(lib).append(name) + "/site-packages");
}

// Lists the folders in the order in which Python searches them, and then the library folder of the conda
// environment.
std::vector<std::string> known_folders(const WantedLibrary& wanted, const Environment& environment,
                                       const Loader& loader) {
  std::vector<std::string> folders;
  if (!wanted.wheel_folder) return folders;
  if (const auto entries = environment("PYTHONPATH")) add_python_path(*entries, folders);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto prefix = environment(variable)) add_interpreters_of(*prefix, loader, folders);
  for (std::string& folder : folders) folder += std::string("/") + wanted.wheel_folder;
  if (const auto prefix = environment("CONDA_PREFIX"); prefix && prefix->starts_with('/'))
    folders.push_back(*prefix + "/lib");
  return folders;
}

// Returns NULL if no folder holds a loadable library; appends the errors of those that could not be loaded to
// `tried`.
void* open_in(const WantedLibrary& wanted, const std::vector<std::string>& folders, const Loader& loader,
              std::string& tried) {
  for (const std::string& folder : folders) {
    if (!std::ranges::binary_search(loader.list(folder), wanted.file)) continue;
    std::string why;
    if (void* handle = loader.open(folder + "/" + wanted.file, OpenMode::load, why)) return handle;
    tried += why + "; ";
  }
  return nullptr;
}

[[noreturn]] void fail_not_found(const WantedLibrary& wanted, const std::string& tried,
                                 const std::vector<std::string>& folders) {
  std::string looked;
  for (const std::string& folder : folders) looked += (looked.empty() ? "; not in " : ", ") + folder;
  fail(DSC_ERR_NO_BACKEND, "%s cannot be loaded: %.250s; %s or %s may say where it is%s", wanted.name,
       tried.c_str(), wanted.option, wanted.variable, looked.c_str());
}

}  // namespace

FoundLibrary find_library(const WantedLibrary& wanted, const std::string& path,
                          const Environment& environment, const Loader& loader) {
  const std::optional<std::string> loaded = loaded_copy(wanted, loader);
  if (const auto named = named_path(wanted, path, environment))
    return open_named(wanted, *named, loaded, loader);
  if (loaded) return open_loaded(wanted, *loaded, loader);
  const std::vector<std::string> folders = known_folders(wanted, environment, loader);
  std::string tried, why;
  void* handle = open_in(wanted, folders, loader, tried);
  if (!handle) handle = loader.open(wanted.file, OpenMode::load, why);
  if (!handle) fail_not_found(wanted, tried + why, folders);
  return {handle, loader.path_of(handle)};
}

}  // namespace dsc
