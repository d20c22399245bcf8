// Debian's libgloo-dev lacks this header, although gloo/transport/tcp/pair.h includes it. A pair uses these
// types only in a single weak pointer, so this definition has the same layout. The code that uses the pointer
// is inside Gloo.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class WeakNonOwningPtr final {
 protected:
  std::weak_ptr<T> ptr_;
};

template <typename T>
class NonOwningPtr;

}  // namespace gloo
