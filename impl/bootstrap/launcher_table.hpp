// The table of known launchers.
#pragma once

#include <array>
#include <cstdint>

#include "dsc/types.h"

namespace dsc {

inline constexpr int32_t kDefaultPort = 29500;

using Names = std::array<const char*, 2>;  // names of up to two variables; unused entries are null

enum class HostForm { kPlain, kBeforeColon, kSlurmList, kSageMakerJson };

// The variable in which a launcher gives the host of rank 0.
struct HostSource {
  const char* variable = nullptr;  // null if there is none
  HostForm form = HostForm::kPlain;
  int32_t port = kDefaultPort;  // port to use if no other setting gives one
};

// One row of the table: the variables in which a launcher describes a process.
struct Launcher {
  const char* name;
  uint32_t source;                  // bit of dsc_source that enables the row
  const char* only_with = nullptr;  // the row is used only if this variable is set
  const char* not_with = nullptr;   // the row is used only if this variable is not set
  // If a property has two names, the first variable that is set is used.
  Names rank{};
  Names world_size{};
  Names local_rank{};
  Names local_world_size{};
  Names hosts{};                // number of hosts of the job
  Names job_id{};               // the values of these variables, joined, identify the job
  std::array<Names, 2> same{};  // pairs of variables that must be equal if both are set
  // If this variable is "True", the launcher itself listens at MASTER_ADDR:MASTER_PORT.
  const char* agent_store = nullptr;
  HostSource master{};  // where to find the host of rank 0 if MASTER_ADDR is not set
  // Used instead of `master` if its variable is set and all ranks are on one host.
  HostSource one_host_master{};
};

// The rows are in order of precedence. RANK and WORLD_SIZE come first, because torchrun is often started by
// srun. In that case the numbers of torchrun, the inner launcher, are the right ones.
inline constexpr Launcher kLaunchers[] = {
    {.name = "torchrun",
     .source = DSC_SOURCE_ENV,
     .only_with = "TORCHELASTIC_RUN_ID",
     .rank = {"RANK"},
     .world_size = {"WORLD_SIZE"},
     .local_rank = {"LOCAL_RANK"},
     .local_world_size = {"LOCAL_WORLD_SIZE"},
     .job_id = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
     .agent_store = "TORCHELASTIC_USE_AGENT_STORE"},
    {.name = "deepspeed",
     .source = DSC_SOURCE_ENV,
     .only_with = "CROSS_SIZE",
     .rank = {"RANK"},
     .world_size = {"WORLD_SIZE"},
     .local_rank = {"LOCAL_RANK"},
     .local_world_size = {"LOCAL_SIZE", "LOCAL_WORLD_SIZE"},
     .hosts = {"CROSS_SIZE"},
     .same = {{{"LOCAL_SIZE", "LOCAL_WORLD_SIZE"}}}},
    {.name = "dscrun",
     .source = DSC_SOURCE_ENV,
     .only_with = "DSC_LAUNCHER",
     .rank = {"RANK"},
     .world_size = {"WORLD_SIZE"},
     .local_rank = {"LOCAL_RANK"},
     .local_world_size = {"LOCAL_WORLD_SIZE"},
     .job_id = {"DSC_JOB_ID"}},
    {.name = "environment",
     .source = DSC_SOURCE_ENV,
     .rank = {"RANK"},
     .world_size = {"WORLD_SIZE"},
     .local_rank = {"LOCAL_RANK"},
     .local_world_size = {"LOCAL_WORLD_SIZE"}},
    // The numbers come from the PMIx server, not from variables.
    {.name = "PMIx",
     .source = DSC_SOURCE_PMIX,
     .only_with = "PMIX_NAMESPACE",
     .rank = {"PMIX_RANK"},
     .job_id = {"PMIX_NAMESPACE"}},
    // Two clouds that start ranks with Open MPI, but provide the host of rank 0 in their own variables.
    {.name = "Azure ML",
     .source = DSC_SOURCE_LAUNCHER,
     .only_with = "AZUREML_EXPERIMENT_ID",
     .not_with = "DLTS_JOB_ID",
     .rank = {"OMPI_COMM_WORLD_RANK"},
     .world_size = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_world_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     .job_id = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"},
     .master = {"AZ_BATCH_MASTER_NODE", HostForm::kBeforeColon, 6105},
     .one_host_master = {"AZ_BATCHAI_MPI_MASTER_NODE", HostForm::kPlain, 54965}},
    {.name = "SageMaker",
     .source = DSC_SOURCE_LAUNCHER,
     .only_with = "SM_TRAINING_ENV",
     .rank = {"OMPI_COMM_WORLD_RANK"},
     .world_size = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_world_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     .job_id = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"},
     .master = {"SM_TRAINING_ENV", HostForm::kSageMakerJson}},
    {.name = "Open MPI",
     .source = DSC_SOURCE_LAUNCHER,
     .rank = {"OMPI_COMM_WORLD_RANK"},
     .world_size = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_world_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     .job_id = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
    {.name = "MVAPICH",
     .source = DSC_SOURCE_LAUNCHER,
     .rank = {"MV2_COMM_WORLD_RANK"},
     .world_size = {"MV2_COMM_WORLD_SIZE"},
     .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
     .local_world_size = {"MV2_COMM_WORLD_LOCAL_SIZE"}},
    {.name = "PALS",
     .source = DSC_SOURCE_LAUNCHER,
     .only_with = "PALS_APID",
     .rank = {"PALS_RANKID", "PMI_RANK"},
     .world_size = {"PMI_SIZE"},
     .local_rank = {"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"},
     .local_world_size = {"PMI_LOCAL_SIZE"},
     .job_id = {"PALS_APID"},
     .same = {{{"PALS_RANKID", "PMI_RANK"}, {"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"}}}},
    {.name = "Flux",
     .source = DSC_SOURCE_LAUNCHER,
     .rank = {"FLUX_TASK_RANK"},
     .world_size = {"FLUX_JOB_SIZE"},
     .local_rank = {"FLUX_TASK_LOCAL_ID"},
     .hosts = {"FLUX_JOB_NNODES"},
     .job_id = {"FLUX_JOB_ID"}},
    // Used only inside a job step. A batch script also has SLURM_PROCID, but runs only once. The variables
    // without STEP in their names may describe the whole job.
    {.name = "Slurm",
     .source = DSC_SOURCE_LAUNCHER,
     .only_with = "SLURM_STEP_ID",
     .rank = {"SLURM_PROCID"},
     .world_size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .local_rank = {"SLURM_LOCALID"},
     .hosts = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
     .job_id = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     .master = {"SLURM_STEP_NODELIST", HostForm::kSlurmList}},
    // This row is after Slurm and Flux, because these may set PMI_* variables for their own PMI servers.
    {.name = "MPICH (Hydra)",
     .source = DSC_SOURCE_LAUNCHER,
     .rank = {"PMI_RANK"},
     .world_size = {"PMI_SIZE"},
     .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
     .local_world_size = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
     .job_id = {"PMI_JOBID"},
     .same = {{{"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}}}},
};

}  // namespace dsc
