// For a scope, sets the floating-point mode on which results depend: round to nearest even, no flushing of
// denormals, no traps. Restores the caller's mode at the end.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace dsc {

class FpMode {
 public:
  // Setting the mode takes longer than a small reduction, so it is set only if it differs. Flags that a
  // reduction raises are cleared at the end.
  FpMode() : saved_(get()) {
    if ((saved_ & ~kFlags) != kDefault) set(kDefault);
  }
  ~FpMode() {
    if (get() != saved_) set(saved_);
  }
  FpMode(const FpMode&) = delete;
  FpMode& operator=(const FpMode&) = delete;

 private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kDefault = 0x1f80;  // all exceptions masked, all flags clear
  static constexpr Word kFlags = 0x3f;
  static Word get() { return _mm_getcsr(); }
  static void set(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kDefault = 0;
  static constexpr Word kFlags = 0;  // the flags are in another register
  static Word get() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void set(Word word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
#error "libdsc knows how to set the floating-point mode on x86-64 and aarch64 only"
#endif

  Word saved_;
};

}  // namespace dsc
