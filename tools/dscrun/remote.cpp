#include "dscrun/remote.hpp"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "dscrun/environment.hpp"
#include "dscrun/shell.hpp"

namespace dscrun {

std::string own_path() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : "dscrun";
}

// The command line contains the rank only for users who look at the process list of that host. All other
// data, including the token, is sent on standard input, which neither a shell nor other users can read.
std::vector<std::string> connect_command(const Options& options, const std::string& host, int node_rank) {
  const std::string program = options.remote_dscrun.empty() ? own_path() : options.remote_dscrun;
  std::vector<std::string> words = shell_split(options.ssh_command);
  words.push_back(host);
  words.push_back("exec " + shell_join({program, "--as-node", "--node-rank", std::to_string(node_rank)}));
  return words;
}

Remote::Remote(const Options& options, const Node& node, const NodeJob& job) : host_(node.host) {
  process_ = start_process({.name = "the connection to " + host_,
                            .command = connect_command(options, host_, job.node_rank),
                            .environment = own_environment(),
                            .input = Input::kPipe});
  fcntl(process_.in.get(), F_SETFL, O_NONBLOCK);
  queue_ = encode_job(job);
}

void Remote::send_signal(int rank, int signal) {
  queue_ += "signal " + std::to_string(rank) + " " + std::to_string(signal) + "\n";
  write_some();
}

void Remote::send_beat() {
  if (pending()) return;  // the waiting data serves as a sign of life
  queue_ = "here\n";
  write_some();
}

// An error here means that the connection has ended. The end of its process will report that.
void Remote::write_some() {
  if (!process_.in || queue_.empty()) return;
  const ssize_t bytes = write(process_.in.get(), queue_.data(), queue_.size());
  if (bytes > 0) queue_.erase(0, static_cast<size_t>(bytes));
  if (bytes < 0 && errno != EAGAIN && errno != EINTR) hang_up();
}

void Remote::take_output(Output& output, const Output::OnEvent& on_event) {
  out_ = process_.out.get();
  err_ = process_.err.get();
  output.add_remote(host_, std::move(process_.out), std::move(process_.err), on_event);
}

void Remote::drain(Output& output) {
  output.drain_now(out_);
  output.drain_now(err_);
}

void Remote::hang_up() {
  process_.in.reset();
  queue_.clear();
}

Orders::Orders(int fd) : fd_(fd) { fcntl(fd, F_SETFL, O_NONBLOCK); }

bool Orders::read_some(const std::function<void(int rank, int signal)>& send_signal) {
  std::array<char, 4096> data;
  const ssize_t bytes = read(fd_, data.data(), data.size());
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  text_.append(data.data(), static_cast<size_t>(bytes));
  for (size_t end = 0; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
    int rank = 0, signal = 0;
    if (std::sscanf(text_.c_str(), "signal %d %d\n", &rank, &signal) == 2) send_signal(rank, signal);
  }
  return bytes > 0;
}

}  // namespace dscrun
