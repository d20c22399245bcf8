// What a call does first on an object that can be closed before its handle is destroyed.
#pragma once

namespace dsc {

// Finds the object as `Pin` does, and lets an overload of expect_open() throw STATE if it was closed.
template <typename Pin>
class Open : public Pin {
 public:
  template <typename... Arguments>
  explicit Open(Arguments... arguments) : Pin(arguments...) {
    expect_open(**this);
  }
};

}  // namespace dsc
