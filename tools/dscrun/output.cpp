#include "dscrun/output.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace dscrun {
namespace {

constexpr size_t kMaxLineBytes = 64 << 10;
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxQueueBytes = 1 << 20;
constexpr int kDrainReads = 32;  // a pipe holds at most 1 MiB, but a stranger may go on writing to it

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

Sink::Sink(int fd) : fd_(fd), regular_file_(is_regular_file(fd)), colored_(wants_color(fd)) {}

void Sink::push(std::string_view text) {
  if (!broken_) queue_.append(text);
}

bool Sink::full() const { return queue_.size() - sent_ >= kMaxQueueBytes; }

// A descriptor that poll() calls writable takes PIPE_BUF bytes without blocking; it is never made
// non-blocking itself, since others share it. Whole lines where they fit, so that other writers' lines do not
// fall into ours.
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

Stream::Stream(UniqueFd source, Sink& sink, std::string prefix, bool raw)
    : source_(std::move(source)), sink_(&sink), prefix_(std::move(prefix)), raw_(raw) {}

bool Stream::read_some() {
  std::array<char, kReadBytes> data;
  const ssize_t bytes = read(source_.get(), data.data(), data.size());
  if (bytes < 0) return errno == EINTR || errno == EAGAIN;
  feed({data.data(), static_cast<size_t>(bytes)});
  return bytes > 0 && !sink_->broken();
}

void Stream::feed(std::string_view data) {
  if (raw_) return sink_->push(data);
  while (!data.empty()) {
    if (data.front() == '\n') {
      data.remove_prefix(1);
      emit_line();
    } else if (line_.size() == kMaxLineBytes) {
      emit_line();
    } else {
      const size_t bytes = std::min({data.find('\n'), data.size(), kMaxLineBytes - line_.size()});
      line_.append(data.substr(0, bytes));
      data.remove_prefix(bytes);
    }
  }
}

void Stream::emit_line() {
  sink_->push(prefix_);
  sink_->push(line_);
  sink_->push("\n");
  line_.clear();
}

void Stream::finish() {
  if (!line_.empty()) emit_line();
}

// Two descriptors of one file share a queue, or lines of both would cut into each other.
Output::Output(bool prefix, bool raw) : prefix_(prefix), raw_(raw) {
  sinks_.push_back(std::make_unique<Sink>(STDOUT_FILENO));
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) sinks_.push_back(std::make_unique<Sink>(STDERR_FILENO));
}

void Output::add_rank(int rank, UniqueFd out, UniqueFd err) {
  add_stream(rank, std::move(out), *sinks_.front());
  add_stream(rank, std::move(err), *sinks_.back());
}

void Output::add_stream(int rank, UniqueFd source, Sink& sink) {
  fcntl(source.get(), F_SETFL, O_NONBLOCK);
  std::string prefix = prefix_ ? rank_prefix(rank, sink.colored()) : std::string();
  streams_.push_back(std::make_unique<Stream>(std::move(source), sink, std::move(prefix), raw_));
}

void Output::say(const std::string& text) { sinks_.back()->push("dscrun: " + text + "\n"); }

// A full sink is not read for: its ranks wait in write(), as they would in front of the slow reader itself.
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

void Output::drain() {
  for (const auto& stream : streams_) {
    pollfd readable = {stream->fd(), POLLIN, 0};
    for (int i = 0; i < kDrainReads && poll(&readable, 1, 0) == 1; ++i) {
      if (!stream->read_some()) break;
    }
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
