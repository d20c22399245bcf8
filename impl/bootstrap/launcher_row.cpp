#include "bootstrap/launcher_row.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "bootstrap/host_list.hpp"

namespace dsc {
namespace {

constexpr size_t kLongestShown = 200;

Finding number(const char* name, const Environment& environment) {
  const auto text = name != nullptr ? environment(name) : std::nullopt;
  if (!text) return {};
  Finding found{name, 0};
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, found.value);
  if (error != std::errc{} || stop != end)
    fail(DSC_ERR_CONFIG, "%s is '%.60s', expected a whole number", name, text->c_str());
  return found;
}

Finding number(const Names& names, const Environment& environment) {
  for (const char* name : names)
    if (const Finding found = number(name, environment)) return found;
  return {};
}

void check_same(const Launcher& launcher, const Environment& environment) {
  for (const Names& pair : launcher.same) {
    const Finding a = number(pair[0], environment), b = number(pair[1], environment);
    if (a && b && a.value != b.value)
      fail(DSC_ERR_CONFIG, "%s is %d, but %s is %d; expected the same number", a.variable, a.value,
           b.variable, b.value);
  }
}

// Throws CONFIG if the numbers of a launcher contradict each other.
void check_counts(const RowFindings& row) {
  const Finding &size = row.world_size, &local_size = row.local_world_size, &hosts = row.hosts;
  if (size.value < 1) fail(DSC_ERR_CONFIG, "%s is %d, expected 1 or more", size.variable, size.value);
  if (row.local_rank && row.local_rank.value < 0)
    fail(DSC_ERR_CONFIG, "%s is %d, expected 0 or more", row.local_rank.variable, row.local_rank.value);
  if (local_size && (local_size.value < 1 || local_size.value > size.value))
    fail(DSC_ERR_CONFIG, "%s is %d, expected 1 to %s (%d)", local_size.variable, local_size.value,
         size.variable, size.value);
  if (hosts && hosts.value < 1)
    fail(DSC_ERR_CONFIG, "%s is %d, expected 1 or more", hosts.variable, hosts.value);
  if (hosts && local_size && (hosts.value == 1) != (local_size.value == size.value))
    fail(DSC_ERR_CONFIG,
         "%s is %d, %s is %d and %s is %d; expected equal sizes for one host and different sizes for several "
         "hosts",
         local_size.variable, local_size.value, size.variable, size.value, hosts.variable, hosts.value);
}

}  // namespace

RowFindings read_row(const Launcher& launcher, const Environment& environment) {
  RowFindings row;
  if (launcher.only_with != nullptr && !environment(launcher.only_with)) {
    row.missing = std::string(launcher.only_with) + " is not set";
    return row;
  }
  if (launcher.not_with != nullptr && environment(launcher.not_with)) {
    row.missing = std::string(launcher.not_with) + " is set";
    return row;
  }
  row.rank = number(launcher.rank, environment);
  row.world_size = number(launcher.world_size, environment);
  if (!row.rank || !row.world_size) {
    row.half_set = row.rank || row.world_size;
    const Names& names = row.rank ? launcher.world_size : launcher.rank;
    const std::string absent = names[0];
    const std::string either = absent + (names[1] ? std::string(" (or ") + names[1] + ")" : "");
    const Finding& present = row.rank ? row.rank : row.world_size;
    row.missing = row.half_set ? std::string(present.variable) + " is set, but " + either + " is not"
                               : absent + " is not set";
    return row;
  }
  row.local_rank = number(launcher.local_rank, environment);
  row.local_world_size = number(launcher.local_world_size, environment);
  row.hosts = number(launcher.hosts, environment);
  check_same(launcher, environment);
  check_counts(row);
  return row;
}

std::string row_job_id(const Launcher& launcher, const Environment& environment) {
  std::string id;
  for (const char* name : launcher.job_id)
    if (const auto part = name != nullptr ? environment(name) : std::nullopt)
      id += (id.empty() ? "" : ".") + *part;
  return id;
}

std::optional<std::string> row_master(const HostSource& source, const Environment& environment) {
  const auto text = source.variable != nullptr ? environment(source.variable) : std::nullopt;
  if (!text) return std::nullopt;
  struct Reader {
    std::optional<std::string> (*read)(std::string_view);
    const char* expected;
  };
  // Parsers for the forms in which launchers give the host; the index is a HostForm.
  static constexpr Reader kReaders[] = {{plain_host, "a host name or an address"},
                                        {host_before_colon, "HOST:PORT"},
                                        {first_slurm_host, "a list of hosts such as node[1-3,7],gpu05"},
                                        {first_sagemaker_host, "a JSON object with a list \"hosts\""}};
  const Reader& reader = kReaders[static_cast<size_t>(source.form)];
  if (auto host = reader.read(*text)) return host;
  fail(DSC_ERR_CONFIG, "%s is '%.60s', expected %s", source.variable, text->c_str(), reader.expected);
}

VariableList row_variables(const Launcher& launcher, const Environment& environment) {
  VariableList variables;
  const auto add = [&](const char* name) {
    const auto known = [name](const auto& entry) { return entry.first == name; };
    if (name == nullptr || std::any_of(variables.begin(), variables.end(), known)) return;
    auto value = environment(name);
    if (value && value->size() > kLongestShown)
      // Long values are not shown, because SageMaker's variable contains all settings of the job.
      value = "(" + std::to_string(value->size()) + " characters)";
    variables.emplace_back(name, std::move(value));
  };
  add(launcher.only_with);
  add(launcher.not_with);
  for (const Names* names : {&launcher.rank, &launcher.world_size, &launcher.local_rank,
                             &launcher.local_world_size, &launcher.hosts, &launcher.job_id})
    for (const char* name : *names) add(name);
  add(launcher.agent_store);
  add(launcher.one_host_master.variable);
  add(launcher.master.variable);
  return variables;
}

}  // namespace dsc
