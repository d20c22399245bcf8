// Another host of the job: the connection to the dscrun there, which does as it is told and reports.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dscrun/job.hpp"
#include "dscrun/output.hpp"
#include "dscrun/process.hpp"

namespace dscrun {

// On the connection's standard input: the job, then lines "signal RANK NUMBER" and "here"; its end ends the
// job there. On its standard output: lines "[RANK] ..." of the ranks, "@started RANK PID" and "@ended RANK
// WAIT_STATUS".
class Remote {
 public:
  Remote(const Options& options, const Node& node, const NodeJob& job);  // throws StartError

  void send_signal(int rank, int signal);
  void send_beat();  // tells that this side is there
  void write_some();
  void hang_up();  // what runs there then ends

  void take_output(Output& output, const Output::OnEvent& on_event);
  void drain(Output& output);  // what it had sent when it ended

  bool pending() const { return process_.in && !queue_.empty(); }
  bool connected() const { return connected_; }
  void set_ended() { connected_ = false, process_.pidfd.reset(), hang_up(); }

  const std::string& host() const { return host_; }
  Process& process() { return process_; }
  int input() const { return process_.in.get(); }

 private:
  std::string host_;
  Process process_;
  int out_ = -1, err_ = -1;  // its outputs, which belong to Output
  std::string queue_;
  bool connected_ = true;
};

// The other end: what the dscrun that started this one asks for.
class Orders {
 public:
  explicit Orders(int fd);

  // Reads once and carries out what is complete; false at the end of the connection.
  bool read_some(const std::function<void(int rank, int signal)>& send_signal);
  int fd() const { return fd_; }

 private:
  int fd_;
  std::string text_;
};

// The words that reach the dscrun of a host.
std::vector<std::string> connect_command(const Options& options, const std::string& host, int node_rank);

std::string own_path();  // of this executable

}  // namespace dscrun
