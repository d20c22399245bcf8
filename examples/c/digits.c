#include "digits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 1797, TEST_EVERY = 5 };

static bool image_set_create(image_set* set, size_t capacity) {
  *set = (image_set){.pixels = malloc(capacity * sizeof *set->pixels),
                     .labels = malloc(capacity * sizeof *set->labels)};
  return set->pixels != NULL && set->labels != NULL;
}

void digits_free(image_set* set) {
  free(set->pixels);
  free(set->labels);
  *set = (image_set){0};
}

/* Reads one line: 64 pixels from 0 to 16, then the digit. */
static bool read_image(FILE* file, image_set* set) {
  int value = 0;
  for (size_t i = 0; i < PIXELS; i++) {
    if (fscanf(file, "%d,", &value) != 1 || value < 0 || value > 16) return false;
    set->pixels[set->count][i] = value / 8.0 - 1.0;
  }
  if (fscanf(file, "%d", &value) != 1 || value < 0 || value >= CLASSES) return false;
  set->labels[set->count++] = (size_t)value;
  return true;
}

bool digits_load(const char* path, image_set* train, image_set* test) {
  const bool made_train = image_set_create(train, IMAGES);
  const bool made_test = image_set_create(test, IMAGES);
  FILE* file = fopen(path, "r");
  if (!made_train || !made_test || file == NULL) {
    perror(path);
    if (file != NULL) fclose(file);
    return false;
  }
  size_t line = 0;
  while (line < IMAGES && read_image(file, line % TEST_EVERY == 0 ? test : train)) line++;
  fclose(file);
  if (line < IMAGES) fprintf(stderr, "%s: line %zu is not 64 pixels and a digit\n", path, line + 1);
  return line == IMAGES;
}

/* Returns the n-th number (from 1) of SplitMix64 that starts with seed: uniform in [0, 1). */
static double uniform(uint64_t seed, uint64_t n) {
  uint64_t z = seed + n * UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  z = z ^ (z >> 31);
  return (double)(z >> 11) * 0x1.0p-53;
}

/* Takes the next piece from the storage. */
static double* take(double** storage, size_t count) {
  double* piece = *storage;
  *storage += count;
  return piece;
}

bool network_create(network* net, size_t batch, uint64_t seed) {
  *net = (network){0};
  size_t total = 0;
  for (size_t layer = 0; layer < LAYERS; layer++) {
    net->counts[2 * layer] = widths[layer] * widths[layer + 1];
    net->counts[2 * layer + 1] = widths[layer + 1];
    total += 3 * (net->counts[2 * layer] + net->counts[2 * layer + 1]);
  }
  for (size_t layer = 0; layer <= LAYERS; layer++) total += 2 * batch * widths[layer];
  double* free_storage = net->storage = calloc(total, sizeof *net->storage);
  if (net->storage == NULL) return false;

  for (size_t i = 0; i < PARAMS; i++) {
    net->params[i] = take(&free_storage, net->counts[i]);
    net->grads[i] = take(&free_storage, net->counts[i]);
    net->velocities[i] = take(&free_storage, net->counts[i]);
  }
  for (size_t layer = 0; layer <= LAYERS; layer++) {
    net->values[layer] = take(&free_storage, batch * widths[layer]);
    net->deltas[layer] = take(&free_storage, batch * widths[layer]);
  }
  for (size_t layer = 0; layer < LAYERS; layer++) {
    const double bound = sqrt(3.0 / (double)widths[layer]);
    for (size_t i = 0; i < net->counts[2 * layer]; i++)
      net->params[2 * layer][i] = (2.0 * uniform(seed * 1000 + layer, i + 1) - 1.0) * bound;
  }
  return true;
}

void network_free(network* net) {
  free(net->storage);
  *net = (network){0};
}

/* Computes the values of all layers after the first one. */
static void forward(network* net, size_t count) {
  for (size_t layer = 0; layer < LAYERS; layer++) {
    const size_t inputs = widths[layer];
    const size_t outputs = widths[layer + 1];
    for (size_t row = 0; row < count; row++) {
      const double* in = net->values[layer] + row * inputs;
      double* out = net->values[layer + 1] + row * outputs;
      memcpy(out, net->params[2 * layer + 1], outputs * sizeof *out);
      for (size_t i = 0; i < inputs; i++)
        for (size_t o = 0; o < outputs; o++) out[o] += in[i] * net->params[2 * layer][i * outputs + o];
      if (layer + 1 < LAYERS)
        for (size_t o = 0; o < outputs; o++) out[o] = tanh(out[o]);
    }
  }
}

/* Returns the cross entropy of one row of scores. Writes its gradient, divided by count, to delta. */
static double cross_entropy(const double* scores, size_t label, size_t count, double* delta) {
  double highest = scores[0];
  for (size_t c = 1; c < CLASSES; c++) highest = fmax(highest, scores[c]);
  double sum = 0.0;
  for (size_t c = 0; c < CLASSES; c++) sum += exp(scores[c] - highest);
  for (size_t c = 0; c < CLASSES; c++)
    delta[c] = (exp(scores[c] - highest) / sum - (c == label ? 1.0 : 0.0)) / (double)count;
  return log(sum) - (scores[label] - highest);
}

double network_loss(network* net, const image_set* set, const size_t* picked, size_t count) {
  for (size_t row = 0; row < count; row++)
    memcpy(net->values[0] + row * PIXELS, set->pixels[picked[row]], sizeof *set->pixels);
  forward(net, count);
  double loss = 0.0;
  for (size_t row = 0; row < count; row++)
    loss += cross_entropy(net->values[LAYERS] + row * CLASSES, set->labels[picked[row]], count,
                          net->deltas[LAYERS] + row * CLASSES);
  return loss / (double)count;
}

static void bias_gradient(network* net, size_t layer, size_t count) {
  const size_t outputs = widths[layer + 1];
  double* grad = net->grads[2 * layer + 1];
  memset(grad, 0, outputs * sizeof *grad);
  for (size_t row = 0; row < count; row++)
    for (size_t o = 0; o < outputs; o++) grad[o] += net->deltas[layer + 1][row * outputs + o];
}

static void weight_gradient(network* net, size_t layer, size_t count) {
  const size_t inputs = widths[layer];
  const size_t outputs = widths[layer + 1];
  double* grad = net->grads[2 * layer];
  memset(grad, 0, inputs * outputs * sizeof *grad);
  for (size_t row = 0; row < count; row++) {
    const double* in = net->values[layer] + row * inputs;
    const double* delta = net->deltas[layer + 1] + row * outputs;
    for (size_t i = 0; i < inputs; i++)
      for (size_t o = 0; o < outputs; o++) grad[i * outputs + o] += in[i] * delta[o];
  }
}

/* Computes the deltas of a layer's inputs, which are outputs of tanh. */
static void input_gradient(network* net, size_t layer, size_t count) {
  const size_t inputs = widths[layer];
  const size_t outputs = widths[layer + 1];
  for (size_t row = 0; row < count; row++) {
    const double* delta = net->deltas[layer + 1] + row * outputs;
    for (size_t i = 0; i < inputs; i++) {
      const double value = net->values[layer][row * inputs + i];
      double sum = 0.0;
      for (size_t o = 0; o < outputs; o++) sum += delta[o] * net->params[2 * layer][i * outputs + o];
      net->deltas[layer][row * inputs + i] = sum * (1.0 - value * value);
    }
  }
}

void network_backward(network* net, size_t count, gradient_ready ready, void* context) {
  for (size_t layer = LAYERS; layer-- > 0;) {
    bias_gradient(net, layer, count);
    if (ready != NULL) ready(context, 2 * layer + 1);
    weight_gradient(net, layer, count);
    if (ready != NULL) ready(context, 2 * layer);
    if (layer > 0) input_gradient(net, layer, count);
  }
}

void network_step(network* net, double rate) {
  const double momentum = 0.9;
  for (size_t i = 0; i < PARAMS; i++) {
    for (size_t k = 0; k < net->counts[i]; k++) {
      net->velocities[i][k] = net->velocities[i][k] * momentum + net->grads[i][k];
      net->params[i][k] -= rate * net->velocities[i][k];
    }
  }
}

size_t network_correct(network* net, const image_set* set, size_t first, size_t stride) {
  size_t correct = 0;
  for (size_t image = first; image < set->count; image += stride) {
    memcpy(net->values[0], set->pixels[image], sizeof *set->pixels);
    forward(net, 1);
    const double* scores = net->values[LAYERS];
    size_t best = 0;
    for (size_t c = 1; c < CLASSES; c++)
      if (scores[c] > scores[best]) best = c;
    if (best == set->labels[image]) correct++;
  }
  return correct;
}
