/* libdsc as an optional dependency: it is loaded when the program runs, and a program without it still
 * starts. A framework can copy this header and optional_libdsc.c, and change the list of functions. */
#ifndef OPTIONAL_LIBDSC_H
#define OPTIONAL_LIBDSC_H

#include <dsc/functions.h>
#include <stddef.h>

/* The functions of libdsc that this program calls, without their prefix dsc_. */
#define LIBDSC_FUNCTIONS(X) \
  X(version)                \
  X(result_name)            \
  X(last_error_message)     \
  X(is_initialized)         \
  X(init_distributed)       \
  X(finalize)               \
  X(comm_split)             \
  X(comm_rank)              \
  X(comm_size)              \
  X(comm_finalize)          \
  X(comm_destroy)           \
  X(all_reduce)

/* One pointer for each function. */
struct libdsc {
#define LIBDSC_POINTER(name) PFN_dsc_##name name;
  LIBDSC_FUNCTIONS(LIBDSC_POINTER)
#undef LIBDSC_POINTER
};

/* Loads libdsc: the file in the variable DSC_LIBRARY if it is set, as the Python package does, otherwise
 * libdsc.so.0. Returns 1, or 0 and writes why libdsc cannot be used. The library is never unloaded, because
 * its threads run until the process ends. */
int libdsc_load(struct libdsc* dsc, char* reason, size_t capacity);

#endif /* OPTIONAL_LIBDSC_H */
