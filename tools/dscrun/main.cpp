// dscrun: runs a command once per rank on this host.
#include <fcntl.h>
#include <unistd.h>

#include "dscrun/front.hpp"
#include "dscrun/options.hpp"

// Pipes must not land on the numbers of the standard streams, should one have been closed.
static void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) _exit(dscrun::kOwnFailure);
  }
}

int main(int argc, char** argv) {
  open_standard_streams();
  const auto parsed = dscrun::parse_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  return dscrun::run_front(std::get<dscrun::Options>(parsed));
}
