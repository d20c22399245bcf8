#include "transport/transport.hpp"

#include "base/error.hpp"

namespace dsc {

Transport::Transport(const TransportLibrary& library, const std::string& address) : table_(library.table) {
  char why[256] = "";
  const int result = table_->open_device(address.c_str(), &device_, why, sizeof why);
  if (result != DSC_OK)
    fail(result, "%s cannot use the address %s: %s", table_->library, address.c_str(), why);
}

Transport::~Transport() { table_->close_device(device_); }

}  // namespace dsc
