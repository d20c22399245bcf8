// Merges the output of all ranks: whole lines, each with its rank as a prefix. It never waits for a slow
// reader.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dscrun/unique_fd.hpp"

namespace dscrun {

// An output of dscrun itself: a bounded queue for a descriptor that may be slow.
class Sink {
 public:
  Sink(int fd, bool color);

  void push(std::string_view text);
  int write_some();  // returns 0, or the errno of a failure after which the sink accepts nothing more
  void discard() { queue_.clear(), sent_ = 0; }

  int fd() const { return fd_; }
  bool pending() const { return sent_ < queue_.size(); }
  bool full() const;
  bool broken() const { return broken_; }  // its reader is gone
  bool colored() const { return colored_; }

 private:
  size_t next_bytes() const;

  int fd_;
  bool regular_file_;
  bool colored_;
  bool broken_ = false;
  std::string queue_;
  size_t sent_ = 0;
};

// The standard output or error of a process. It is split into lines.
class Stream {
 public:
  using OnLine = std::function<void(Sink& sink, std::string_view line)>;

  // Without `on_line`, bytes pass unchanged. Longer lines are passed on in pieces.
  Stream(UniqueFd source, Sink& sink, size_t max_line_bytes, OnLine on_line);

  // Reads once. Returns false at the end of the stream, or if the sink's reader is gone.
  bool read_some();
  void finish();  // passes on a last line without its newline

  int fd() const { return source_.get(); }
  const Sink& sink() const { return *sink_; }

 private:
  void feed(std::string_view data);
  void emit_line();

  UniqueFd source_;
  Sink* sink_;
  size_t max_line_bytes_;
  OnLine on_line_;
  std::string line_;
};

class Output {
 public:
  // `raw`: a single rank without prefix, whose bytes pass unchanged.
  Output(bool prefix, bool raw, bool color);

  void add_rank(int rank, UniqueFd out, UniqueFd err);
  void add_plain(UniqueFd out, UniqueFd err);  // for a launcher, whose lines need no prefix

  // Adds the dscrun of another host. It sends lines of its ranks, its own lines, and events, which start with
  // '@' and are not printed.
  using OnEvent = std::function<void(std::string_view event)>;
  void add_remote(const std::string& host, UniqueFd out, UniqueFd err, const OnEvent& on_event);

  void say(const std::string& text);     // prints a line of dscrun itself to standard error
  void report(const std::string& line);  // prints a line for another dscrun to standard output

  void append_polls(std::vector<pollfd>& polls) const;
  void handle(const pollfd* polls, size_t count);
  void drain_now(int fd);  // reads what this pipe contains now
  void drain();            // reads what the pipes still contain, without waiting, and closes them
  void discard();
  bool pending() const;

 private:
  Stream* find_stream(int fd);
  void add_stream(UniqueFd source, Sink& sink, size_t max_line_bytes, Stream::OnLine on_line);
  std::string prefix(int rank, const Sink& sink) const;
  void relay(Sink& sink, const std::string& host, std::string_view line, const OnEvent& on_event);
  void close_stream(Stream* stream);

  bool prefix_;
  bool raw_;
  std::vector<std::unique_ptr<Sink>> sinks_;  // one if both outputs are the same file, else two
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace dscrun
