#include "dscrun/output.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace dscrun {
namespace {

constexpr size_t kMaxLineBytes = 64 << 10;
constexpr size_t kMaxPrefixBytes = 16;
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxQueueBytes = 1 << 20;
// This number of reads empties a pipe. It is limited, because an unrelated process may keep writing.
constexpr int kDrainReads = 32;

bool wants_color(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
  return isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') && !dumb;
}

bool is_regular_file(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool same_file(int a, int b) {
  struct stat info_a {
  }, info_b{};
  if (fstat(a, &info_a) != 0 || fstat(b, &info_b) != 0) return false;
  return info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino;
}

std::string rank_prefix(int rank, bool colored) {
  constexpr std::array kColors = {"36", "33", "32", "35", "34", "31"};
  const std::string plain = "[" + std::to_string(rank) + "]";
  if (!colored) return plain + " ";
  return std::string("\x1b[") + kColors[static_cast<size_t>(rank) % kColors.size()] + "m" + plain +
         "\x1b[0m ";
}

}  // namespace

Sink::Sink(int fd, bool color)
    : fd_(fd), regular_file_(is_regular_file(fd)), colored_(color && wants_color(fd)) {}

void Sink::push(std::string_view text) {
  if (!broken_) queue_.append(text);
}

bool Sink::full() const { return queue_.size() - sent_ >= kMaxQueueBytes; }

// Returns how many bytes to write next. A descriptor that poll() reports as writable takes PIPE_BUF bytes
// without blocking. It is not made non-blocking, because other processes share it. Whole lines are written if
// they fit, so that lines of other writers do not mix with them.
size_t Sink::next_bytes() const {
  const size_t left = queue_.size() - sent_;
  if (regular_file_ || left <= PIPE_BUF) return left;
  const size_t last_newline = std::string_view(queue_).substr(sent_, PIPE_BUF).rfind('\n');
  return last_newline == std::string_view::npos ? PIPE_BUF : last_newline + 1;
}

int Sink::write_some() {
  const ssize_t written = write(fd_, queue_.data() + sent_, next_bytes());
  if (written < 0) {
    if (errno == EINTR || errno == EAGAIN) return 0;
    broken_ = true;
    discard();
    return errno;
  }
  sent_ += static_cast<size_t>(written);
  if (sent_ == queue_.size()) discard();
  if (sent_ >= kMaxQueueBytes / 2) queue_.erase(0, std::exchange(sent_, 0));
  return 0;
}

Stream::Stream(UniqueFd source, Sink& sink, size_t max_line_bytes, OnLine on_line)
    : source_(std::move(source)),
      sink_(&sink),
      max_line_bytes_(max_line_bytes),
      on_line_(std::move(on_line)) {}

bool Stream::read_some() {
  std::array<char, kReadBytes> data;
  const ssize_t bytes = read(source_.get(), data.data(), data.size());
  if (bytes < 0) return errno == EINTR || errno == EAGAIN;
  feed({data.data(), static_cast<size_t>(bytes)});
  return bytes > 0 && !sink_->broken();
}

void Stream::feed(std::string_view data) {
  if (!on_line_) return sink_->push(data);
  while (!data.empty()) {
    if (data.front() == '\n') {
      data.remove_prefix(1);
      emit_line();
    } else if (line_.size() == max_line_bytes_) {
      emit_line();
    } else {
      const size_t bytes = std::min({data.find('\n'), data.size(), max_line_bytes_ - line_.size()});
      line_.append(data.substr(0, bytes));
      data.remove_prefix(bytes);
    }
  }
}

void Stream::emit_line() {
  on_line_(*sink_, line_);
  line_.clear();
}

void Stream::finish() {
  if (!line_.empty()) emit_line();
}

// If standard output and standard error are the same file, they share a queue. With two queues, lines of one
// output could be cut by lines of the other.
Output::Output(bool prefix, bool raw, bool color) : prefix_(prefix), raw_(raw) {
  sinks_.push_back(std::make_unique<Sink>(STDOUT_FILENO, color));
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    sinks_.push_back(std::make_unique<Sink>(STDERR_FILENO, color));
}

void Output::add_rank(int rank, UniqueFd out, UniqueFd err) {
  const auto add = [&](UniqueFd source, Sink& sink) {
    Stream::OnLine with_prefix = [prefix = prefix(rank, sink)](Sink& target, std::string_view line) {
      target.push(prefix), target.push(line), target.push("\n");
    };
    add_stream(std::move(source), sink, kMaxLineBytes, raw_ ? nullptr : std::move(with_prefix));
  };
  add(std::move(out), *sinks_.front());
  add(std::move(err), *sinks_.back());
}

void Output::add_plain(UniqueFd out, UniqueFd err) {
  add_stream(std::move(out), *sinks_.front(), kMaxLineBytes, nullptr);
  add_stream(std::move(err), *sinks_.back(), kMaxLineBytes, nullptr);
}

void Output::add_remote(const std::string& host, UniqueFd out, UniqueFd err, const OnEvent& on_event) {
  const Stream::OnLine on_line = [this, host, on_event](Sink& sink, std::string_view line) {
    relay(sink, host, line, on_event);
  };
  add_stream(std::move(out), *sinks_.front(), kMaxLineBytes + kMaxPrefixBytes, on_line);
  add_stream(std::move(err), *sinks_.back(), kMaxLineBytes + kMaxPrefixBytes, on_line);
}

void Output::add_stream(UniqueFd source, Sink& sink, size_t max_line_bytes, Stream::OnLine on_line) {
  fcntl(source.get(), F_SETFL, O_NONBLOCK);
  streams_.push_back(std::make_unique<Stream>(std::move(source), sink, max_line_bytes, std::move(on_line)));
}

std::string Output::prefix(int rank, const Sink& sink) const {
  return prefix_ ? rank_prefix(rank, sink.colored()) : std::string();
}

void Output::relay(Sink& sink, const std::string& host, std::string_view line, const OnEvent& on_event) {
  if (line.starts_with('@')) return on_event(line);
  int rank = 0;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + std::min<size_t>(1, line.size()), end, rank);
  if (!line.starts_with('[') || error != std::errc() || end - stop < 2 || stop[0] != ']') {
    constexpr std::string_view kOwn = "dscrun: ";
    if (line.starts_with(kOwn)) line.remove_prefix(kOwn.size());
    return say(host + ": " + std::string(line));
  }
  sink.push(prefix(rank, sink));
  sink.push(line.substr(static_cast<size_t>(stop + 2 - line.data())));
  sink.push("\n");
}

void Output::say(const std::string& text) { sinks_.back()->push("dscrun: " + text + "\n"); }

void Output::report(const std::string& line) { sinks_.front()->push(line + "\n"); }

// While a sink is full, the streams that write to it are not read. Their ranks then wait in write(), as they
// would if they wrote to the slow reader directly.
void Output::append_polls(std::vector<pollfd>& polls) const {
  for (const auto& stream : streams_) {
    if (!stream->sink().full()) polls.push_back({stream->fd(), POLLIN, 0});
  }
  for (const auto& sink : sinks_) {
    if (sink->pending()) polls.push_back({sink->fd(), POLLOUT, 0});
  }
}

void Output::handle(const pollfd* polls, size_t count) {
  for (const pollfd* poll = polls; poll != polls + count; ++poll) {
    if (poll->revents == 0) continue;
    if (poll->events == POLLOUT) {
      for (const auto& sink : sinks_) {
        if (sink->fd() != poll->fd) continue;
        const int error = sink->write_some();
        if (error != 0 && error != EPIPE)
          say("cannot write to fd " + std::to_string(sink->fd()) + ": " + strerror(error));
      }
    } else if (Stream* stream = find_stream(poll->fd); stream != nullptr && !stream->read_some()) {
      close_stream(stream);
    }
  }
}

static void drain_stream(Stream& stream) {
  pollfd readable = {stream.fd(), POLLIN, 0};
  for (int i = 0; i < kDrainReads && poll(&readable, 1, 0) == 1; ++i) {
    if (!stream.read_some()) break;
  }
}

void Output::drain_now(int fd) {
  if (Stream* stream = find_stream(fd)) drain_stream(*stream);
}

void Output::drain() {
  for (const auto& stream : streams_) {
    drain_stream(*stream);
    stream->finish();
  }
  streams_.clear();
}

void Output::discard() {
  for (const auto& sink : sinks_) sink->discard();
}

bool Output::pending() const {
  return std::any_of(sinks_.begin(), sinks_.end(), [](const auto& sink) { return sink->pending(); });
}

Stream* Output::find_stream(int fd) {
  const auto found =
      std::find_if(streams_.begin(), streams_.end(), [fd](const auto& s) { return s->fd() == fd; });
  return found == streams_.end() ? nullptr : found->get();
}

void Output::close_stream(Stream* stream) {
  stream->finish();
  std::erase_if(streams_, [stream](const auto& s) { return s.get() == stream; });
}

}  // namespace dscrun
