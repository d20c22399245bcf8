#include "dscrun/usage.hpp"

namespace dscrun {

const char* const kUsageText =
    R"(Usage: dscrun [-n N] [OPTIONS] [--] CMD [ARG ...]
       dscrun --hostfile FILE [OPTIONS] [--] CMD [ARG ...]
       dscrun --nnodes N --node-rank R --master-addr ADDR -n N [OPTIONS] [--] CMD [ARG ...]

Runs CMD once per rank, on this host or on several, and looks after all of them.

Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR,
MASTER_PORT, DSC_JOB_ID, DSC_RESTART_COUNT and, readable from DSC_TOKEN_FD, the secret of the job.
Its lines come out with "[rank] " in front, standard output and standard error apart; a line of more than
64 KiB comes out in several. Rank 0 reads dscrun's standard input if it runs on this host, the others
/dev/null.
)";

const char* const kFooter =
    R"(Several hosts: with --hostfile this dscrun starts the others by ssh, in the same folder, with DSC_*, NCCL_*,
PYTHONPATH and what --env and --export give. Without it, start one dscrun on every host yourself.

Signals: HUP, INT, QUIT, TERM, USR1, USR2, TSTP and CONT are passed on to every rank. Ranks that take INT or
TERM may write a checkpoint as long as they like: --grace does not count there, and a second INT or TERM kills
them at once. No process of the job outlives dscrun, not even if it is killed.

Environment: MASTER_PORT is the default of --port. DSC_TOKEN_FD, DSC_TOKEN_FILE or DSC_TOKEN gives the secret of
the job; without one dscrun makes it. With --nnodes one of them is needed, or DSC_ALLOW_UNAUTHENTICATED=1.
--node-rank auto reads SLURM_NODEID, OMPI_COMM_WORLD_RANK or PMI_RANK, and with --node-list SLURMD_NODENAME.
NO_COLOR, or TERM=dumb, turns colors off. PYTHONFAULTHANDLER turns off the advice to set it after a SIGSEGV.
SOURCE_DATE_EPOCH dates the page of --help-as man. Ranks read more: see docs/environment.md.

Exit code: 0 if every rank exited with 0 (see --allow-failures); else that of the rank that failed first
(128 + signal if it was killed); 124 after --timeout; 2 wrong usage, 125 dscrun itself failed, 126 CMD cannot
be run, 127 CMD not found.)";

}  // namespace dscrun
