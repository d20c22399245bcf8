/**
 * @file dsc.h
 * @brief All of libdsc; the only header to include.
 */
#ifndef DSC_DSC_H
#define DSC_DSC_H

#include <dsc/broadcast_data.h>
#include <dsc/bucket.h>
#include <dsc/collectives.h>
#include <dsc/comm.h>
#include <dsc/context_parallel.h>
#include <dsc/cross_entropy.h>
#include <dsc/error.h>
#include <dsc/expert_parallel.h>
#include <dsc/hook.h>
#include <dsc/init.h>
#include <dsc/join.h>
#include <dsc/log.h>
#include <dsc/memory.h>
#include <dsc/mesh.h>
#include <dsc/op.h>
#include <dsc/partition.h>
#include <dsc/pipe.h>
#include <dsc/pipe_run.h>
#include <dsc/pipe_simulate.h>
#include <dsc/pipe_text.h>
#include <dsc/recovery.h>
#include <dsc/reducer.h>
#include <dsc/rms_norm.h>
#include <dsc/sharded.h>
#include <dsc/store.h>
#include <dsc/tensor_map.h>
#include <dsc/tied.h>
#include <dsc/trace.h>
#include <dsc/types.h>
#include <dsc/version.h>
#include <dsc/work.h>

#endif /* DSC_DSC_H */
