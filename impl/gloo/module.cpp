// Implements the table of functions of libdsc_gloo.so with Gloo.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include <gloo/config.h>

#include "gloo/guard.hpp"
#include "gloo/watched_pair.hpp"

using dsc::gloo_module::guard;
using dsc::gloo_module::Region;
using dsc::gloo_module::WatchedPair;
namespace tcp = gloo::transport::tcp;

// Gloo's device, and the context that the pairs of the device need.
struct dsc_transport_device {
  std::shared_ptr<tcp::Device> device;
  std::shared_ptr<tcp::Context> context;
};

namespace {

#define DSC_TEXT_OF(number) DSC_TEXT(number)
#define DSC_TEXT(number) #number
constexpr const char* kLibrary = "Gloo " DSC_TEXT_OF(GLOO_VERSION_MAJOR) "." DSC_TEXT_OF(
    GLOO_VERSION_MINOR) "." DSC_TEXT_OF(GLOO_VERSION_PATCH);

WatchedPair* pair_of(dsc_transport_pair* pair) { return reinterpret_cast<WatchedPair*>(pair); }
Region* region_of(dsc_transport_region* region) { return reinterpret_cast<Region*>(region); }

// Parses a numeric address. Gloo itself would resolve a name and ignore the result.
tcp::attr numeric_address(const char* text) {
  tcp::attr attr(text);
  std::memset(&attr.ai_addr, 0, sizeof attr.ai_addr);
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&attr.ai_addr);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&attr.ai_addr);
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
    attr.ai_family = AF_INET, attr.ai_addrlen = sizeof *v4;
  else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
    attr.ai_family = AF_INET6, attr.ai_addrlen = sizeof *v6;
  else
    throw std::invalid_argument(std::string("\"") + text + "\" is not a numeric address");
  attr.ai_addr.ss_family = static_cast<sa_family_t>(attr.ai_family);
  attr.ai_socktype = SOCK_STREAM;
  attr.ai_protocol = 0;
  return attr;
}

void check_is_ours(const tcp::attr& attr) {
  const int fd = ::socket(attr.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&attr.ai_addr),
                                       static_cast<socklen_t>(attr.ai_addrlen)) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!bound) throw std::system_error(error, std::generic_category(), "not an address of this host");
}

// Creates the device. This runs on a separate thread, because Gloo's thread inherits the name and the signal
// mask of the thread that creates it.
void make_device(const char* address, dsc_transport_device& made) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  pthread_setname_np(pthread_self(), "dsc-gloo");
  const tcp::attr attr = numeric_address(address);
  check_is_ours(attr);
  made.device = std::make_shared<tcp::Device>(attr);
  made.context = std::dynamic_pointer_cast<tcp::Context>(made.device->createContext(0, 1));
}

int open_device(const char* address, dsc_transport_device** device, char* error, size_t error_bytes) {
  return guard(error, error_bytes, [&] {
    auto made = std::make_unique<dsc_transport_device>();
    std::string failure;
    std::thread maker([&] {
      char why[256];
      if (guard(why, sizeof why, [&] { make_device(address, *made); }) != DSC_OK) failure = why;
    });
    maker.join();
    if (!failure.empty()) throw std::runtime_error(failure);
    *device = made.release();
  });
}

void close_device(dsc_transport_device* device) { delete device; }

int open_pair(dsc_transport_device* device, const dsc_transport_listener* listener, dsc_transport_pair** pair,
              char address[DSC_TRANSPORT_ADDRESS_BYTES], size_t* address_bytes, char* error,
              size_t error_bytes) {
  return guard(error, error_bytes, [&] {
    auto made = std::make_unique<WatchedPair>(device->context.get(), device->device.get(), *listener);
    const std::vector<char> bytes = made->address_bytes();
    if (bytes.size() > DSC_TRANSPORT_ADDRESS_BYTES)
      throw std::length_error("Gloo's address has " + std::to_string(bytes.size()) +
                              " bytes, expected at most " + std::to_string(DSC_TRANSPORT_ADDRESS_BYTES));
    std::memcpy(address, bytes.data(), bytes.size());
    *address_bytes = bytes.size();
    *pair = reinterpret_cast<dsc_transport_pair*>(made.release());
  });
}

int connect_pair(dsc_transport_pair* pair, const char* address, size_t address_bytes, char* error,
                 size_t error_bytes) {
  return guard(error, error_bytes,
               [&] { pair_of(pair)->connect_to(std::vector<char>(address, address + address_bytes)); });
}

void close_pair(dsc_transport_pair* pair) { pair_of(pair)->end(); }

void free_pair(dsc_transport_pair* pair) { delete pair_of(pair); }

void pair_error(dsc_transport_pair* pair, char* error, size_t error_bytes) {
  guard(error, error_bytes,
        [&] { std::snprintf(error, error_bytes, "%s", pair_of(pair)->reason().c_str()); });
}

int open_region(dsc_transport_pair* pair, int32_t slot, void* memory, size_t bytes,
                dsc_transport_region** region, char* error, size_t error_bytes) {
  return guard(error, error_bytes, [&] {
    *region = reinterpret_cast<dsc_transport_region*>(pair_of(pair)->add_region(slot, memory, bytes));
  });
}

uint32_t take_arrived(dsc_transport_region* region) { return region_of(region)->take_arrived(); }

void close_region(dsc_transport_region* region) {
  char unsaid[256];  // not reported, because the listener learns that the connection has ended
  guard(unsaid, sizeof unsaid, [&] { region_of(region)->pair().remove_region(region_of(region)); });
}

int send(dsc_transport_pair* pair, int32_t slot, const void* memory, size_t bytes, size_t offset, char* error,
         size_t error_bytes) {
  return guard(error, error_bytes, [&] { pair_of(pair)->post(slot, memory, bytes, offset); });
}

void poll_pair(dsc_transport_pair* pair, int32_t by_device) {
  char unsaid[256];  // not reported, for the same reason as in close_region()
  guard(unsaid, sizeof unsaid, [&] { pair_of(pair)->poll(by_device != 0); });
}

int32_t move_pair(dsc_transport_pair* pair) { return pair_of(pair)->move() ? 1 : 0; }

constexpr dsc_transport_table kTable = {
    .struct_size = sizeof(dsc_transport_table),
    .version = DSC_TRANSPORT_TABLE_VERSION,
    .reserved = 0,
    .library = kLibrary,
    .open_device = open_device,
    .close_device = close_device,
    .open_pair = open_pair,
    .connect_pair = connect_pair,
    .close_pair = close_pair,
    .free_pair = free_pair,
    .pair_error = pair_error,
    .open_region = open_region,
    .take_arrived = take_arrived,
    .close_region = close_region,
    .send = send,
    .poll_pair = poll_pair,
    .move_pair = move_pair,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const dsc_transport_table* dsc_transport_module(void);
const dsc_transport_table* dsc_transport_module(void) { return &kTable; }
