// Brings the ranks' output together: whole lines, each with its rank in front, never waiting for a slow
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

// One of dscrun's own outputs: a bounded queue in front of a descriptor that may be slow.
class Sink {
 public:
  Sink(int fd, bool color);

  void push(std::string_view text);
  int write_some();  // 0, or the errno of a failure after which the sink takes nothing more
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

// Somebody's standard output or error: cuts what comes into lines.
class Stream {
 public:
  using OnLine = std::function<void(Sink& sink, std::string_view line)>;

  // Without `on_line` the bytes pass unchanged. Longer lines come in pieces.
  Stream(UniqueFd source, Sink& sink, size_t max_line_bytes, OnLine on_line);

  // Reads once; false at the end of the stream or when nobody reads the sink any more.
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
  void add_plain(UniqueFd out, UniqueFd err);  // of a launcher, whose lines are complete

  // What the dscrun of another host sends: lines of its ranks, lines of its own, and events, which start
  // with '@' and are not printed.
  using OnEvent = std::function<void(std::string_view event)>;
  void add_remote(const std::string& host, UniqueFd out, UniqueFd err, const OnEvent& on_event);

  void say(const std::string& text);     // a line of dscrun itself, to standard error
  void report(const std::string& line);  // one that another dscrun reads, to standard output

  void append_polls(std::vector<pollfd>& polls) const;
  void handle(const pollfd* polls, size_t count);
  void drain_now(int fd);  // takes what this pipe holds now
  void drain();            // takes what the pipes still hold, without waiting, and closes them
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
