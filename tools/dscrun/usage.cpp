#include "dscrun/usage.hpp"

namespace dscrun {

const char* const kUsageText =
    R"(Usage: dscrun [-n N] [OPTIONS] [--] CMD [ARG ...]
       dscrun --hostfile FILE [OPTIONS] [--] CMD [ARG ...]
       dscrun --nnodes N --node-rank R --master-addr ADDR -n N [OPTIONS] [--] CMD [ARG ...]

Runs CMD once per rank, on this host or on several hosts, and supervises all ranks.

Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR,
MASTER_PORT, DSC_JOB_ID, DSC_RESTART_COUNT and, readable from DSC_TOKEN_FD, the secret of the job.
dscrun prints the lines of each rank with "[rank] " in front, to standard output or standard error as the
rank did. It splits lines of more than 64 KiB. Rank 0 reads dscrun's standard input if it runs on this host;
other ranks read /dev/null.
)";

const char* const kFooter =
    R"(Several hosts: with --hostfile, this dscrun starts the other hosts by ssh, in the same folder, with the
variables DSC_*, NCCL_*, PYTHONPATH and those of --env and --export. Without it, start one dscrun on every
host yourself.

Signals: HUP, INT, QUIT, TERM, USR1, USR2, TSTP and CONT are passed on to every rank. After the first INT or
TERM, ranks have unlimited time to end, for example to write a checkpoint: --grace does not apply. A second
INT or TERM kills them immediately. No process of the job outlives dscrun, even if dscrun is killed.

Environment: MASTER_PORT is the default of --port. DSC_TOKEN_FD, DSC_TOKEN_FILE or DSC_TOKEN gives the secret of
the job; without them, dscrun generates a secret. With --nnodes one of them is needed, or
DSC_ALLOW_UNAUTHENTICATED=1. --node-rank auto reads SLURM_NODEID, OMPI_COMM_WORLD_RANK or PMI_RANK, and with
--node-list also SLURMD_NODENAME. NO_COLOR, or TERM=dumb, turns colors off. If PYTHONFAULTHANDLER is set, dscrun
does not advise setting it after a SIGSEGV. SOURCE_DATE_EPOCH is the date on the page of --help-as man. Ranks
read more variables: see docs/environment.md.

Exit code: 0 if every rank exited with 0 (see --allow-failures); else the code of the rank that failed first
(128 + signal if a signal killed it). 124: --timeout has passed. 2: wrong usage. 125: dscrun itself failed.
126: CMD cannot be run. 127: CMD was not found.)";

}  // namespace dscrun
