// The operations that can be measured, and the two buffers that each works on.
#pragma once

#include <dsc/dsc.h>

#include <cstddef>
#include <string>
#include <vector>

namespace dscctl::bench {

struct Rank {
  dsc_comm_t* world = nullptr;
  int32_t rank = 0;
  int32_t size = 0;
};

// The size of a measurement is that of the largest buffer of any rank. Elements are f32.
struct Operation {
  const char* name;
  const char* recorded;  // its name in a trace
  bool in_parts;         // a count is the size of one rank's part, not of the whole buffer
  bool moves;            // the operation moves data
  bool in_pairs;         // neighboring ranks exchange messages in pairs
  // Bytes on the busiest link divided by the size, as other benchmarks define it.
  double (*bus_factor)(double ranks);
  dsc_result_t (*call)(const Rank& self, float* in, float* out, size_t count);
};

const std::vector<Operation>& operations();

// Throws std::invalid_argument, with a list of the known operations, if the name is unknown.
const Operation& find_operation(const std::string& name);

// Parses sizes such as "4,1KiB,25MiB". Throws std::invalid_argument.
std::vector<size_t> parse_sizes(const std::string& text);
std::string size_text(size_t bytes);

// One operation with buffers of one kind and size. Processes exchange it as text, such as
// "all_reduce:plain:1024".
struct Case {
  const Operation* operation = nullptr;
  bool shared = false;  // memory of dsc_mem_alloc()
  size_t bytes = 0;
};
std::string case_text(const Case& one);
std::vector<Case> parse_cases(const std::string& text);  // a comma-separated list of case_text()

}  // namespace dscctl::bench
