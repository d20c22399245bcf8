/**
 * @file tensor.h
 * @brief The description of a tensor, from which all lists of tensors are made.
 */
#ifndef DSC_TENSOR_H
#define DSC_TENSOR_H

#include <dsc/types.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief One tensor of a list. Every element of a list that is passed in must have its struct_size set, all
 * to the same value. */
typedef struct dsc_tensor {
  size_t struct_size; /**< size of this struct as the caller compiled it; needed in every element */
  void* data;         /**< first element; the elements are contiguous. May be NULL where only the description
                         is used */
  const int64_t* shape; /**< ndim sizes, whose product is count; NULL: only count is known */
  const char* name;     /**< shown in error messages; NULL: "parameter INDEX" */
  size_t count;         /**< number of elements */
  dsc_dtype_t dtype;    /**< element type */
  int32_t ndim;         /**< entries of shape, 0 or more */
  int32_t device;       /**< -1: data is in host memory; otherwise the number of the GPU that the communicator
                           is bound to */
  int32_t expect_sparse; /**< 1: of a parameter whose gradients are sparse, see
                            dsc_bucket_reducer_mark_sparse(); its shape must be given. Else 0 */
} dsc_tensor_t;

/**
 * @brief Fills the description of a tensor: in host memory, all else 0 or NULL.
 *
 * A description that is all zeros would mean GPU 0, and its struct_size would be refused.
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
 * other fields, such as the name, in what it returns. It cannot fail, and the program compiles it. */
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
