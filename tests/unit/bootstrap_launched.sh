#!/bin/sh
# Starts bootstrap_launched under the launcher of another project:
#   bootstrap_launched.sh openmpi|mpich PROGRAM
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT DSC_JOB_ID
case $1 in
  openmpi)
    command -v mpirun.openmpi > /dev/null || { echo "mpirun.openmpi is not installed"; exit 77; }
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export DSC_PMIX_LIBRARY=none # uses the variables of Open MPI; test_pmix.py tests PMIx
    exec mpirun.openmpi -x DSC_PMIX_LIBRARY --oversubscribe -n 3 "$2" "Open MPI" 3
    ;;
  mpich)
    command -v mpiexec.hydra > /dev/null || { echo "mpiexec.hydra is not installed"; exit 77; }
    export DSC_JOB_ID=$$ # Hydra sets no variable that identifies the job
    exec mpiexec.hydra -n 3 "$2" "MPICH (Hydra)" 3
    ;;
esac
echo "expected openmpi or mpich, came '$1'" >&2
exit 2
