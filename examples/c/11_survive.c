/*
 * Training that survives the loss of a rank: rank 2 kills itself, and the others form a new communicator and
 * continue.
 *
 *   dscrun -n 4 --allow-failures 1 -- ./11_survive examples/data/digits.csv
 */
#define _POSIX_C_SOURCE 200809L /* kill */

#include <signal.h>
#include <unistd.h>

#include "check.h"
#include "digits.h"

enum { STEPS = 300, BATCH = 48, VICTIM = 2, LAST_STEP = 120, RANKS_MAX = 64 };

typedef struct trainer {
  image_set train, test;
  size_t* order; /* order of the images, the same on all ranks */
  network net;
  int64_t done; /* number of completed steps */
} trainer;

/* Makes a reducer, which copies rank 0's parameters to all ranks. */
static dsc_result_t make_reducer(trainer* self, dsc_comm_t* comm, dsc_bucket_reducer_t** reducer) {
  dsc_tensor_t params[PARAMS];
  for (size_t i = 0; i < PARAMS; i++)
    params[i] = dsc_tensor_on_host(self->net.params[i], self->net.counts[i], DSC_DTYPE_F64);
  return dsc_bucket_reducer_create(comm, params, PARAMS, NULL, reducer);
}

/* A marked gradient is averaged in the background. If that fails, finish() reports it. */
typedef struct marking {
  dsc_bucket_reducer_t* reducer;
  const network* net;
} marking;

static void mark(void* context, size_t param) {
  const marking* self = context;
  dsc_bucket_reducer_mark_ready(self->reducer, param, self->net->grads[param], NULL);
}

/* Runs one step on all ranks of comm together. */
static dsc_result_t train_step(trainer* self, dsc_comm_t* comm, dsc_bucket_reducer_t* reducer) {
  int32_t rank = 0, size = 1;
  CHECK(dsc_comm_rank(comm, &rank));
  CHECK(dsc_comm_size(comm, &size));
  size_t picked[BATCH], count = 0;
  for (size_t k = (size_t)rank; k < BATCH; k += (size_t)size)
    picked[count++] = self->order[((size_t)self->done * BATCH + k) % self->train.count];
  network_loss(&self->net, &self->train, picked, count);
  dsc_result_t result = dsc_bucket_reducer_begin(reducer, NULL);
  if (result != DSC_OK) return result;
  marking context = {reducer, &self->net};
  network_backward(&self->net, count, mark, &context);
  result = dsc_bucket_reducer_finish(reducer, NULL); /* may succeed on some surviving ranks */
  if (result != DSC_OK) return result;
  network_step(&self->net, 0.05);
  self->done++;
  return DSC_OK;
}

/* Trains until all steps are done, or a rank is lost. */
static dsc_result_t train(trainer* self, dsc_comm_t* comm, bool is_victim) {
  dsc_bucket_reducer_t* reducer = NULL;
  dsc_result_t result = make_reducer(self, comm, &reducer);
  /* The velocities are the only other state of a training step. */
  for (size_t i = 0; i < PARAMS && result == DSC_OK; i++)
    result = dsc_broadcast(comm, self->net.velocities[i], self->net.velocities[i], self->net.counts[i],
                           DSC_DTYPE_F64, 0, NULL, NULL);
  while (result == DSC_OK && self->done < STEPS) {
    if (is_victim && self->done == LAST_STEP) kill(getpid(), SIGKILL);
    result = train_step(self, comm, reducer);
  }
  CHECK(dsc_bucket_reducer_destroy(reducer));
  return result;
}

/* Returns a communicator of the surviving ranks, which all continue from the step of its rank 0. */
static dsc_comm_t* survive(trainer* self, dsc_comm_t* comm) {
  dsc_comm_t* survivors = NULL;
  int32_t before = 0, rank = 0, size = 0, lost = -1;
  size_t n_lost = 0;
  CHECK(dsc_comm_shrink(comm, NULL, &survivors));
  CHECK(dsc_comm_missing(comm, &lost, 1, &n_lost));
  CHECK(dsc_comm_rank(comm, &before));
  CHECK(dsc_comm_rank(survivors, &rank));
  CHECK(dsc_comm_size(survivors, &size));
  printf("rank %d is now rank %d of %d, without rank %d\n", before, rank, size, lost);
  int64_t steps[RANKS_MAX];
  EXPECT(size <= RANKS_MAX);
  if (dsc_all_gather(survivors, &self->done, steps, 1, DSC_DTYPE_I64, NULL, NULL) != DSC_OK)
    return survivors; /* another rank was lost meanwhile: the next call reports it */
  self->done = steps[0];
  if (rank > 0) return survivors;
  printf("steps done were");
  for (int32_t i = 0; i < size; i++) printf(" %lld", (long long)steps[i]);
  printf("; going on from step %lld\n", (long long)steps[0]);
  return survivors;
}

int main(int argc, char** argv) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1, size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  trainer self = {.done = 0};
  EXPECT(digits_load(argc > 1 ? argv[1] : "examples/data/digits.csv", &self.train, &self.test));
  EXPECT(network_create(&self.net, BATCH, (uint64_t)rank));
  self.order = malloc(self.train.count * sizeof *self.order);
  size_t count = 0;
  EXPECT(self.order != NULL);
  CHECK(dsc_sampler_indices(self.train.count, 1, 0, 1, 0, 0, self.order, self.train.count, &count));

  dsc_comm_t* comm = world;
  while (self.done < STEPS) {
    const dsc_result_t result = train(&self, comm, rank == VICTIM);
    if (result == DSC_OK) break;
    printf("rank %d: %s\n  %s\n", rank, dsc_result_name(result), dsc_last_error_message());
    EXPECT(result == DSC_ERR_PEER_DEAD || result == DSC_ERR_REVOKED);
    comm = survive(&self, comm);
  }

  const double accuracy = (double)network_correct(&self.net, &self.test, 0, 1) / (double)self.test.count;
  int32_t good = 0; /* the same answer on all surviving ranks */
  CHECK(dsc_comm_agree(comm, accuracy > 0.9, &good));
  CHECK(dsc_comm_size(comm, &size));
  CHECK(dsc_comm_rank(comm, &rank));
  if (rank == 0)
    printf("test accuracy %.1f%% on %d ranks, at least 90%% wanted: %s\n", 100 * accuracy, size,
           good ? "reached" : "MISSED");
  CHECK(dsc_finalize()); /* waits for all surviving ranks */
  free(self.order);
  network_free(&self.net);
  digits_free(&self.train);
  digits_free(&self.test);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
