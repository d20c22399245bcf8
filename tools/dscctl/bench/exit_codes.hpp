// Exit codes of `dscctl bench`, and of the ranks that it starts.
#pragma once

namespace dscctl::bench {

inline constexpr int kFine = 0;
inline constexpr int kFailed = 1;
inline constexpr int kRefused = 2;  // wrong usage, or settings that the library refuses

}  // namespace dscctl::bench
