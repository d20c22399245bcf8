#include "dscctl/trace/dump.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "common/text_file.hpp"
#include "dscctl/trace/reader.hpp"

namespace dscctl::trace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "dsc_trace_rank_";
constexpr std::string_view kSuffix = ".json";

// Returns the rank in a dump's file name; -1 if the file is not a dump.
int rank_of_file(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return -1;
  if (name.size() <= kPrefix.size() + kSuffix.size()) return -1;
  const char* end = name.data() + name.size() - kSuffix.size();
  int rank = -1;
  const auto [parsed, error] = std::from_chars(name.data() + kPrefix.size(), end, rank);
  return error == std::errc() && parsed == end ? rank : -1;
}

std::string read_file(const fs::path& path) {
  try {
    return tools::text_of_file(path);
  } catch (const std::invalid_argument& error) {
    throw WrongField(std::string("the file ") + error.what());
  }
}

// Converts the file of one rank to a dump. All dumps share the list of groups.
class DumpParser {
 public:
  DumpParser(const Json& document, std::vector<Group>& groups) : top_(document, ""), groups_(groups) {}

  Dump parse() {
    Dump dump;
    dump.rank = static_cast<int>(top_.integer("rank"));
    dump.world_size = static_cast<int>(top_.integer("world_size"));
    if (dump.world_size < 1 || dump.rank < 0 || dump.rank >= dump.world_size)
      throw WrongField("rank " + std::to_string(dump.rank) + " is outside a world of " +
                       std::to_string(dump.world_size));
    dump.pid = top_.integer_or("pid", 0);
    dump.host = top_.text_or_empty("host");
    dump.job = top_.text_or_empty("job");
    dump.reason = top_.text_or_empty("reason");
    dump.library = top_.text_or_empty("library");
    const Reader clock = top_.object("clock");
    dump.time = clock.integer("dump_ns");
    if (const auto monotonic = clock.optional_integer("monotonic_ns"))
      dump.unix_minus_monotonic = dump.time - *monotonic;
    read_groups(dump);
    read_progress(dump);
    read_entries(dump);
    read_iterations(dump);
    return dump;
  }

 private:
  void read_groups(Dump& dump) {
    const Reader configs = top_.object("pg_config");
    for (const auto& [id, config] : configs.json().items()) {
      const Reader reader(config, configs.path_of(id.c_str()));
      Group group{id, reader.text_or_empty("desc"), read_ranks(reader)};
      if (group.name.empty()) group.name = reader.text_or_empty("name");
      if (group.name.empty()) group.name = id;
      if (group.position(dump.rank) < 0)
        throw WrongField(reader.path_of("ranks") + ": expected a list that contains the rank of this file");
      const size_t index = index_of(std::move(group));
      own_[id] = index;
      dump.groups[index] = Progress{};
    }
  }

  static std::vector<int> read_ranks(const Reader& config) {
    const Json* found = config.find("ranks");  // a list, or text that contains a list
    const Json parsed = found != nullptr && found->is_string()
                            ? Json::parse(found->get<std::string>(), nullptr, false)
                            : (found == nullptr ? Json() : *found);
    const bool valid = parsed.is_array() && std::all_of(parsed.begin(), parsed.end(), [](const Json& rank) {
                         return rank.is_number_integer();
                       });
    if (!valid) config.complain("ranks", "a list of ranks", found);
    return parsed.get<std::vector<int>>();
  }

  // The groups that one split made have different members, but may have the same id.
  size_t index_of(Group&& group) {
    for (size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].id == group.id && groups_[i].ranks == group.ranks) return i;
    groups_.push_back(std::move(group));
    return groups_.size() - 1;
  }

  void read_progress(Dump& dump) {
    const Json* statuses = top_.find("pg_status");
    if (statuses == nullptr) return;
    const Reader all(*statuses, "pg_status");
    for (auto& [index, progress] : dump.groups) {
      const char* id = groups_[index].id.c_str();
      if (all.find(id) == nullptr) continue;
      const Reader status = all.object(id);
      progress.called = status.integer_or("last_enqueued_collective", -1);
      progress.completed = status.integer_or("last_completed_collective", -1);
    }
  }

  void read_entries(Dump& dump) {
    const Json& list = top_.list("entries");
    dump.entries.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const Reader reader(list[i], "entries[" + std::to_string(i) + "]");
      dump.entries.push_back(read_entry(reader));
      const Entry& entry = dump.entries.back();
      if (entry.is_message) continue;
      Progress& progress = dump.groups.at(entry.group);
      progress.called = std::max(progress.called, entry.sequence);
      if (entry.completed && !entry.failed())
        progress.completed = std::max(progress.completed, entry.sequence);
    }
  }

  void read_iterations(Dump& dump) {
    if (top_.find("iterations") == nullptr) return;
    const Json& list = top_.list("iterations");
    for (size_t i = 0; i < list.size(); ++i)
      dump.iterations.push_back(read_iteration(Reader(list[i], "iterations[" + std::to_string(i) + "]")));
  }

  Iteration read_iteration(const Reader& reader) const {
    Iteration iteration;
    iteration.group = group_of(reader);
    iteration.number = reader.integer("number");
    iteration.begun = reader.integer("time_begun_ns");
    iteration.finishing = reader.optional_integer("time_finishing_ns");
    iteration.finished = reader.optional_integer("time_finished_ns");
    const Json& buckets = reader.list("buckets");
    for (size_t b = 0; b < buckets.size(); ++b) {
      const Reader bucket(buckets[b], reader.path_of("buckets") + "[" + std::to_string(b) + "]");
      iteration.buckets.push_back({bucket.integer("bytes"), bucket.optional_integer("time_launched_ns"),
                                   bucket.optional_integer("time_reduced_ns")});
    }
    const Json& gradients = reader.list("gradients");
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Reader gradient(gradients[i], reader.path_of("gradients") + "[" + std::to_string(i) + "]");
      const int64_t bucket = gradient.integer("bucket");
      if (bucket < 0 || bucket >= static_cast<int64_t>(iteration.buckets.size()))
        gradient.complain("bucket", "the number of a bucket", gradient.find("bucket"));
      iteration.gradients.push_back(
          {gradient.text("name"), static_cast<size_t>(bucket), gradient.optional_integer("time_ready_ns")});
    }
    return iteration;
  }

  Entry read_entry(const Reader& reader) {
    Entry entry;
    entry.record_id = reader.integer_or("record_id", 0);
    entry.is_message = reader.flag_or("is_p2p", false);
    entry.on_device = reader.flag_or("device", false);
    entry.sequence = reader.integer(entry.is_message ? "p2p_seq_id" : "collective_seq_id");
    entry.name = reader.text("profiling_name");
    if (const size_t colon = entry.name.find(':'); colon != std::string::npos) entry.name.erase(0, colon + 1);
    entry.group = group_of(reader);
    entry.dtype = first_text(reader, "input_dtypes");
    if (entry.dtype.empty()) entry.dtype = first_text(reader, "output_dtypes");
    entry.input_elements = elements(reader, "input_sizes");
    entry.output_elements = elements(reader, "output_sizes");
    entry.bytes = reader.integer_or("bytes", 0);
    entry.reduce_op = reader.text_or_empty("reduce_op");
    entry.root = world_rank(reader, "root", entry.group);
    entry.peer = world_rank(reader, "peer", entry.group);
    if (entry.is_message && !entry.peer) reader.complain("peer", "a rank", nullptr);
    entry.algorithm = reader.text_or_empty("algorithm");
    entry.result = reader.text_or_empty("result");
    entry.timeout_ms = reader.integer_or("timeout_ms", 0);
    entry.created = reader.integer("time_created_ns");
    entry.started = reader.optional_integer("time_discovered_started_ns");
    entry.met = reader.optional_integer("time_met_ns");
    entry.completed = reader.optional_integer("time_discovered_completed_ns");
    if (!entry.completed) entry.completed = reader.optional_integer("time_failed_ns");
    const std::string state = reader.text_or_empty("state");
    entry.captured = !entry.completed && state == "captured";
    entry.end_unknown = entry.captured || (!entry.completed && state == "launched");
    return entry;
  }

  // Some programs write the id as a number.
  size_t group_of(const Reader& reader) const {
    const Json* found = reader.find("pg_id");
    if (found == nullptr) reader.complain("pg_id", "a group", found);
    const std::string id = found->is_string() ? found->get<std::string>() : found->dump();
    const auto own = own_.find(id);
    if (own == own_.end()) reader.complain("pg_id", "a group of pg_config", found);
    return own->second;
  }

  // In files, roots and peers are ranks of the group.
  std::optional<int> world_rank(const Reader& reader, const char* name, size_t group) const {
    const std::optional<int64_t> rank = reader.optional_integer(name);
    if (!rank) return std::nullopt;
    const std::vector<int>& ranks = groups_[group].ranks;
    if (*rank < 0 || *rank >= static_cast<int64_t>(ranks.size()))
      reader.complain(name, "a rank of the group", reader.find(name));
    return ranks[static_cast<size_t>(*rank)];
  }

  static std::string first_text(const Reader& reader, const char* name) {
    const Json* list = reader.find(name);
    if (list == nullptr || !list->is_array() || list->empty() || !list->front().is_string()) return "";
    return list->front().get<std::string>();
  }

  // Returns the number of elements of all tensors together; nullopt if there is no tensor.
  static std::optional<int64_t> elements(const Reader& reader, const char* name) {
    if (reader.find(name) == nullptr || reader.list(name).empty()) return std::nullopt;
    int64_t sum = 0;
    for (const Json& shape : reader.list(name)) {
      int64_t product = 1;
      if (!shape.is_array()) reader.complain(name, "a list of shapes", reader.find(name));
      for (const Json& extent : shape) {
        if (!extent.is_number_integer()) reader.complain(name, "a list of shapes", reader.find(name));
        product *= extent.get<int64_t>();
      }
      sum += product;
    }
    return sum;
  }

  const Reader top_;
  std::vector<Group>& groups_;
  std::map<std::string, size_t> own_;  // groups of this rank: index by id
};

struct DumpFile {
  fs::path path;
  int rank = -1;  // from the file's name; -1: the name contains no rank

  std::string name() const { return path.filename().string(); }
};

Dump read_dump(const DumpFile& file, std::vector<Group>& groups) {
  const Json document = parse(read_file(file.path));
  std::vector<Group> with_new = groups;  // if the file is rejected, it adds no group
  Dump dump = DumpParser(document, with_new).parse();
  if (file.rank >= 0 && dump.rank != file.rank)
    throw WrongField("rank: expected " + std::to_string(file.rank) + " as in the file's name, found " +
                     std::to_string(dump.rank));
  groups = std::move(with_new);
  dump.file = file.path;
  return dump;
}

// Returns each file once. Files that were given by name may have any name. In folders, only files with the
// name of a dump are used.
std::vector<DumpFile> files_of(const std::vector<fs::path>& sources) {
  std::vector<DumpFile> files;
  std::set<fs::path> known;
  const auto add = [&](const fs::path& path, int rank) {
    if (known.insert(fs::canonical(path)).second) files.push_back({path, rank});
  };
  for (const fs::path& source : sources) {
    if (fs::is_regular_file(source)) {
      add(source, rank_of_file(source.filename().string()));
      continue;
    }
    for (const fs::directory_entry& file : fs::directory_iterator(source))
      if (const int rank = rank_of_file(file.path().filename().string()); rank >= 0) add(file.path(), rank);
  }
  return files;
}

Trace read_files(const std::vector<DumpFile>& files) {
  Trace trace;
  for (const DumpFile& file : files) {
    try {
      trace.dumps.push_back(read_dump(file, trace.groups));
    } catch (const WrongField& wrong) {
      trace.problems.push_back({file.name(), wrong.what()});
    }
  }
  std::ranges::stable_sort(trace.dumps, {}, &Dump::rank);
  return trace;
}

std::string run_text(const Dump& dump) {
  return "job " + dump.job + " of " + std::to_string(dump.world_size) + " ranks";
}

// Removes dumps of earlier jobs. The job is the one of the latest dump.
std::vector<Problem> take_out_other_jobs(const Trace& trace, std::vector<DumpFile>& files) {
  std::vector<Problem> problems;
  const auto latest = std::ranges::max_element(trace.dumps, {}, &Dump::time);
  for (const Dump& dump : trace.dumps) {
    if (dump.job == latest->job && dump.world_size == latest->world_size) continue;
    problems.push_back({dump.file.filename().string(), "job: this dump is of an older " + run_text(dump) +
                                                           "; the latest dump is of " + run_text(*latest)});
    std::erase_if(files, [&](const DumpFile& file) { return file.path == dump.file; });
  }
  return problems;
}

// If there are two dumps of the same rank, uses the later one.
void take_out_twins(Trace& trace) {
  std::ranges::stable_sort(trace.dumps, [](const Dump& a, const Dump& b) {
    return a.rank < b.rank || (a.rank == b.rank && a.time > b.time);
  });
  std::vector<Dump> kept;
  for (Dump& dump : trace.dumps) {
    if (kept.empty() || kept.back().rank != dump.rank)
      kept.push_back(std::move(dump));
    else
      trace.problems.push_back(
          {dump.file.filename().string(),
           "rank: a later dump of rank " + std::to_string(dump.rank) + " is used instead"});
  }
  trace.dumps = std::move(kept);
}

void shift(Dump& dump, int64_t by_ns) {
  dump.time += by_ns;
  for (Entry& entry : dump.entries) {
    entry.created += by_ns;
    for (std::optional<TimeNs>* time : {&entry.started, &entry.met, &entry.completed})
      if (*time) **time += by_ns;
  }
  const auto move = [&](std::optional<TimeNs>& time) {
    if (time) *time += by_ns;
  };
  for (Iteration& iteration : dump.iterations) {
    iteration.begun += by_ns;
    move(iteration.finishing);
    move(iteration.finished);
    for (Iteration::Gradient& gradient : iteration.gradients) move(gradient.ready);
    for (Iteration::Bucket& bucket : iteration.buckets) {
      move(bucket.launched);
      move(bucket.reduced);
    }
  }
}

// Ranks of one host share a monotonic clock. The wall clock may have been set between two dumps, so the
// monotonic clock decides.
void align_clocks(std::vector<Dump>& dumps) {
  std::map<std::string, int64_t> by_host;
  for (Dump& dump : dumps) {
    if (dump.host.empty() || !dump.unix_minus_monotonic) continue;
    const int64_t common = by_host.try_emplace(dump.host, *dump.unix_minus_monotonic).first->second;
    shift(dump, common - *dump.unix_minus_monotonic);
  }
}

}  // namespace

std::optional<int64_t> part_elements(const Entry& entry) {
  const bool receives_part = entry.name == "reduce_scatter" || entry.name == "reduce_scatter_v" ||
                             entry.name == "scatter" || (entry.is_message && !entry.is_send());
  const auto& first = receives_part ? entry.output_elements : entry.input_elements;
  return first ? first : (receives_part ? entry.input_elements : entry.output_elements);
}

int Group::position(int world_rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), world_rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

const Dump* Trace::of_rank(int rank) const {
  for (const Dump& dump : dumps)
    if (dump.rank == rank) return &dump;
  return nullptr;
}

Trace load_dumps(const std::vector<fs::path>& sources) {
  std::vector<DumpFile> files = files_of(sources);
  Trace trace = read_files(files);
  if (const std::vector<Problem> strangers = take_out_other_jobs(trace, files); !strangers.empty()) {
    trace = read_files(files);  // read again, because groups of different jobs may have the same ids
    trace.problems.insert(trace.problems.end(), strangers.begin(), strangers.end());
  }
  take_out_twins(trace);
  align_clocks(trace.dumps);
  if (!trace.dumps.empty()) trace.world_size = trace.dumps.front().world_size;
  for (int rank = 0; rank < trace.world_size; ++rank)
    if (trace.of_rank(rank) == nullptr) trace.missing.push_back(rank);
  return trace;
}

}  // namespace dscctl::trace
