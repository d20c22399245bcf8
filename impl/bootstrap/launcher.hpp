// Determines rank and world size from the caller's options, RANK and WORLD_SIZE, PMIx, variables of another
// launcher, or nothing (a single process). The launchers are listed in one table; the report tells which
// source was used and what was missing in the others.
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

// The caller's choices for dsc_init_distributed().
struct LaunchOptions {
  const char* init_method = nullptr;  // see init_method.hpp; null: env://
  const char* job_id = nullptr;
  int32_t rank = -1;  // here and in the next two members -1: taken from the environment
  int32_t world_size = -1;
  int32_t local_rank = -1;
  int32_t port = 0;        // 0: MASTER_PORT, or 29500
  uint32_t sources = 0;    // bits of dsc_source; 0 means all
  bool has_token = false;  // the caller passes a token
  bool has_store = false;  // the caller passes a store through which ranks can reach each other
};

// The way in which ranks find each other.
enum class MeetingWay {
  kNobody,   // a world of one rank needs no meeting
  kOneHost,  // an abstract socket, without a network
  kTcp,      // a store that rank 0 serves
};

// The result of the search: how this process takes part in its job.
struct Launch {
  int32_t rank = 0;  // may be outside the world; then the meeting reports it to all ranks
  int32_t world_size = 1;
  int32_t local_rank = -1;        // -1: derived from the other ranks
  int32_t local_world_size = -1;  // -1: unknown
  std::string job_id;             // empty if there is none
  std::string master_addr;
  int32_t master_port = 0;
  std::string source;                                           // source of rank and world size
  std::string job_id_from, master_addr_from, master_port_from;  // a variable, an option, or "default"
  bool agent_store = false;  // torchrun's agent itself listens at the address, with a PyTorch store
  MeetingWay way = MeetingWay::kNobody;
  std::string way_from;      // reason for this way, as text
  std::string told_through;  // how ranks learn the address of rank 0's store; empty: it is the master address
  std::string advice;        // what to set on this host, as text; empty: nothing
  std::string report;        // several lines: the sources and their outcomes
};

// One source and its outcome.
struct SourceFinding {
  enum class State { kChosen, kAbsent, kIncomplete, kExcluded, kFailed, kBeaten };

  std::string name;
  State state;
  std::string why;  // reason as text; empty if the source was chosen
  VariableList variables;
};

// The complete result of a search, even if it failed.
struct LaunchFindings {
  std::vector<SourceFinding> sources;  // in order of precedence
  Launch launch;                       // the members that were determined
  bool has_address = false;            // everything was found; `code` may still be an error
  dsc_result_t code = DSC_OK;
  std::string error;
};

// Calls locate_address() with the deadline of the start-up.
using LocateAddress = std::function<AddressLocation(const std::string& address)>;

// Throws INVALID_ARG (options), CONFIG (invalid or incomplete variables), and what ask_pmix() throws if PMIx
// is the only source.
Launch find_launch(const LaunchOptions& options, const Environment& environment, const LocateAddress& locate,
                   const AskPmix& ask_pmix);

// Like find_launch(), but examines every source and returns an error instead of throwing it.
LaunchFindings explain_launch(const LaunchOptions& options, const Environment& environment,
                              const LocateAddress& locate, const AskPmix& ask_pmix);

}  // namespace dsc
