/**
 * @file tensor.h
 * @brief The description of a tensor, the element of all lists of tensors.
 */
#ifndef DSC_TENSOR_H
#define DSC_TENSOR_H

#include <dsc/types.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief One tensor of a list. Set the struct_size of every element of a list, always to the same value. */
typedef struct dsc_tensor {
  size_t struct_size; /**< size of this struct as the caller compiled it; needed in every element */
  void* data; /**< [inout count] address of the first element; elements are contiguous. May be NULL if only
                 the description is used */
  const int64_t* shape; /**< [ndim] sizes, whose product is count; NULL: only count is known */
  const char* name;     /**< shown in error messages; NULL: "parameter INDEX" */
  size_t count;         /**< number of elements */
  dsc_dtype_t dtype;    /**< element type */
  int32_t ndim;         /**< entries of shape, 0 or more */
  int32_t device;       /**< -1: data is in host memory; otherwise the number of the GPU that the communicator
                           is bound to */
  int32_t expect_sparse; /**< 1: a parameter with sparse gradients, see dsc_bucket_reducer_mark_sparse();
                            shape must be set. Otherwise 0 */
} dsc_tensor_t;

/**
 * @brief Fills the description of a tensor: in host memory, all other fields 0 or NULL.
 *
 * Do not zero the struct instead: device 0 would mean GPU 0, and struct_size 0 is refused.
 *
 * @param[out] tensor the struct to fill
 * @param[in] struct_size sizeof(dsc_tensor_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_tensor_init(dsc_tensor_t* tensor, size_t struct_size);

/** @brief Returns the description of a tensor in host memory, for C and C++: count elements at data. Set
 * other fields, such as the name, in the returned struct. It cannot fail. It is an inline function, not part
 * of the library. */
static inline dsc_tensor_t dsc_tensor_on_host(void* data, size_t count, dsc_dtype_t dtype) {
  dsc_tensor_t tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  tensor.data = data;
  tensor.count = count;
  tensor.dtype = dtype;
  tensor.device = -1;
  return tensor;
}

#ifdef __cplusplus
}
#endif

#endif /* DSC_TENSOR_H */
