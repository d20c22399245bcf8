// Hosts that are threads of this process, connected over loopback by a real Gloo.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store_support.hpp"
#include "transport/transport_group.hpp"

namespace dsc::test {

inline std::shared_ptr<Transport> loopback_transport() {
  static const TransportLibrary library = load_transport(process_environment());
  return std::make_shared<Transport>(library, "127.0.0.1");
}

// Several hosts, connected to each other.
class Hosts {
 public:
  explicit Hosts(int32_t count, std::shared_ptr<Transport> transport = loopback_transport())
      : transport_(std::move(transport)) {
    std::vector<int32_t> members;
    for (int32_t host = 0; host < count; ++host) members.push_back(10 * host);
    for (int32_t host = 0; host < count; ++host)
      wires_.push_back(std::make_unique<TransportGroup>(transport_, host, members));
    each([this](TransportGroup& wire) { wire.connect(store_, "wire", soon()); });
  }

  // Runs the body on all hosts at the same time. Returns the error of each host, in the order of hosts.
  std::vector<Outcome> outcomes(const std::function<void(TransportGroup&)>& body) {
    std::vector<Outcome> outcomes(wires_.size());
    std::vector<std::thread> threads;
    for (size_t host = 0; host < wires_.size(); ++host)
      threads.emplace_back([&, host] { outcomes[host] = outcome_of([&] { body(*wires_[host]); }); });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  // Runs the body on all hosts. All must succeed.
  void each(const std::function<void(TransportGroup&)>& body) {
    for (const Outcome& outcome : outcomes(body)) {
      if (outcome.code != DSC_OK) print_error("%s: %s\n", result_name(outcome.code), outcome.text.c_str());
      assert_int_equal(outcome.code, DSC_OK);
    }
  }

  TransportGroup& wire(int32_t host) { return *wires_[static_cast<size_t>(host)]; }
  int32_t size() const { return static_cast<int32_t>(wires_.size()); }
  void drop(int32_t host) { wires_[static_cast<size_t>(host)].reset(); }

 private:
  MemoryStore store_;
  std::shared_ptr<Transport> transport_;
  std::vector<std::unique_ptr<TransportGroup>> wires_;
};

}  // namespace dsc::test
