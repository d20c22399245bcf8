// The start of a call on an object that can be closed before its handle is destroyed.
#pragma once

namespace dsc {

// Pins the object as `Pin` does. An overload of expect_open() then throws STATE if the object was closed.
template <typename Pin>
class Open : public Pin {
 public:
  template <typename... Arguments>
  explicit Open(Arguments... arguments) : Pin(arguments...) {
    expect_open(**this);
  }
};

}  // namespace dsc
