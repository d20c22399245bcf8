/*
 * Trains a digit classifier on several data-parallel ranks, which communicate through libdsc.
 *
 *   dscrun -n 4 -- ./train_digits --compare
 *
 * Every rank has the whole network and a shard of the images. The gradients are computed directly in the
 * reducer's buckets, so nothing is copied. A full bucket is averaged while the next one is being computed.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <math.h>
#include <time.h>

#include "check.h"
#include "digits.h"
#include "train_options.h"

static const double wanted_accuracy = 0.95;
static const double allowed_difference = 1e-9;

typedef struct trainer {
  dsc_comm_t* world;
  int32_t rank, size;
  const train_options* opt;
  image_set train, test;
  size_t batch;   /* images of this rank per step */
  size_t steps;   /* per epoch */
  double* losses; /* of every step; after the epoch, of all ranks together */
  double accuracy;
  network net;
  dsc_bucket_reducer_t* reducer;
  double in_libdsc_ms; /* time in calls of libdsc */
} trainer;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Adds the time of a call to the trainer's total. */
#define TIMED(self, call)                          \
  do {                                             \
    const double timed_from = now_ms();            \
    CHECK(call);                                   \
    (self)->in_libdsc_ms += now_ms() - timed_from; \
  } while (0)

/* Computes a shard's order for an epoch. Position p of the shuffled order belongs to shard p % shards, so
 * equal parts of all shards form one whole batch. */
static void epoch_order(const trainer* self, int32_t shards, int32_t shard, size_t epoch, size_t* order) {
  const uint64_t seed = self->opt->seed + epoch;
  size_t count = 0;
  CHECK(dsc_sampler_indices(self->train.count, (size_t)shards, (size_t)shard, 1, seed, 1, order,
                            self->train.count, &count));
  EXPECT(count == self->train.count / (size_t)shards);
}

/* The reducer checks that the parameters of all ranks agree in number, type and shape, and copies rank 0's
 * values to all. */
static void create_reducer(trainer* self) {
  dsc_tensor_t params[PARAMS];
  for (size_t i = 0; i < PARAMS; i++)
    params[i] = dsc_tensor_on_host(self->net.params[i], self->net.counts[i], DSC_DTYPE_F64);
  dsc_bucket_reducer_options_t reducer_options;
  CHECK(dsc_bucket_reducer_options_init(&reducer_options, sizeof reducer_options));
  reducer_options.bucket_bytes = self->opt->bucket_kib << 10;
  reducer_options.first_bucket_bytes = reducer_options.bucket_bytes / 4;
  CHECK(dsc_bucket_reducer_create(self->world, params, PARAMS, &reducer_options, &self->reducer));
  for (size_t i = 0; i < PARAMS; i++) {
    void* view = NULL;
    CHECK(dsc_bucket_reducer_grad_view(self->reducer, i, &view));
    self->net.grads[i] = view; /* the network writes its gradients into the reducer's buckets */
  }
}

static void mark_ready(void* context, size_t param) {
  trainer* self = context;
  TIMED(self, dsc_bucket_reducer_mark_ready(self->reducer, param, NULL, NULL));
}

static void train_epoch(trainer* self, size_t epoch, size_t* order) {
  epoch_order(self, self->size, self->rank, epoch, order);
  double* losses = self->losses + epoch * self->steps;
  for (size_t step = 0; step < self->steps; step++) {
    TIMED(self, dsc_bucket_reducer_begin(self->reducer, NULL));
    losses[step] = network_loss(&self->net, &self->train, order + step * self->batch, self->batch);
    network_backward(&self->net, self->batch, mark_ready, self);
    TIMED(self, dsc_bucket_reducer_finish(self->reducer, NULL));
    network_step(&self->net, self->opt->rate);
  }
  double correct = (double)network_correct(&self->net, &self->test, (size_t)self->rank, (size_t)self->size);
  TIMED(self,
        dsc_all_reduce(self->world, losses, losses, self->steps, DSC_DTYPE_F64, DSC_OP_AVG, NULL, NULL));
  TIMED(self, dsc_all_reduce(self->world, &correct, &correct, 1, DSC_DTYPE_F64, DSC_OP_SUM, NULL, NULL));
  self->accuracy = correct / (double)self->test.count;
}

static void show_epoch(const trainer* self, size_t epoch) {
  if (self->rank != 0) return;
  double loss = 0.0;
  for (size_t step = 0; step < self->steps; step++) loss += self->losses[epoch * self->steps + step];
  const size_t done = (20 * (epoch + 1) + self->opt->epochs / 2) / self->opt->epochs;
  printf("epoch %2zu/%zu  [%.*s%.*s]  loss %.6f  test accuracy %5.2f%%\n", epoch + 1, self->opt->epochs,
         (int)done, "####################", (int)(20 - done), "....................",
         loss / (double)self->steps, self->accuracy * 100.0);
  fflush(stdout);
}

enum { TIMES = 5, MOST_STATS = 256 };

/* Adds up records in ms: time waiting for other ranks in times[0], and time moving data in times[1]. */
static void add_records(const dsc_op_stats_t* records, size_t count, double* times) {
  for (size_t i = 0; i < count && i < MOST_STATS; i++) {
    times[0] += (double)records[i].waiting_ns * 1e-6;
    times[1] += (double)records[i].moving_ns * 1e-6;
  }
}

/* Reads the library's own totals since the start, for the world and the reducer. */
static void read_records(const trainer* self, double* times) {
  static dsc_op_stats_t records[MOST_STATS];
  size_t count = 0;
  times[0] = times[1] = 0.0;
  records[0].struct_size = sizeof records[0];
  CHECK(dsc_comm_stats(self->world, records, MOST_STATS, &count));
  add_records(records, count, times);
  records[0].struct_size = sizeof records[0];
  CHECK(dsc_bucket_reducer_stats(self->reducer, records, MOST_STATS, &count));
  add_records(records, count, times);
}

static void print_times(const trainer* self, double total_ms, const double* before) {
  double row[TIMES] = {total_ms, total_ms - self->in_libdsc_ms, self->in_libdsc_ms};
  read_records(self, row + 3);
  row[3] -= before[0];
  row[4] -= before[1];

  double* table = malloc((size_t)self->size * sizeof row);
  EXPECT(table != NULL);
  CHECK(dsc_all_gather(self->world, row, table, TIMES, DSC_DTYPE_F64, NULL, NULL));
  if (self->rank == 0) {
    printf("\nwhere the time went (ms)   by the rank's own clock      by libdsc's records*\n");
    printf("rank      total   computing   in libdsc     waiting      moving\n");
    for (int32_t rank = 0; rank < self->size; rank++) {
      const double* times = table + (size_t)rank * TIMES;
      printf("%4d %10.1f %11.1f %11.1f %11.1f %11.1f\n", rank, times[0], times[1], times[2], times[3],
             times[4]);
    }
    printf(
        "* of every operation, also while the rank was computing: until all ranks had arrived, then to the "
        "end\n");
  }
  free(table);
}

/* Trains in this process alone on the same batches. Returns the largest relative difference of a loss. */
static double compare_alone(const trainer* self, size_t* order) {
  const size_t batch = self->opt->batch;
  network net;
  EXPECT(network_create(&net, batch, self->opt->seed));
  double worst = 0.0;
  for (size_t epoch = 0; epoch < self->opt->epochs; epoch++) {
    epoch_order(self, 1, 0, epoch, order);
    for (size_t step = 0; step < self->steps; step++) {
      const double loss = network_loss(&net, &self->train, order + step * batch, batch);
      network_backward(&net, batch, NULL, NULL);
      network_step(&net, self->opt->rate);
      const double difference = fabs(self->losses[epoch * self->steps + step] - loss) / fabs(loss);
      worst = difference <= worst ? worst : difference; /* NaN stays NaN */
    }
  }
  network_free(&net);
  return worst;
}

static double compare(trainer* self, size_t* order) {
  double worst = 0.0;
  if (self->rank == 0) {
    worst = compare_alone(self, order);
    printf("losses of %zu steps, %d ranks and one process: largest relative difference\n",
           self->opt->epochs * self->steps, self->size);
    printf("  %.2e, allowed %.0e: %s\n", worst, allowed_difference,
           worst <= allowed_difference ? "equal" : "DIFFERENT");
  }
  CHECK(dsc_broadcast(self->world, &worst, &worst, 1, DSC_DTYPE_F64, 0, NULL, NULL));
  return worst;
}

/* If options do not fit together, explains it once and ends the program on all ranks. */
static void check_options(const trainer* self) {
  const size_t batch = self->opt->batch;
  const bool divides = batch % (size_t)self->size == 0;
  if (divides && batch <= self->train.count) return;
  if (self->rank == 0 && !divides)
    fprintf(stderr, "train_digits: --batch %zu cannot be divided among %d ranks\n", batch, self->size);
  else if (self->rank == 0)
    fprintf(stderr, "train_digits: --batch %zu is more than the %zu training images\n", batch,
            self->train.count);
  CHECK(dsc_finalize());
  exit(2);
}

static void set_up(trainer* self) {
  CHECK(dsc_init_distributed(NULL, &self->world));
  CHECK(dsc_comm_rank(self->world, &self->rank));
  CHECK(dsc_comm_size(self->world, &self->size));
  if (!digits_load(self->opt->data, &self->train, &self->test)) exit(EXIT_FAILURE);
  check_options(self);
  self->batch = self->opt->batch / (size_t)self->size;
  self->steps = self->train.count / self->opt->batch;
  self->losses = calloc(self->opt->epochs * self->steps, sizeof *self->losses);
  EXPECT(self->losses != NULL &&
         network_create(&self->net, self->batch, self->opt->seed + (uint64_t)self->rank));
  create_reducer(self);
  if (self->rank == 0)
    printf("%zu images to train on, %zu to test with; layers [%zu, %zu, %zu, %zu]; %d ranks\n",
           self->train.count, self->test.count, widths[0], widths[1], widths[2], widths[3], self->size);
}

static void tear_down(trainer* self) {
  CHECK(dsc_bucket_reducer_destroy(self->reducer));
  CHECK(dsc_finalize());
  network_free(&self->net);
  digits_free(&self->train);
  digits_free(&self->test);
  free(self->losses);
}

int main(int argc, char** argv) {
  const train_options opt = train_options_parse(argc, argv);
  trainer self = {.opt = &opt};
  set_up(&self);
  size_t* order = malloc(self.train.count * sizeof *order);
  EXPECT(order != NULL);

  /* All ranks begin together, so that the times can be compared. */
  CHECK(dsc_barrier(self.world, NULL, NULL));
  double before[2];
  read_records(&self, before);
  const double started_ms = now_ms();
  for (size_t epoch = 0; epoch < opt.epochs; epoch++) {
    train_epoch(&self, epoch, order);
    show_epoch(&self, epoch);
  }
  print_times(&self, now_ms() - started_ms, before);

  if (self.rank == 0)
    printf("\ntest accuracy %.2f%%, at least %.0f%% wanted: %s\n", self.accuracy * 100, wanted_accuracy * 100,
           self.accuracy >= wanted_accuracy ? "reached" : "MISSED");
  const double difference = opt.compare ? compare(&self, order) : 0.0;
  const bool good = self.accuracy >= wanted_accuracy && difference <= allowed_difference;
  free(order);
  tear_down(&self);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
