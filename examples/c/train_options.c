#include "train_options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(FILE* out) {
  fprintf(
      out,
      "usage: train_digits [--epochs 12] [--batch 48] [--lr 0.05] [--seed 0] [--bucket-kib 16] [--compare]\n"
      "                    [--data examples/data/digits.csv]\n");
}

/* Explains a wrong option once, instead of once per rank. */
static void refuse(const char* name, const char* expected, const char* came) {
  const char* rank = getenv("RANK");
  if (rank == NULL || strcmp(rank, "0") == 0) {
    usage(stderr);
    fprintf(stderr, "train_digits: %s: expected %s, got '%s'\n", name, expected, came);
  }
  exit(2);
}

static size_t whole_number(const char* name, const char* text, size_t lowest) {
  char* end = NULL;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < lowest || value > 1000000000)
    refuse(name, lowest == 0 ? "a whole number" : "a whole number above 0", text);
  return (size_t)value;
}

static double positive_number(const char* name, const char* text) {
  char* end = NULL;
  const double value = strtod(text, &end);
  if (end == text || *end != '\0' || !isfinite(value) || value <= 0.0) refuse(name, "a number above 0", text);
  return value;
}

train_options train_options_parse(int argc, char** argv) {
  train_options opt = {
      .epochs = 12, .batch = 48, .bucket_kib = 16, .rate = 0.05, .data = "examples/data/digits.csv"};
  for (int i = 1; i < argc; i++) {
    const char* name = argv[i];
    if (strcmp(name, "--help") == 0) {
      usage(stdout);
      exit(EXIT_SUCCESS);
    }
    if (strcmp(name, "--compare") == 0) {
      opt.compare = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "nothing";
    if (strcmp(name, "--epochs") == 0)
      opt.epochs = whole_number(name, value, 1);
    else if (strcmp(name, "--batch") == 0)
      opt.batch = whole_number(name, value, 1);
    else if (strcmp(name, "--seed") == 0)
      opt.seed = whole_number(name, value, 0);
    else if (strcmp(name, "--bucket-kib") == 0)
      opt.bucket_kib = whole_number(name, value, 1);
    else if (strcmp(name, "--lr") == 0)
      opt.rate = positive_number(name, value);
    else if (strcmp(name, "--data") == 0)
      opt.data = value;
    else
      refuse("option", "one of those above", name);
  }
  return opt;
}
