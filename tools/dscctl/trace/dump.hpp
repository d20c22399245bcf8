// The records of all ranks of one job, read from their dump files.
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
  // Sequence number in the group's collectives, or in the messages with this peer and direction.
  int64_t sequence = 0;
  bool is_message = false;
  bool on_device = false;    // the operation ran on a device
  bool end_unknown = false;  // launched on a stream or in a graph, and its end was not tracked
  bool captured = false;     // captured into a graph, so it runs whenever the graph runs
  std::string name;          // such as "all_reduce"
  size_t group = 0;          // index in Trace::groups
  std::string dtype;
  std::optional<int64_t> input_elements, output_elements;
  int64_t bytes = 0;
  std::string reduce_op;          // empty if it does not apply; this holds for the next fields too
  std::optional<int> root, peer;  // world ranks
  std::string algorithm;
  std::string result;
  int64_t timeout_ms = 0;
  TimeNs created = 0;
  std::optional<TimeNs> started, met;
  std::optional<TimeNs> completed;  // the time of its end, also if it failed

  bool is_send() const { return is_message && name.find("recv") == std::string::npos; }
  bool failed() const { return !result.empty() && result != "DSC_OK"; }
  bool unfinished() const { return !completed && !failed() && !end_unknown; }
};

// Returns the number of elements of one rank's part of an operation, or of a message, which must be equal on
// all ranks. nullopt if the operation has no data.
std::optional<int64_t> part_elements(const Entry& entry);

struct Group {
  std::string id;
  std::string name;
  std::vector<int> ranks;              // world ranks; the index is the rank in the group
  int position(int world_rank) const;  // returns -1 if the rank is not a member
};

// Sequence numbers of the latest collectives that one rank has called and completed in a group; -1 for none.
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
  std::optional<int64_t> unix_minus_monotonic;  // at the time of the dump
  std::vector<Entry> entries;                   // oldest first
  std::vector<Iteration> iterations;            // one per reducer
  // Groups of which this rank is a member, by index in Trace::groups.
  std::map<size_t, Progress> groups;
};

// A file that was not used, and the reason.
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

// Reads dumps: a file with any name, or every dsc_trace_rank_<rank>.json in a folder. A file that cannot be
// used becomes a problem. A path that does not exist, or a folder that cannot be read, throws
// std::filesystem::filesystem_error.
Trace load_dumps(const std::vector<std::filesystem::path>& sources);

}  // namespace dscctl::trace
