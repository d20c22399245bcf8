#include "dscrun/job.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "dsc/version.h"

namespace dscrun {
namespace {

constexpr size_t kMaxJobBytes = 16u << 20;
constexpr std::string_view kMagic = "dscrun-job";

std::string version() {
  return std::to_string(DSC_VERSION_MAJOR) + "." + std::to_string(DSC_VERSION_MINOR) + "." +
         std::to_string(DSC_VERSION_PATCH);
}

// Visits all fields, so that encoding and decoding use the same list.
template <typename Job, typename Visitor>
void visit(Job& job, Visitor&& field) {
  field(job.node_rank), field(job.node_count), field(job.first_rank), field(job.ranks);
  field(job.world_size), field(job.port), field(job.restart_count), field(job.grace_ms),
      field(job.lost_after_ms);
  field(job.master_addr), field(job.job_id), field(job.token), field(job.directory), field(job.devices);
  field(job.environment), field(job.command);
}

// Writes every text as "LENGTH:BYTES", and every list with its size first.
struct Writer {
  std::string text;
  void operator()(const std::string& value) { text += std::to_string(value.size()) + ":" + value; }
  void operator()(int value) { (*this)(std::to_string(value)); }
  void operator()(const std::vector<std::string>& values) {
    (*this)(static_cast<int>(values.size()));
    for (const std::string& value : values) (*this)(value);
  }
};

struct Reader {
  std::string_view text;

  void operator()(std::string& value) {
    size_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const auto digits = static_cast<size_t>(end - text.data());
    if (error != std::errc() || digits == text.size() || *end != ':' || size > text.size() - digits - 1)
      throw std::runtime_error("the job on standard input is damaged");
    value = text.substr(digits + 1, size);
    text.remove_prefix(digits + 1 + size);
  }
  void operator()(int& value) {
    std::string digits;
    (*this)(digits);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || *end != '\0')
      throw std::runtime_error("the job on standard input is damaged");
  }
  void operator()(std::vector<std::string>& values) {
    int size = 0;
    (*this)(size);
    for (int i = 0; i < size; ++i) (*this)(values.emplace_back());
  }
};

// Reads exactly this number of bytes, because the bytes after them are for another reader.
std::string read_exactly(int fd, size_t size) {
  std::string data(size, '\0');
  for (size_t got = 0; got < size;) {
    const ssize_t bytes = read(fd, data.data() + got, size - got);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) throw std::runtime_error("standard input ended before the job was complete");
    got += static_cast<size_t>(bytes);
  }
  return data;
}

std::string read_line(int fd) {
  std::string line;
  for (char letter = 0; line.size() < 80; line += letter) {
    letter = read_exactly(fd, 1).front();
    if (letter == '\n') return line;
  }
  throw std::runtime_error("expected a job on standard input, from the dscrun that starts this one");
}

int whole_ms(Millis time) { return static_cast<int>(std::min<int64_t>(time.count(), INT_MAX)); }

bool travels(std::string_view entry) {
  constexpr std::array<std::string_view, 3> kStarts = {"DSC_", "NCCL_", "PYTHONPATH="};
  // These variables apply only to this host or this process, or are sent separately.
  constexpr std::array<std::string_view, 4> kStays = {"DSC_HOST_ID=", "DSC_TOKEN",
                                                      "DSC_JOB_ID=", "DSC_RESTART_COUNT="};
  bool result = false;
  for (const auto start : kStarts) result = result || entry.starts_with(start);
  for (const auto start : kStays) result = result && !entry.starts_with(start);
  return result;
}

}  // namespace

std::vector<std::string> forwarded_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (travels(*entry)) result.emplace_back(*entry);
  return result;
}

NodeJob make_job(const Options& options, const Plan& plan, size_t node, int restart_count,
                 const std::string& token) {
  const Node& own = plan.nodes[node];
  NodeJob job{.node_rank = static_cast<int>(node),
              .node_count = static_cast<int>(plan.nodes.size()),
              .first_rank = own.first_rank,
              .ranks = own.ranks,
              .world_size = plan.world_size,
              .port = plan.port,
              .restart_count = options.restart_count + restart_count,
              .grace_ms = whole_ms(options.grace),
              .lost_after_ms = whole_ms(options.lost_after),
              .foreign = options.node_rank == "auto",
              .master_addr = plan.master_addr,
              .job_id = plan.job_id,
              .token = token,
              .directory = {},
              .devices = own.devices,
              .environment = {},
              .command = options.command};
  // A restart gets another job id, so that a rank of an earlier start cannot find the new ranks.
  if (restart_count > 0) job.job_id += "." + std::to_string(restart_count);
  if (!own.is_here && plan.way == Way::kSsh) {
    std::array<char, 4096> directory{};
    if (getcwd(directory.data(), directory.size()) != nullptr) job.directory = directory.data();
    job.environment = forwarded_environment();
  }
  job.environment.insert(job.environment.end(), options.extra_env.begin(), options.extra_env.end());
  return job;
}

std::string encode_job(const NodeJob& job) {
  Writer writer;
  visit(job, writer);
  return std::string(kMagic) + " " + version() + " " + std::to_string(writer.text.size()) + "\n" +
         writer.text;
}

NodeJob read_job(int fd) {
  const std::string line = read_line(fd);
  const std::string start = std::string(kMagic) + " ";
  if (!line.starts_with(start))
    throw std::runtime_error("expected a job on standard input, from the dscrun that starts this one");
  const size_t space = line.find(' ', start.size());
  if (line.substr(start.size(), space - start.size()) != version())
    throw std::runtime_error("this dscrun is version " + version() +
                             ", but the dscrun that starts it is version " +
                             line.substr(start.size(), space - start.size()));
  size_t size = 0;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + std::min(space + 1, line.size()), end, size);
  if (space == std::string::npos || error != std::errc() || stop != end || size > kMaxJobBytes)
    throw std::runtime_error("the job on standard input is damaged");
  const std::string text = read_exactly(fd, size);
  NodeJob job;
  Reader reader{text};
  visit(job, reader);
  return job;
}

}  // namespace dscrun
