/**
 * @file version.h
 * @brief Version of the library and its features.
 *
 * The ABI is frozen with the release of 0.1. A program compiled against 0.1 runs with every later 0.x. An
 * incompatible change needs a new major version and another DSC_SOVERSION. docs/packaging.md has the details.
 */
#ifndef DSC_VERSION_H
#define DSC_VERSION_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSC_VERSION_MAJOR 0 /**< changes only with an incompatible ABI */
#define DSC_VERSION_MINOR 1 /**< grows when functions or fields are added */
#define DSC_VERSION_PATCH 0 /**< grows with corrections only */
#define DSC_SOVERSION 0     /**< number in the shared library's name */

/**
 * @brief Returns the version of the loaded library (not of the header).
 * @param[out] major may be NULL
 * @param[out] minor may be NULL
 * @param[out] patch may be NULL
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return DSC_OK
 * @since 0.1
 */
DSC_API dsc_result_t dsc_version(int32_t* major, int32_t* minor, int32_t* patch);

/**
 * @brief Returns whether the loaded library has a feature.
 * @param[in] name one of "host", "nccl", "cuda", "pmix", "gloo", "pipeline"
 * @param[out] available 1 or 0
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return DSC_OK, or DSC_ERR_INVALID_ARG if an argument is NULL or the name is unknown (the message lists the
 * names)
 * @since 0.1
 */
DSC_API dsc_result_t dsc_feature(const char* name, int32_t* available);

/**
 * @brief Lists the engines and optional libraries as JSON: where they are, and why one cannot be used.
 *
 * The text is a JSON object with one member for each of "host", "nccl", "cuda", "pmix", "gloo": "available",
 * "path" and "version" of the library that would be loaded (null: none), "reason" (null if available),
 * "warning" (a known problem of that version, or null). "cuda" also has "devices", their number. "nccl" also
 * has "features", its functions that not all versions have. "nccl" and "cuda" describe the libraries;
 * dsc_feature() says whether this release can use them.
 *
 * The call loads the libraries that it finds. A framework that is loaded later gets the same copy of NCCL, so
 * load the framework first. The call also initialises CUDA's driver; a child that is forked afterwards cannot
 * use it.
 *
 * @param[out] text the JSON; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: for loading libraries and asking the driver; they stay loaded. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_engines_json(char* text, size_t capacity, size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* DSC_VERSION_H */
