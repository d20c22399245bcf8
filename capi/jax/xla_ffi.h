/**
 * @file xla_ffi.h
 * @brief What XLA passes to a function that its programs call: the part of XLA's FFI that handlers.c uses.
 *
 * XLA keeps this binary interface stable for at least 12 months. The declarations in this file let the
 * handlers build without jaxlib, and one build works with all versions of jaxlib.
 * tests/bindings/test_jax_layout.py compares each offset and number with the header of the installed jaxlib.
 */
#ifndef DSC_JAX_XLA_FFI_H
#define DSC_JAX_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

/** The versions of the interface that have these layouts, from jaxlib 0.5 on. */
#define FFI_MAJOR 0
#define FFI_OLDEST_MINOR 1
#define FFI_MINOR 3

enum { FFI_EXTENSION_METADATA = 1, FFI_STAGE_EXECUTE = 3, FFI_BUFFER = 1, FFI_SCALAR = 3 };

enum ffi_code {
  FFI_INVALID_ARGUMENT = 3,
  FFI_DEADLINE_EXCEEDED = 4,
  FFI_RESOURCE_EXHAUSTED = 8,
  FFI_FAILED_PRECONDITION = 9,
  FFI_ABORTED = 10,
  FFI_UNIMPLEMENTED = 12,
  FFI_INTERNAL = 13,
  FFI_UNAVAILABLE = 14
};

enum ffi_type {
  FFI_PRED = 1,
  FFI_S8 = 2,
  FFI_S16 = 3,
  FFI_S32 = 4,
  FFI_S64 = 5,
  FFI_U8 = 6,
  FFI_U16 = 7,
  FFI_U32 = 8,
  FFI_U64 = 9,
  FFI_F16 = 10,
  FFI_F32 = 11,
  FFI_F64 = 12,
  FFI_C64 = 15,
  FFI_BF16 = 16,
  FFI_C128 = 18,
  FFI_F8E5M2 = 19,
  FFI_F8E4M3FN = 20
};

/** The head of a linked list of extension structs. */
typedef struct ffi_extension {
  size_t struct_size;
  int32_t type;
  struct ffi_extension* next;
} ffi_extension_t;

typedef struct ffi_version {
  size_t struct_size;
  ffi_extension_t* extension;
  int major;
  int minor;
} ffi_version_t;

/** The description of a handler. XLA requests it by a call with the extension FFI_EXTENSION_METADATA. */
typedef struct ffi_metadata {
  size_t struct_size;
  ffi_version_t version;
  uint32_t traits;
  int64_t state_type_id; /**< present from minor version 2 on; struct_size shows whether it is */
} ffi_metadata_t;

typedef struct ffi_metadata_extension {
  ffi_extension_t base;
  ffi_metadata_t* metadata;
} ffi_metadata_extension_t;

typedef struct ffi_error ffi_error_t;

typedef struct ffi_error_args {
  size_t struct_size;
  ffi_extension_t* extension;
  const char* message;
  int32_t code;
} ffi_error_args_t;

/** The start of XLA's table of functions. */
typedef struct ffi_api {
  size_t struct_size;
  ffi_extension_t* extension;
  ffi_version_t version;
  const void* internal;
  ffi_error_t* (*create_error)(ffi_error_args_t* args);
} ffi_api_t;

typedef struct ffi_buffer {
  size_t struct_size;
  ffi_extension_t* extension;
  int32_t dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
} ffi_buffer_t;

/** Arguments or results: arrays of `size` types and pointers. */
typedef struct ffi_values {
  size_t struct_size;
  ffi_extension_t* extension;
  int64_t size;
  int32_t* types;
  void** values;
} ffi_values_t;

typedef struct ffi_text {
  const char* data;
  size_t length;
} ffi_text_t;

typedef struct ffi_scalar {
  int32_t dtype;
  void* value;
} ffi_scalar_t;

typedef struct ffi_attributes {
  size_t struct_size;
  ffi_extension_t* extension;
  int64_t size;
  int32_t* types;
  ffi_text_t** names;
  void** values;
} ffi_attributes_t;

typedef struct ffi_call {
  size_t struct_size;
  ffi_extension_t* extension;
  const ffi_api_t* api;
  void* context;
  int32_t stage;
  ffi_values_t args;
  ffi_values_t results;
  ffi_attributes_t attributes;
} ffi_call_t;

#endif /* DSC_JAX_XLA_FFI_H */
