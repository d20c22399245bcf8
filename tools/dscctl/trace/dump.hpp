// What the ranks of one job recorded, read from the files that they dumped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dscctl::trace {

using TimeNs = int64_t;  // unix time

struct Entry {
  int64_t record_id = 0;
  int64_t sequence = 0;  // of the group's collectives, or of this peer and direction
  bool is_message = false;
  bool on_device = false;    // in a group of its own
  bool end_unknown = false;  // it was put on a stream or into a graph, and nobody looks for its end
  bool captured = false;     // into a graph: it runs whenever that does
  std::string name;          // "all_reduce"
  size_t group = 0;          // index in Trace::groups
  std::string dtype;
  std::optional<int64_t> input_elements, output_elements;
  int64_t bytes = 0;
  std::string reduce_op;          // empty where it has no meaning, as the next ones
  std::optional<int> root, peer;  // world ranks
  std::string algorithm;
  std::string result;
  int64_t timeout_ms = 0;
  TimeNs created = 0;
  std::optional<TimeNs> started, met;
  std::optional<TimeNs> completed;  // or failed

  bool is_send() const { return is_message && name.find("recv") == std::string::npos; }
  bool failed() const { return !result.empty() && result != "DSC_OK"; }
  bool unfinished() const { return !completed && !failed() && !end_unknown; }
};

// Elements of one rank's part of an operation, or of a message: what the ranks have in common. None without
// data.
std::optional<int64_t> part_elements(const Entry& entry);

struct Group {
  std::string id;
  std::string name;
  std::vector<int> ranks;              // world ranks; the index is the rank in the group
  int position(int world_rank) const;  // -1 if it is no member
};

// The numbers of a group's latest collectives on one rank; -1 for none.
struct Progress {
  int64_t called = -1;
  int64_t completed = -1;
};

// The latest iteration of a gradient reducer.
struct Iteration {
  struct Gradient {
    std::string name;
    size_t bucket = 0;
    std::optional<TimeNs> ready;
  };
  struct Bucket {
    int64_t bytes = 0;
    std::optional<TimeNs> launched, reduced;
  };

  size_t group = 0;  // index in Trace::groups
  int64_t number = 0;
  TimeNs begun = 0;
  std::optional<TimeNs> finishing, finished;
  std::vector<Gradient> gradients;
  std::vector<Bucket> buckets;
};

struct Dump {
  std::filesystem::path file;
  int rank = 0;
  int world_size = 0;
  int64_t pid = 0;
  std::string host, job, reason, library;
  TimeNs time = 0;
  std::optional<int64_t> unix_minus_monotonic;  // when it was taken
  std::vector<Entry> entries;                   // oldest first
  std::vector<Iteration> iterations;            // one per reducer
  std::map<size_t, Progress> groups;            // by index in Trace::groups; what this rank is a member of
};

// A file that was not used, and why.
struct Problem {
  std::string file;
  std::string text;
};

struct Trace {
  int world_size = 0;
  std::vector<Dump> dumps;  // by rank
  std::vector<Group> groups;
  std::vector<Problem> problems;
  std::vector<int> missing;  // ranks without a usable dump

  const Dump* of_rank(int rank) const;
};

// Reads dumps: every dsc_trace_rank_<rank>.json in a folder, or a file of any name. A file that cannot be
// used becomes a problem; a source that is not there, or an unreadable folder, throws
// std::filesystem::filesystem_error.
Trace load_dumps(const std::vector<std::filesystem::path>& sources);

}  // namespace dscctl::trace
