/**
 * @file dsc.h
 * @brief All of libdsc; the only header to include.
 */
#ifndef DSC_DSC_H
#define DSC_DSC_H

/* clang-format off: the order is that of a first reading. */

/* Used by everything else. */
#include <dsc/error.h>
#include <dsc/log.h>
#include <dsc/trace.h>
#include <dsc/types.h>
#include <dsc/version.h>

/* Start-up, communicators, and what happens after a failure. */
#include <dsc/comm.h>
#include <dsc/init.h>
#include <dsc/mesh.h>
#include <dsc/recovery.h>
#include <dsc/store.h>

/* Operations on arrays and on lists of tensors. */
#include <dsc/coalesced.h>
#include <dsc/collectives.h>
#include <dsc/memory.h>
#include <dsc/op.h>
#include <dsc/tensor.h>
#include <dsc/work.h>

/* Data parallelism: samples, gradients in buckets, ranks that run out of data. */
#include <dsc/bucket.h>
#include <dsc/clip.h>
#include <dsc/hook.h>
#include <dsc/join.h>
#include <dsc/reducer.h>
#include <dsc/sampler.h>

/* Sharded parameters (ZeRO, FSDP). */
#include <dsc/sharded.h>

/* Models split over ranks: tensor, context and expert parallelism. */
#include <dsc/broadcast_data.h>
#include <dsc/context_parallel.h>
#include <dsc/cross_entropy.h>
#include <dsc/expert_parallel.h>
#include <dsc/rms_norm.h>
#include <dsc/rng.h>
#include <dsc/tensor_map.h>

/* Pipelines. */
#include <dsc/partition.h>
#include <dsc/pipe.h>
#include <dsc/pipe_run.h>
#include <dsc/pipe_simulate.h>
#include <dsc/pipe_text.h>
#include <dsc/tied.h>

/* clang-format on */

#endif /* DSC_DSC_H */
