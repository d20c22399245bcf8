/* The command line of train_digits.c. */
#ifndef EXAMPLES_TRAIN_OPTIONS_H
#define EXAMPLES_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct train_options {
  size_t epochs;     /* passes over the images */
  size_t batch;      /* images per step, all ranks together */
  size_t seed;       /* seed of the weights and of the order of images */
  size_t bucket_kib; /* size of a gradient bucket */
  double rate;       /* learning rate */
  bool compare;      /* also train in one process, and compare the losses */
  const char* data;  /* file of the images */
} train_options;

/* Reads the command line. If it is wrong, prints the error and ends the program with code 2. */
train_options train_options_parse(int argc, char** argv);

#endif /* EXAMPLES_TRAIN_OPTIONS_H */
