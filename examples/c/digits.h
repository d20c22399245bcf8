/*
 * The data and the network of train_digits.c, in plain C without communication.
 *
 * Fully connected layers with tanh between them and softmax cross entropy at the end, in double precision:
 * the same network, with the same initial weights, as in examples/python/digits.py.
 */
#ifndef EXAMPLES_DIGITS_H
#define EXAMPLES_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PIXELS = 64, CLASSES = 10, LAYERS = 3, PARAMS = 2 * LAYERS };

/* Values that flow between the layers: pixels, two hidden layers, classes. */
static const size_t widths[LAYERS + 1] = {PIXELS, 64, 32, CLASSES};

typedef struct image_set {
  size_t count;
  double (*pixels)[PIXELS];
  size_t* labels;
} image_set;

/* Reads the file. Every fifth image belongs to the test set. If it returns false, it has printed the error
 * to stderr. */
bool digits_load(const char* path, image_set* train, image_set* test);
void digits_free(image_set* set);

typedef struct network {
  size_t counts[PARAMS]; /* elements of weight (inputs, outputs), bias, weight, bias, ... */
  double* params[PARAMS];
  double* grads[PARAMS]; /* network_backward() writes here; the caller may point them elsewhere */
  double* velocities[PARAMS];
  double* values[LAYERS + 1]; /* inputs of each layer, one row per image */
  double* deltas[LAYERS + 1]; /* gradient of the loss with respect to `values` */
  double* storage;            /* owns all of the above */
} network;

/* Makes a network for batches of up to batch images. */
bool network_create(network* net, size_t batch, uint64_t seed);
void network_free(network* net);

/* Returns the mean loss over the picked images, and keeps what network_backward() needs. */
double network_loss(network* net, const image_set* set, const size_t* picked, size_t count);

/* Computes the gradients from the last parameter to the first, and calls `ready` for each as soon as it is
 * computed. */
typedef void (*gradient_ready)(void* context, size_t param);
void network_backward(network* net, size_t count, gradient_ready ready, void* context);

/* Runs one step of gradient descent with momentum. */
void network_step(network* net, double rate);

/* Returns how many of the images first, first + stride, ... are recognized. */
size_t network_correct(network* net, const image_set* set, size_t first, size_t stride);

#endif /* EXAMPLES_DIGITS_H */
