#include "bootstrap/pmix.hpp"

#include <memory>

#include "bootstrap/pmix_exchange.hpp"
#include "bootstrap/pmix_library.hpp"
#include "bootstrap/pmix_session.hpp"
#include "bootstrap/run_until.hpp"

namespace dsc {

bool has_pmix() noexcept { return true; }

PmixLocation find_pmix(const Environment& environment) {
  const PmixLibrary library = load_pmix(environment);
  return {library.path, library.version()};
}

PmixJob ask_pmix(const Environment& environment, Deadline deadline) {
  const PmixSession& session = PmixSession::connect(environment, deadline);
  const auto job = std::make_shared<PmixJob>();
  run_until(
      deadline, "dsc-pmix", [&session, job] { *job = session.job(); },
      "the PMIx server did not answer in time");
  return *job;
}

std::shared_ptr<Exchange> pmix_exchange(const Environment& environment, uint32_t world, Deadline deadline) {
  return std::make_shared<PmixExchange>(PmixSession::connect(environment, deadline), world);
}

}  // namespace dsc
