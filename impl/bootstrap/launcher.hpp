// Finds rank and world size. The sources are, in this order: the caller's options, RANK and WORLD_SIZE, PMIx,
// and the variables of other launchers. If no source has them, the process is a world of its own. One table
// lists the launchers. The report names the source that was used, and says what was missing in the others.
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

// What the caller of dsc_init_distributed() has chosen.
struct LaunchOptions {
  const char* init_method = nullptr;  // see init_method.hpp; null means env://
  const char* job_id = nullptr;
  int32_t rank = -1;  // rank, world_size and local_rank: -1 means that the environment decides
  int32_t world_size = -1;
  int32_t local_rank = -1;
  int32_t port = 0;        // 0: use MASTER_PORT, or 29500 if it is not set
  uint32_t sources = 0;    // bits of dsc_source; 0 means all
  bool has_token = false;  // whether the caller passes a token
  bool has_store = false;  // whether the caller passes a store through which ranks can reach each other
};

// How the ranks find each other.
enum class MeetingWay {
  kNobody,   // no meeting, because the world has only one rank
  kOneHost,  // at an abstract socket, without a network
  kTcp,      // through a store that rank 0 serves over TCP
};

// The result of the search: the role of this process in its job.
struct Launch {
  int32_t rank = 0;  // may be outside the world; then the meeting reports an error to all ranks
  int32_t world_size = 1;
  int32_t local_rank = -1;        // -1 means that it is computed from the ranks of the same host
  int32_t local_world_size = -1;  // -1: unknown
  std::string job_id;             // empty if the job has no id
  std::string master_addr;
  int32_t master_port = 0;
  std::string source;  // name of the source of rank and world size
  // Source of each value: a variable, an option, or "default".
  std::string job_id_from, master_addr_from, master_port_from;
  bool agent_store = false;  // whether torchrun's agent listens at the address with a PyTorch store
  MeetingWay way = MeetingWay::kNobody;
  std::string way_from;  // why this way was chosen, for the report
  // The exchange through which ranks learn the address of rank 0's store; empty: it is the master address.
  std::string told_through;
  std::string advice;  // advice on what to set on this host; empty if there is none
  std::string report;  // several lines that list the sources and what was found in them
};

// A source, and whether rank and world size were taken from it.
struct SourceFinding {
  enum class State { kChosen, kAbsent, kIncomplete, kExcluded, kFailed, kBeaten };

  std::string name;
  State state;
  std::string why;  // the reason, as text; empty if the source was chosen
  VariableList variables;
};

// The complete result of a search. It is also filled if the search failed.
struct LaunchFindings {
  std::vector<SourceFinding> sources;  // in order of precedence
  Launch launch;                       // only the members that were found are set
  bool has_address = false;            // whether the address was found; `code` may still be an error
  dsc_result_t code = DSC_OK;
  std::string error;
};

// Calls locate_address() with the deadline of start-up.
using LocateAddress = std::function<AddressLocation(const std::string& address)>;

// Throws INVALID_ARG for wrong options, CONFIG for invalid or incomplete variables, and what ask_pmix()
// throws if PMIx is the only source.
Launch find_launch(const LaunchOptions& options, const Environment& environment, const LocateAddress& locate,
                   const AskPmix& ask_pmix);

// Like find_launch(), but examines every source, and returns an error as part of the result.
LaunchFindings explain_launch(const LaunchOptions& options, const Environment& environment,
                              const LocateAddress& locate, const AskPmix& ask_pmix);

}  // namespace dsc
