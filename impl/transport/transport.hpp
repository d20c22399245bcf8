// This host's end of all wires: an address, and the thread that moves their bytes.
#pragma once

#include <memory>
#include <string>

#include "transport/library.hpp"

namespace dsc {

class Transport {
 public:
  // `address` is numeric and of this host; nothing listens on another one. Throws BACKEND.
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
