/* The command line of train_digits.c. */
#ifndef EXAMPLES_TRAIN_OPTIONS_H
#define EXAMPLES_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct train_options {
  size_t epochs;     /* passes over the images */
  size_t batch;      /* images per step, all ranks together */
  size_t seed;       /* of the weights and of the order */
  size_t bucket_kib; /* size of a gradient bucket */
  double rate;       /* learning rate */
  bool compare;      /* train in one process too and compare the losses */
  const char* data;  /* file of the images */
} train_options;

/* Reads the command line; says what is wrong with it and ends the program with code 2. */
train_options train_options_parse(int argc, char** argv);

#endif /* EXAMPLES_TRAIN_OPTIONS_H */
