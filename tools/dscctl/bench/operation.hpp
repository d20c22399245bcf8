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

// The bytes of a measurement are those of the largest buffer that any rank has; elements are f32.
struct Operation {
  const char* name;
  const char* recorded;                // its name in a trace
  bool in_parts;                       // a count is one rank's part of the bytes
  bool moves;                          // data
  bool in_pairs;                       // of neighbours, there and back
  double (*bus_factor)(double ranks);  // bytes on the busiest link over bytes, as other benchmarks count
  dsc_result_t (*call)(const Rank& self, float* in, float* out, size_t count);
};

const std::vector<Operation>& operations();

// Throws std::invalid_argument, naming the known ones.
const Operation& find_operation(const std::string& name);

// "4,1KiB,25MiB". Throws std::invalid_argument.
std::vector<size_t> parse_sizes(const std::string& text);
std::string size_text(size_t bytes);

// One operation on buffers of one kind and size; "all_reduce:plain:1024" between processes.
struct Case {
  const Operation* operation = nullptr;
  bool shared = false;  // memory of dsc_mem_alloc()
  size_t bytes = 0;
};
std::string case_text(const Case& one);
std::vector<Case> parse_cases(const std::string& text);  // of case_text(), with commas

}  // namespace dscctl::bench
