// A server or a client of a TCP store in a separate process. The token is read from the environment.
//   store_peer serve HOST PORT WORLD_SIZE   prints the port, then its counts for each line of standard input
//   store_peer ask HOST PORT                prints the outcome of each line of standard input. A line is
//                                           "open" (joins with a new connection and uses it),
//                                           "set KEY VALUE" or "get KEY TIMEOUT_MS"
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "store/server.hpp"
#include "store/tcp_store.hpp"

using namespace dsc;

namespace {

constexpr int kStepMs = 20'000;
constexpr int64_t kNsPerUs = 1000;

int serve(const std::string& host, uint16_t port, int32_t world_size) {
  StoreServer::Options options;
  options.addresses = resolve(host, port, "the address", Deadline::after_ms(kStepMs));
  options.token = find_token(nullptr, process_environment());
  options.world_size = world_size;
  const StoreServer server(std::move(options));
  std::cout << server.port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const StoreServer::Counts counts = server.counts();
    std::cout << "authenticated " << counts.authenticated << " refused " << counts.refused
              << " unauthenticated " << counts.unauthenticated << " members " << counts.members << " waiting "
              << counts.waiting << std::endl;
  }
  return 0;
}

std::string step(std::unique_ptr<TcpStore>& store, const StoreTarget& target, const std::string& line) {
  std::istringstream words(line);
  std::string word, key;
  words >> word >> key;
  if (word == "open") {
    store = std::make_unique<TcpStore>(target, Deadline::after_ms(kStepMs));
    store->add("joined", 1, Deadline::after_ms(kStepMs));
    return store->get("joined", Deadline::after_ms(kStepMs));
  }
  if (word == "set") {
    words >> word;
    store->set(key, word, Deadline::after_ms(kStepMs));
    return "";
  }
  int timeout_ms = 0;
  words >> timeout_ms;
  return store->get(key, Deadline::after_ms(timeout_ms));
}

// "MICROSECONDS ok VALUE" or "MICROSECONDS CODE TEXT"
int ask(const std::string& host, uint16_t port) {
  StoreTarget target{.host = host,
                     .port = port,
                     .addresses = resolve(host, port, "the address", Deadline::after_ms(kStepMs)),
                     .token = find_token(nullptr, process_environment()),
                     .job_id = ""};
  std::unique_ptr<TcpStore> store;
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const int64_t start_ns = now_ns();
    std::string said;
    try {
      said = "ok " + step(store, target, line);
    } catch (const Error& error) {
      said = std::string(result_name(error.code())) + " " + error.what();
    }
    std::cout << (now_ns() - start_ns) / kNsPerUs << " " << said << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string role = argc > 3 ? argv[1] : "";
  const auto port = static_cast<uint16_t>(argc > 3 ? std::atoi(argv[3]) : 0);
  if (role == "serve" && argc == 5) return serve(argv[2], port, std::atoi(argv[4]));
  if (role == "ask" && argc == 4) return ask(argv[2], port);
  return 2;
} catch (const Error& error) {
  std::cerr << result_name(error.code()) << " " << error.what() << std::endl;
  return 1;
}
