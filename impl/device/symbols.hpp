// Looks up functions of a loaded library and stores them in the members of a table.
#pragma once

#include "base/error.hpp"
#include "device/search.hpp"

namespace dsc {

class Symbols {
 public:
  // `expected` is the end of the message about a missing function, such as "version 2.18 or newer".
  Symbols(const Loader& loader, const FoundLibrary& library, const char* expected)
      : loader_(loader), library_(library), expected_(expected) {}

  template <typename Function>
  bool has(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(loader_.symbol(library_.handle, name));
    return function != nullptr;
  }

  template <typename Function>
  void need(const char* name, Function*& function) const {
    if (!has(name, function))
      fail(DSC_ERR_NO_BACKEND, "%.200s has no %s; expected %s", library_.path.c_str(), name, expected_);
  }

 private:
  const Loader& loader_;
  const FoundLibrary& library_;
  const char* expected_;
};

}  // namespace dsc
