/*
 * Tensor parallelism: two layers, y = relu(x W1) W2, whose weights the ranks divide. Each rank has some
 * columns of W1 and the same rows of W2, so it computes a part of the hidden layer and a part of each sum in
 * y.
 *
 * The ranks exchange data in two mappings: one where activations enter the layers, and one where they leave.
 *
 *   COPY, REDUCE                   all ranks have all tokens in x and y
 *   GATHER_REDUCE, REDUCE_SCATTER  each rank has a part of them (sequence parallelism), which takes less
 * memory
 *
 *   dscrun -n 4 -- ./17_tensor_parallel
 */
#include "check.h"

enum { TOKENS = 8, WIDTH = 4, HIDDEN = 16 };

/* A matrix, a part of a matrix, or a transposed view of one. */
typedef struct {
  const double* at;
  size_t row; /* distance to the next row */
  size_t column;
} view_t;

/* The results of both passes: y, and the gradients of x, W1 and W2 for the loss sum(y * y) / 2. */
typedef struct {
  double y[TOKENS * WIDTH];
  double grad_x[TOKENS * WIDTH];
  double grad_w1[WIDTH * HIDDEN];
  double grad_w2[HIDDEN * WIDTH];
} passes_t;

static double x[TOKENS * WIDTH];
static double w1[WIDTH * HIDDEN];
static double w2[HIDDEN * WIDTH];

static view_t rows_of(const double* at, size_t columns) { return (view_t){at, columns, 1}; }
static view_t transposed(view_t a) { return (view_t){a.at, a.column, a.row}; }

/* Fills in small whole numbers, whose products and sums are exact in any order. */
static void fill(double* at, size_t rows, size_t columns, size_t step) {
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) at[i * columns + j] = (double)((step * i + 3 * j) % 7) - 3;
}

static void multiply(view_t a, view_t b, size_t rows, size_t inner, size_t columns, double* out) {
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) {
      double sum = 0;
      for (size_t k = 0; k < inner; k++)
        sum += a.at[i * a.row + k * a.column] * b.at[k * b.row + j * b.column];
      out[i * columns + j] = sum;
    }
}

/* Returns the options of a mapping over matrices of WIDTH columns, which divides the tokens. */
static dsc_tensor_map_options_t over_tokens(dsc_tensor_mapping_t mapping) {
  dsc_tensor_map_options_t options;
  CHECK(dsc_tensor_map_options_init(&options, sizeof options));
  options.mapping = mapping;
  options.dim = TOKENS;
  options.inner = WIDTH;
  return options;
}

static void forward(dsc_comm_t* group, dsc_tensor_mapping_t mapping, const double* from, double* to) {
  const dsc_tensor_map_options_t options = over_tokens(mapping);
  CHECK(dsc_tensor_map_forward(group, &options, from, to, DSC_DTYPE_F64, NULL, NULL));
}

static void backward(dsc_comm_t* group, dsc_tensor_mapping_t mapping, const double* from, double* to,
                     dsc_work_t** work) {
  const dsc_tensor_map_options_t options = over_tokens(mapping);
  CHECK(dsc_tensor_map_backward(group, &options, from, to, DSC_DTYPE_F64, NULL, work));
}

/* Runs both passes, with the hidden neurons that start at `first`. */
static void train_step(dsc_comm_t* group, const double* tokens, size_t first, size_t neurons,
                       dsc_tensor_mapping_t enter, dsc_tensor_mapping_t leave, passes_t* passes) {
  double whole[TOKENS * WIDTH];
  double hidden[TOKENS * HIDDEN];
  double sums[TOKENS * WIDTH];
  double grad_hidden[TOKENS * HIDDEN];
  double grad_y[TOKENS * WIDTH];
  const view_t first_layer = {w1 + first, HIDDEN, 1};
  const view_t second_layer = rows_of(w2 + first * WIDTH, WIDTH);

  forward(group, enter, tokens, whole);
  multiply(rows_of(whole, WIDTH), first_layer, TOKENS, WIDTH, neurons, hidden);
  for (size_t i = 0; i < TOKENS * neurons; i++) hidden[i] = hidden[i] > 0 ? hidden[i] : 0;
  multiply(rows_of(hidden, neurons), second_layer, TOKENS, neurons, WIDTH, sums);
  forward(group, leave, sums, passes->y);

  backward(group, leave, passes->y, grad_y, NULL); /* the gradient of the loss is y */
  multiply(rows_of(grad_y, WIDTH), transposed(second_layer), TOKENS, WIDTH, neurons, grad_hidden);
  for (size_t i = 0; i < TOKENS * neurons; i++) grad_hidden[i] = hidden[i] > 0 ? grad_hidden[i] : 0;
  multiply(rows_of(grad_hidden, neurons), transposed(first_layer), TOKENS, neurons, WIDTH, sums);
  dsc_work_t* work = NULL;
  backward(group, enter, sums, passes->grad_x, &work);
  /* While the ranks sum the gradient of x, this rank computes the gradients of its weights. */
  multiply(transposed(rows_of(whole, WIDTH)), rows_of(grad_hidden, neurons), WIDTH, TOKENS, neurons,
           passes->grad_w1);
  multiply(transposed(rows_of(hidden, neurons)), rows_of(grad_y, WIDTH), neurons, TOKENS, WIDTH,
           passes->grad_w2);
  CHECK(dsc_work_wait(work, -1, NULL));
  CHECK(dsc_work_destroy(work));
}

/* Compares a rank's results, for its tokens and neurons, with the same part of the whole results. */
static void compare(const passes_t* part, const passes_t* whole, size_t first_token, size_t tokens,
                    size_t first, size_t neurons) {
  for (size_t i = 0; i < tokens * WIDTH; i++) {
    EXPECT(part->y[i] == whole->y[first_token * WIDTH + i]);
    EXPECT(part->grad_x[i] == whole->grad_x[first_token * WIDTH + i]);
  }
  for (size_t i = 0; i < WIDTH * neurons; i++) {
    EXPECT(part->grad_w1[i] == whole->grad_w1[i / neurons * HIDDEN + first + i % neurons]);
    EXPECT(part->grad_w2[i] == whole->grad_w2[first * WIDTH + i]);
  }
}

static double sum_of(const double* at, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += at[i];
  return sum;
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  EXPECT(TOKENS % size == 0);
  fill(x, TOKENS, WIDTH, 2);
  fill(w1, WIDTH, HIDDEN, 5);
  fill(w2, HIDDEN, WIDTH, 4);
  const size_t neurons = HIDDEN / (size_t)size;
  const size_t tokens = TOKENS / (size_t)size;
  const size_t first = (size_t)rank * neurons;
  const size_t first_token = (size_t)rank * tokens;

  /* With one rank a mapping does not exchange anything, so this is the whole computation. */
  static passes_t whole;
  static passes_t parts;
  static passes_t sequence_parts;
  dsc_comm_t* alone = NULL;
  CHECK(dsc_comm_split(world, rank, 0, NULL, &alone));
  train_step(alone, x, 0, HIDDEN, DSC_TENSOR_MAPPING_COPY, DSC_TENSOR_MAPPING_REDUCE, &whole);

  train_step(world, x, first, neurons, DSC_TENSOR_MAPPING_COPY, DSC_TENSOR_MAPPING_REDUCE, &parts);
  compare(&parts, &whole, 0, TOKENS, first, neurons);
  train_step(world, x + first_token * WIDTH, first, neurons, DSC_TENSOR_MAPPING_GATHER_REDUCE,
             DSC_TENSOR_MAPPING_REDUCE_SCATTER, &sequence_parts);
  compare(&sequence_parts, &whole, first_token, tokens, first, neurons);

  double loss = 0;
  for (size_t i = 0; i < TOKENS * WIDTH; i++) loss += parts.y[i] * parts.y[i] / 2;
  double gradients = sum_of(parts.grad_w1, WIDTH * neurons) + sum_of(parts.grad_w2, neurons * WIDTH);
  CHECK(dsc_all_reduce(world, &gradients, &gradients, 1, DSC_DTYPE_F64, DSC_OP_SUM, NULL, NULL));
  gradients += sum_of(parts.grad_x, TOKENS * WIDTH);
  printf("rank %d: loss %.0f, gradients sum to %.0f, also with %zu tokens per rank\n", rank, loss, gradients,
         tokens);

  CHECK(dsc_comm_destroy(alone));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
