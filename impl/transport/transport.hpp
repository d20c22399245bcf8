// What all connections of this host to other hosts share: an address, and the transport module's thread that
// moves bytes.
#pragma once

#include <memory>
#include <string>

#include "transport/library.hpp"

namespace dsc {

class Transport {
 public:
  // `address` must be numeric and belong to this host. Connections are accepted only at this address. Throws
  // BACKEND.
  Transport(const TransportLibrary& library, const std::string& address);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const dsc_transport_table& table() const noexcept { return *table_; }
  dsc_transport_device* device() const noexcept { return device_; }

 private:
  const dsc_transport_table* table_;
  dsc_transport_device* device_ = nullptr;
};

}  // namespace dsc
