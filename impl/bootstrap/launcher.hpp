// Where rank and world size come from: the caller's options, RANK and WORLD_SIZE, PMIx, another launcher's
// variables, or nobody (one process). One table of launchers; the report says which one won and what was
// missing elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/launcher_row.hpp"
#include "bootstrap/local_address.hpp"
#include "bootstrap/pmix.hpp"
#include "dsc/types.h"

namespace dsc {

// What the caller of dsc_init_distributed() chose.
struct LaunchOptions {
  const char* init_method = nullptr;  // as in init_method.hpp; null: env://
  const char* job_id = nullptr;
  int32_t rank = -1;  // -1: from the environment, as below
  int32_t world_size = -1;
  int32_t local_rank = -1;
  int32_t port = 0;        // 0: MASTER_PORT, or 29500
  uint32_t sources = 0;    // bits of dsc_source; 0: all
  bool has_token = false;  // the caller gives one
  bool has_store = false;  // the caller brings a store through which ranks can reach each other
};

// How the ranks find each other.
enum class MeetingWay {
  kNobody,   // a world of one rank
  kOneHost,  // at an abstract socket, without a network
  kTcp,      // at a store that rank 0 serves
};

struct Launch {
  int32_t rank = 0;  // may lie outside the world: then the meeting tells all ranks
  int32_t world_size = 1;
  int32_t local_rank = -1;        // -1: to be derived
  int32_t local_world_size = -1;  // -1: unknown
  std::string job_id;             // empty: none
  std::string master_addr;
  int32_t master_port = 0;
  std::string source;                                           // who gave rank and world size
  std::string job_id_from, master_addr_from, master_port_from;  // a variable, an option, or "default"
  bool agent_store = false;  // torchrun's agent listens at the address itself, with a store of PyTorch's
  MeetingWay way = MeetingWay::kNobody;
  std::string way_from;      // why that way, in words
  std::string told_through;  // what carries the place of rank 0's store; empty: it is at the address
  std::string advice;        // what to set on this host, in words; empty: nothing
  std::string report;        // several lines: what was looked at, and what came of it
};

// One source, and what came of it.
struct SourceFinding {
  enum class State { kChosen, kAbsent, kIncomplete, kExcluded, kFailed, kBeaten };

  std::string name;
  State state;
  std::string why;  // in words; empty if chosen
  VariableList variables;
};

// Everything, also where nothing came of it.
struct LaunchFindings {
  std::vector<SourceFinding> sources;  // in order of precedence
  Launch launch;                       // as far as it came
  bool has_address = false;            // all of it was found; an error may still forbid it
  dsc_result_t code = DSC_OK;
  std::string error;
};

// locate_address() with the deadline of the start-up.
using LocateAddress = std::function<AddressPlace(const std::string& address)>;

// Throws INVALID_ARG (options), CONFIG (impossible or half-set variables), and what ask_pmix() throws where
// only PMIx could tell.
Launch find_launch(const LaunchOptions& options, const Environment& environment, const LocateAddress& locate,
                   const AskPmix& ask_pmix);

// The same with every source looked at, and with the error as part of the answer.
LaunchFindings explain_launch(const LaunchOptions& options, const Environment& environment,
                              const LocateAddress& locate, const AskPmix& ask_pmix);

}  // namespace dsc
