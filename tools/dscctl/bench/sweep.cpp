#include "dscctl/bench/sweep.hpp"

#include <iostream>
#include <stdexcept>

#include "common/output_file.hpp"
#include "dscctl/bench/heat_map.hpp"
#include "dscctl/bench/report.hpp"

namespace dscctl::bench {
namespace {

std::vector<Case> cases_of(const Operation& operation, const std::vector<size_t>& sizes) {
  std::vector<Case> cases;
  if (!operation.moves) return {{&operation, false, 0}};
  for (const size_t bytes : sizes)
    for (const bool shared : {false, true}) cases.push_back({&operation, shared, bytes});
  return cases;
}

bool runs_on(const Operation& operation, int ranks) { return !operation.in_pairs || ranks % 2 == 0; }

void check(const Sweep& sweep) {
  if (sweep.operation == kAll) {
    if (sweep.explain && !sweep.as_json)
      throw std::invalid_argument(
          "-v explains one operation: expected an operation instead of all, or --json");
    return;
  }
  const Operation& operation = find_operation(sweep.operation);
  if (!sweep.svg.empty() && !operation.moves)
    throw std::invalid_argument(sweep.operation + " moves no data: expected another operation with --svg");
  for (const int ranks : sweep.ranks)
    if (!runs_on(operation, ranks))
      throw std::invalid_argument(std::string(operation.name) +
                                  " runs between pairs of ranks: expected even numbers in --ranks, got " +
                                  std::to_string(ranks));
}

// The functions below measure with one number of ranks. They add the results to the report, and print them as
// text if the user wants no JSON.

std::vector<Row> sweep_one(const Sweep& sweep, Job job, Json& report) {
  const Operation& operation = find_operation(sweep.operation);
  job.cases = cases_of(operation, sweep.sizes);
  std::vector<Row> rows;
  const auto facts = measure(job, [&](const Facts&, const Row& row) {
    rows.push_back(row);
    if (!sweep.as_json && rows.size() == 1) std::cout << headline(operation, job.ranks, job.explain);
    if (!sweep.as_json) std::cout << row_text(row, job.ranks, job.explain) << std::flush;
  });
  if (!sweep.as_json) std::cout << turns_text(rows, job.ranks, job.explain);
  if (!sweep.as_json && job.explain) std::cout << reasons_text(*facts, rows);
  add_to_json(report, *facts, rows, job.ranks);
  return rows;
}

std::vector<Row> sweep_all(const Sweep& sweep, Job job, Json& report) {
  std::vector<Row> all;
  if (!sweep.as_json) std::cout << table_head(sweep.sizes, job.ranks);
  for (const Operation& operation : operations()) {
    if (!runs_on(operation, job.ranks)) {
      if (!sweep.as_json) std::cout << operation.name << " runs between pairs of ranks\n";
      continue;
    }
    job.cases = cases_of(operation, sweep.sizes);
    std::vector<Row> rows;
    const auto facts = measure(job, [&](const Facts&, const Row& row) { rows.push_back(row); });
    if (!sweep.as_json) std::cout << table_lines(operation, rows) << std::flush;
    add_to_json(report, *facts, rows, job.ranks);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  if (!sweep.as_json) std::cout << turns_text(all, job.ranks, job.explain);
  return all;
}

}  // namespace

void measure(const Sweep& sweep) {
  check(sweep);
  if (!sweep.svg.empty()) tools::expect_writable(sweep.svg);
  const auto sweep_with = sweep.operation == kAll ? sweep_all : sweep_one;
  Json report;
  std::vector<SweepRows> all;
  for (const int ranks : sweep.ranks) {
    if (!sweep.as_json && !all.empty()) std::cout << "\n";
    const Job job{ranks, {}, {}, sweep.budget_ms, sweep.explain || sweep.as_json};
    all.push_back({ranks, sweep_with(sweep, job, report)});
  }
  if (sweep.as_json) std::cout << report.dump(1) << "\n";
  if (!sweep.svg.empty()) tools::write_file(sweep.svg, heat_map(all));
}

}  // namespace dscctl::bench
