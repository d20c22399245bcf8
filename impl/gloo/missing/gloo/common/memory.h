// Debian's libgloo-dev leaves this header out, although gloo/transport/tcp/pair.h includes it. What a pair
// keeps of these types is one weak pointer; the rest is inside Gloo.
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
