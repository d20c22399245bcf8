// What a call does first on an object that can be closed before its handle is destroyed.
#pragma once

namespace dsc {

// Finds the object as `Pin` does, and throws STATE if it was closed.
template <typename Pin>
class Open : public Pin {
 public:
  template <typename... Arguments>
  explicit Open(Arguments... arguments) : Pin(arguments...) {
    (*this)->expect_open();
  }
};

}  // namespace dsc
