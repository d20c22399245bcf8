/**
 * @file store.h
 * @brief Key-value stores: small values that all processes of a job see.
 *
 * Keys are texts of 1 to 1,024 bytes, values any bytes up to 1 MiB; a store holds up to 131,072 keys and 64
 * MiB. The rules are those of PyTorch 2.7's Store. What is in a store ends with it: a memory store with its
 * handle, a file with the last process that has it open, a TCP store with its server.
 *
 * Every call ends within the store's time-out, or the one that it is given; a server that has stopped
 * answering, or a file that others keep locked, may take two seconds more. Any thread may call anything, also
 * while another one waits in the same store. dsc_last_error_message() names the keys that nobody has set.
 */
#ifndef DSC_STORE_H
#define DSC_STORE_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A key-value store. Thread-safety: any thread, several at once. */
typedef struct dsc_store dsc_store_t;

/**
 * @brief Options of dsc_store_open(). Fill with dsc_store_options_init(), then change what is needed.
 */
typedef struct dsc_store_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  const char* token;  /**< secret of the job, 64 hexadecimal digits; NULL: DSC_TOKEN_FD, DSC_TOKEN_FILE,
                         DSC_TOKEN, or none. TCP only */
  const char* job_id; /**< keeps jobs apart that use one place; at most 64 bytes for a file; NULL: DSC_JOB_ID,
                         or none */
  const char* bind; /**< where a server listens: "any", an interface, a name or an address; NULL: DSC_BIND, or
                       the host of the URI */
  int32_t serve;    /**< 1: this process is the TCP store's server; default 0 */
  int32_t world_size; /**< for a server: processes that will connect, 1 or more. It accepts up to 64 + 2 x
                         world_size connections that have not shown the token yet; default 1 */
  int32_t timeout_ms; /**< deadline of opening and of every call, in milliseconds, 1 or more; default
                         300,000 */
  int32_t allow_unauthenticated; /**< 1: a server without a token may listen at an address that is not
                                    loopback, as with DSC_ALLOW_UNAUTHENTICATED=1; default 0 */
} dsc_store_options_t;

/**
 * @brief Keeps a value under a key that was not put before: returns DSC_OK, or an error.
 *
 * Runs on the thread that calls the store, and on several threads at once if several call. It must end within
 * timeout_ms, may not call the library, and a C++ exception counts as a failure.
 */
typedef dsc_result_t (*dsc_store_put_fn)(void* context, const char* key, const void* value, size_t bytes,
                                         int32_t timeout_ms);

/**
 * @brief Waits until a key was put, and writes its value, at most capacity bytes, and the value's length:
 * returns DSC_OK, DSC_ERR_TIMEOUT after timeout_ms, or another error. The rest as for dsc_store_put_fn.
 */
typedef dsc_result_t (*dsc_store_get_fn)(void* context, const char* key, int32_t timeout_ms, void* value,
                                         size_t capacity, size_t* needed);

/**
 * @brief Called once, on any thread, when nobody uses the store any more. It may not call the library.
 */
typedef void (*dsc_store_destroy_fn)(void* context);

/**
 * @brief A store of the caller's, for dsc_store_from_callbacks().
 */
typedef struct dsc_store_callbacks {
  size_t struct_size;           /**< size of this struct as the caller compiled it */
  void* context;                /**< passed to every function */
  dsc_store_put_fn put;         /**< keeps a value */
  dsc_store_get_fn get;         /**< waits for a value */
  dsc_store_destroy_fn destroy; /**< releases the context; NULL: there is nothing to do */
} dsc_store_callbacks_t;

/**
 * @brief Fills options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_store_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG if options is NULL or struct_size is smaller than that of the first
 * release
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_options_init(dsc_store_options_t* options, size_t struct_size);

/**
 * @brief Opens a store.
 * @param[in] uri "memory://" (threads that share the handle), "file:///PATH" (processes that share a file
 * system with locks: what a job that died left in the file is never seen; another job that uses it is waited
 * for) or "tcp://HOST:PORT" (processes on any hosts; one of them has serve set, the others try until it is
 * there; port 0 makes a server take a free one)
 * @param[in] options NULL: all defaults
 * @param[out] store the store; stays NULL on failure
 *
 * A TCP store checks that both sides have the same token before anything else is read, and every message
 * after that; values travel in clear text. A server listens at the addresses of HOST only, and without a
 * token only at loopback.
 *
 * Collective: no. Blocking: until the store is there, at most the time-out. Ownership: options are read
 * during the call only; the store lives until dsc_store_destroy(). Threads: any; a server has a thread of its
 * own.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_CONFIG (a name that cannot be resolved, no address of this
 * host, a token that is no token); DSC_ERR_AUTH (tokens differ or one is missing, a file that others could
 * change); DSC_ERR_ADDR_IN_USE (the port is taken, or a job with another id is there); DSC_ERR_PROTOCOL
 * (something else answers, or a file of another kind); DSC_ERR_VERSION; DSC_ERR_TIMEOUT (with the addresses
 * tried and the reason); DSC_ERR_SYSTEM; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_open(const char* uri, const dsc_store_options_t* options, dsc_store_t** store);

/**
 * @brief Makes a store of the caller's functions. It can set, get and wait; the rest is DSC_ERR_UNSUPPORTED.
 * @param[in] callbacks copied; put and get are needed
 * @param[out] store the store; stays NULL on failure, and then destroy is not called
 *
 * Collective: no. Blocking: no. Ownership: context is the caller's until destroy was called. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_from_callbacks(const dsc_store_callbacks_t* callbacks, dsc_store_t** store);

/**
 * @brief Makes a store that is a part of another one: KEY of the part is "PREFIX/KEY" of the whole.
 * @param[in] store the whole; the part keeps it alive
 * @param[in] prefix 1 byte or more; the whole key has at most 1,024
 * @param[out] part the part, with the time-out of the whole; stays NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: the part is the caller's, to be given to dsc_store_destroy().
 * Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_prefix(const dsc_store_t* store, const char* prefix, dsc_store_t** part);

/**
 * @brief Gives the port at which this process serves the store.
 * @param[in] store a store that was opened with serve set
 * @param[out] port 1 to 65535
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_STATE if this process is not its server; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_port(const dsc_store_t* store, int32_t* port);

/**
 * @brief Sets a key, whether it is there or not.
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] value bytes of the value; may be NULL when bytes is 0
 * @param[in] bytes length of the value, up to 1,048,576
 *
 * Collective: no. Blocking: for the way to the store, at most the time-out. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_NOSPACE (the store or its file system is full);
 * DSC_ERR_TIMEOUT; DSC_ERR_PEER_DEAD (the server is gone, also if another one has its place);
 * DSC_ERR_PROTOCOL; DSC_ERR_SYSTEM; DSC_ERR_CALLBACK; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED;
 * DSC_ERR_REENTRANT; and those of dsc_store_open() when it has to connect again
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_set(dsc_store_t* store, const char* key, const void* value, size_t bytes);

/**
 * @brief Waits until a key is there and gives its value.
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] timeout_ms how long to wait, 0 or more; -1: the store's time-out
 * @param[out] value the value; may be NULL with capacity 0
 * @param[in] capacity bytes of value
 * @param[out] needed length of the value, which has no final zero: when it is more than capacity, call again
 * with a larger buffer
 *
 * Collective: no. Blocking: until the key is there, at most timeout_ms. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_TIMEOUT naming the key; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_get(const dsc_store_t* store, const char* key, int32_t timeout_ms, void* value,
                                   size_t capacity, size_t* needed);

/**
 * @brief Adds to a counter, which is 0 as long as the key is not there. Its value is kept as decimal text.
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] amount what to add; may be negative or 0
 * @param[out] sum the counter afterwards; may be NULL
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG if the value is no whole number; DSC_ERR_OVERFLOW; DSC_ERR_UNSUPPORTED;
 * those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_add(dsc_store_t* store, const char* key, int64_t amount, int64_t* sum);

/**
 * @brief Sets a key if its value is the expected one, in one step.
 *
 * A key that is not there is set if the expected value is empty; otherwise nothing is stored, and the
 * expected value is what comes back.
 *
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] expected the value that it should have; may be NULL when expected_bytes is 0
 * @param[in] expected_bytes length of expected
 * @param[in] desired the new value; may be NULL when desired_bytes is 0
 * @param[in] desired_bytes length of desired, up to 1,048,576
 * @param[out] value the value afterwards; may be NULL with capacity 0
 * @param[in] capacity bytes of value
 * @param[out] needed length of the value afterwards
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK or DSC_TRUNCATED, whether it was set or not; DSC_ERR_UNSUPPORTED; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_compare_set(dsc_store_t* store, const char* key, const void* expected,
                                           size_t expected_bytes, const void* desired, size_t desired_bytes,
                                           void* value, size_t capacity, size_t* needed);

/**
 * @brief Appends to a value; a key that is not there counts as empty.
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] value bytes to append; may be NULL when bytes is 0
 * @param[in] bytes their number; the whole value has at most 1,048,576
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_UNSUPPORTED; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_append(dsc_store_t* store, const char* key, const void* value, size_t bytes);

/**
 * @brief Says whether all of some keys are there.
 * @param[in] store the store
 * @param[in] keys the keys
 * @param[in] n number of keys
 * @param[out] present 1 or 0
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_UNSUPPORTED; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_check(const dsc_store_t* store, const char* const* keys, size_t n,
                                     int32_t* present);

/**
 * @brief Waits until all of some keys are there.
 * @param[in] store the store
 * @param[in] keys the keys
 * @param[in] n number of keys
 * @param[in] timeout_ms how long to wait, 0 or more; -1: the store's time-out
 *
 * Collective: no. Blocking: until the keys are there, at most timeout_ms. Threads: any.
 * @return DSC_OK; DSC_ERR_TIMEOUT naming the keys that are missing; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_wait(const dsc_store_t* store, const char* const* keys, size_t n,
                                    int32_t timeout_ms);

/**
 * @brief Removes a key.
 * @param[in] store the store
 * @param[in] key the key
 * @param[out] deleted 1 if it was there, else 0; may be NULL
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_UNSUPPORTED; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_delete(dsc_store_t* store, const char* key, int32_t* deleted);

/**
 * @brief Counts the keys. In a part, those of the whole store are counted.
 * @param[in] store the store
 * @param[out] count number of keys
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_UNSUPPORTED; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_count(const dsc_store_t* store, int64_t* count);

/**
 * @brief Releases a store. A server ends, and processes that wait in it get DSC_ERR_PEER_DEAD.
 * @param[in] store the store; NULL is allowed. Parts of it keep it alive
 *
 * Collective: no. Blocking: no, but up to 100 ms for a file that another process keeps locked. Threads: any;
 * a call that another thread is inside of goes on.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_destroy(dsc_store_t* store);

#ifdef __cplusplus
}
#endif

#endif /* DSC_STORE_H */
