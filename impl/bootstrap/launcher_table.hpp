// The launchers that are known, as data.
#pragma once

#include <array>

#include "dsc/types.h"

namespace dsc {

// Names of variables; null where the launcher has none.
struct Launcher {
  const char* name;
  uint32_t source;  // dsc_source bit that switches it on
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* hosts;                  // number of hosts of the job
  const char* only_with;              // the row counts only if this one is set too
  std::array<const char*, 2> job_id;  // together they name the job
};

// In order of precedence. RANK and WORLD_SIZE come first: torchrun inside srun is normal, and the inner one
// is meant.
inline constexpr Launcher kLaunchers[] = {
    {"environment (torchrun, dscrun, deepspeed and alike)",
     DSC_SOURCE_ENV,
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     nullptr,
     nullptr,
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    // The server is asked for all numbers.
    {"PMIx",
     DSC_SOURCE_PMIX,
     "PMIX_RANK",
     nullptr,
     nullptr,
     nullptr,
     nullptr,
     "PMIX_NAMESPACE",
     {"PMIX_NAMESPACE"}},
    // Also Azure ML and SageMaker, which start ranks with Open MPI.
    {"Open MPI",
     DSC_SOURCE_LAUNCHER,
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     nullptr,
     {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
    {"MVAPICH",
     DSC_SOURCE_LAUNCHER,
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     nullptr,
     {}},
    {"PALS",
     DSC_SOURCE_LAUNCHER,
     "PALS_RANKID",
     "PMI_SIZE",
     "PALS_LOCAL_RANKID",
     "PMI_LOCAL_SIZE",
     nullptr,
     "PALS_APID",
     {"PALS_APID"}},
    {"Flux",
     DSC_SOURCE_LAUNCHER,
     "FLUX_TASK_RANK",
     "FLUX_JOB_SIZE",
     "FLUX_TASK_LOCAL_ID",
     nullptr,
     "FLUX_JOB_NNODES",
     nullptr,
     {"FLUX_JOB_ID"}},
    // Only a step: a batch script also has SLURM_PROCID, but runs once.
    {"Slurm",
     DSC_SOURCE_LAUNCHER,
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     nullptr,
     "SLURM_NNODES",
     "SLURM_STEP_ID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    // After Slurm and Flux, which may set the PMI_* names for their own server.
    {"MPICH (Hydra)",
     DSC_SOURCE_LAUNCHER,
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     nullptr,
     nullptr,
     {"PMI_JOBID"}},
};

}  // namespace dsc
