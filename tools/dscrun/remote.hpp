// The connection to the dscrun on another host of the job, which follows orders and sends reports.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dscrun/job.hpp"
#include "dscrun/output.hpp"
#include "dscrun/process.hpp"

namespace dscrun {

// On the connection's standard input, the other dscrun reads the job, and then lines "signal RANK NUMBER" and
// "here". The end of this input ends the job there. On its standard output it writes lines "[RANK] ..." of
// the ranks, "@started RANK PID" and "@ended RANK WAIT_STATUS".
class Remote {
 public:
  Remote(const Options& options, const Node& node, const NodeJob& job);  // throws StartError

  void send_signal(int rank, int signal);
  void send_beat();  // a sign of life
  void write_some();
  void hang_up();  // ends the processes on that host

  void take_output(Output& output, const Output::OnEvent& on_event);
  void drain(Output& output);  // reads the output that it sent before it ended

  bool pending() const { return process_.in && !queue_.empty(); }
  bool connected() const { return connected_; }
  void set_ended() { connected_ = false, process_.pidfd.reset(), hang_up(); }

  const std::string& host() const { return host_; }
  Process& process() { return process_; }
  int input() const { return process_.in.get(); }

 private:
  std::string host_;
  Process process_;
  int out_ = -1, err_ = -1;  // its outputs; Output owns them
  std::string queue_;
  bool connected_ = true;
};

// The other end of the connection: orders from the dscrun that started this one.
class Orders {
 public:
  explicit Orders(int fd);

  // Reads once and executes complete orders. Returns false at the end of the connection.
  bool read_some(const std::function<void(int rank, int signal)>& send_signal);
  int fd() const { return fd_; }

 private:
  int fd_;
  std::string text_;
};

// Returns the command that starts the dscrun of a host.
std::vector<std::string> connect_command(const Options& options, const std::string& host, int node_rank);

std::string own_path();  // path of this executable

}  // namespace dscrun
