// Does an address belong to this machine?
#pragma once

#include <string>

#include "base/clock.hpp"

namespace dsc {

// True for localhost, this machine's name and the addresses of its interfaces. Another name is resolved,
// which may ask a name server. Throws CONFIG if it cannot be resolved, TIMEOUT if that takes longer than the
// deadline.
bool is_local_address(const std::string& address, Deadline deadline);

}  // namespace dsc
