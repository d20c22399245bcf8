// The single connection of this process to its PMIx server.
#pragma once

#include <pmix.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "bootstrap/pmix.hpp"
#include "bootstrap/pmix_library.hpp"

namespace dsc {

class PmixSession {
 public:
  // Connects at the first call. The session exists until the process ends. Throws what ask_pmix() throws.
  static const PmixSession& connect(const Environment& environment, Deadline deadline);

  ~PmixSession();
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;

  const PmixLibrary& library() const { return library_; }
  PmixJob job() const;
  pmix_proc_t member(uint32_t rank) const;  // identifies a rank of this process's job

 private:
  explicit PmixSession(const PmixLibrary& library);
  static const PmixSession& opened(const PmixLibrary& library);
  std::optional<int32_t> number(const pmix_proc_t& whose, const char* key) const;

  const PmixLibrary library_;
  pmix_proc_t self_{};
  const int process_;
};

}  // namespace dsc
