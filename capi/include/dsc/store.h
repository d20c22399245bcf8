/**
 * @file store.h
 * @brief Key-value stores: small values that all processes of a job share.
 *
 * Keys are texts of 1 to 1,024 bytes; values are up to 1 MiB of any bytes; a store holds up to 131,072 keys
 * and 64 MiB. The rules are those of PyTorch 2.7's Store. The contents live as long as the store: a memory
 * store as long as its handle, a file as long as a process has it open, a TCP store as long as its server.
 *
 * Every call ends within the store's time-out, or the one that is passed. A server that has stopped
 * answering, or a file that other processes keep locked, may take two seconds more. Any thread may make any
 * call, also while another one waits in the same store. After a time-out dsc_last_error_message() names the
 * missing keys.
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
  const char* job_id; /**< distinguishes jobs that use the same file or port; at most 64 bytes for a file;
                         NULL: DSC_JOB_ID, or none */
  const char* bind; /**< where a server listens: "any", an interface, a name or an address; NULL: DSC_BIND, or
                       the host of the URI */
  int32_t serve;    /**< 1: this process is the TCP store's server; default 0 */
  int32_t
      world_size;     /**< for a server: number of processes that will connect, 1 or more; default 1. The
                         server accepts up to 64 + 2 x world_size connections that are not authenticated yet */
  int32_t timeout_ms; /**< deadline of opening and of every call, in milliseconds, 1 or more; default
                         300,000 */
  int32_t allow_unauthenticated; /**< 1: a server without a token may listen on addresses other than loopback,
                                    as with DSC_ALLOW_UNAUTHENTICATED=1; default 0 */
} dsc_store_options_t;

/**
 * @brief Stores a value under a key that was not put before.
 * @param[in] context that of dsc_store_callbacks_t
 * @param[in] key the key
 * @param[in] value [bytes] the value; may be NULL when bytes is 0
 * @param[in] bytes size of the value
 * @param[in] timeout_ms the function must end within this many milliseconds
 *
 * A C++ exception counts as a failure. Threads: the calling thread of the store, and several threads at once
 * if several call. May call: nothing of this library.
 * @return DSC_OK, or an error
 */
typedef dsc_result_t (*dsc_store_put_fn)(void* context, const char* key, const void* value, size_t bytes,
                                         int32_t timeout_ms);

/**
 * @brief Waits until a key was put, and writes its value.
 * @param[in] context that of dsc_store_callbacks_t
 * @param[in] key the key
 * @param[in] timeout_ms the function waits for at most this many milliseconds
 * @param[out] value [capacity] the first capacity bytes of the value; may be NULL when capacity is 0
 * @param[in] capacity bytes of value
 * @param[out] needed length of the whole value in bytes
 *
 * A C++ exception counts as a failure. Threads: the calling thread of the store, and several threads at once
 * if several call. May call: nothing of this library.
 * @return DSC_OK; DSC_ERR_TIMEOUT if the key was not put; or another error
 */
typedef dsc_result_t (*dsc_store_get_fn)(void* context, const char* key, int32_t timeout_ms, void* value,
                                         size_t capacity, size_t* needed);

/**
 * @brief Releases the context of a store that is no longer used. Called once.
 * @param[in] context that of dsc_store_callbacks_t
 *
 * Threads: any thread. May call: nothing of this library.
 */
typedef void (*dsc_store_destroy_fn)(void* context);

/**
 * @brief A user-defined store, for dsc_store_from_callbacks().
 */
typedef struct dsc_store_callbacks {
  size_t struct_size;           /**< size of this struct as the caller compiled it */
  void* context;                /**< passed to every function; must stay valid until destroy has returned */
  dsc_store_put_fn put;         /**< keeps a value */
  dsc_store_get_fn get;         /**< waits for a value */
  dsc_store_destroy_fn destroy; /**< releases the context; NULL: do nothing */
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
 * system with locks; data left by a job that died is ignored; if another job is using the file, the call
 * waits for it) or "tcp://HOST:PORT" (processes on any hosts; one of them sets serve, the others retry until
 * it listens; with port 0 a server takes a free port)
 * @param[in] options NULL: all defaults
 * @param[out] store the store; stays NULL on failure
 *
 * In a TCP store both sides first prove that they have the same token, and authenticate every later message;
 * values are not encrypted. A server listens only on the addresses of HOST, and without a token only on
 * loopback.
 *
 * Collective: no. Blocking: until the store is reached, at most for the time-out. Ownership: options are read
 * during the call only; the store is valid until dsc_store_destroy(). Threads: any; a server has its own
 * thread.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_CONFIG (a name that cannot be resolved, an address that is not
 * this host's, an invalid token); DSC_ERR_AUTH (tokens differ or one is missing, or other users could change
 * the file); DSC_ERR_ADDR_IN_USE (the port is taken, or a job with another id uses it); DSC_ERR_PROTOCOL
 * (another program answers, or the file is of another kind); DSC_ERR_VERSION; DSC_ERR_TIMEOUT (with the
 * addresses tried and the reason); DSC_ERR_SYSTEM; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_open(const char* uri, const dsc_store_options_t* options, dsc_store_t** store);

/**
 * @brief Creates a store from user-defined functions. It supports set, get and wait; other calls return
 * DSC_ERR_UNSUPPORTED.
 * @param[in] callbacks copied; put and get are required
 * @param[out] store the store; stays NULL on failure, and then destroy is not called
 *
 * Collective: no. Blocking: no. Ownership: context and functions must stay valid until destroy has returned.
 * Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_from_callbacks(const dsc_store_callbacks_t* callbacks, dsc_store_t** store);

/**
 * @brief Creates a store that is a part of another one: KEY of the part is "PREFIX/KEY" of the whole.
 * @param[in] store the whole; the part keeps it alive
 * @param[in] prefix 1 byte or more; the whole key has at most 1,024
 * @param[out] part the part, with the time-out of the whole; stays NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: the caller releases the part with dsc_store_destroy(). Threads:
 * any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_prefix(const dsc_store_t* store, const char* prefix, dsc_store_t** part);

/**
 * @brief Returns the port at which this process serves the store.
 * @param[in] store a store that was opened with serve set
 * @param[out] port 1 to 65535
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_STATE if this process is not the server; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_port(const dsc_store_t* store, int32_t* port);

/**
 * @brief Sets a key, whether it exists or not.
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] value bytes of the value; may be NULL when bytes is 0
 * @param[in] bytes length of the value, up to 1,048,576
 *
 * Collective: no. Blocking: for the exchange with the store, at most for the time-out. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_NOSPACE (the store or its file system is full);
 * DSC_ERR_TIMEOUT; DSC_ERR_PEER_DEAD (the server has ended, also if another one has replaced it);
 * DSC_ERR_PROTOCOL; DSC_ERR_SYSTEM; DSC_ERR_CALLBACK; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED;
 * DSC_ERR_REENTRANT; and those of dsc_store_open() if it has to reconnect
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_set(dsc_store_t* store, const char* key, const void* value, size_t bytes);

/**
 * @brief Waits until a key is set and returns its value.
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] timeout_ms how long to wait, 0 or more; -1: the store's time-out
 * @param[out] value the value; may be NULL with capacity 0
 * @param[in] capacity bytes of value
 * @param[out] needed length of the value, which has no final zero; if it is more than capacity, call again
 * with a larger buffer
 *
 * Collective: no. Blocking: until the key is set, at most timeout_ms. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_TIMEOUT naming the key; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_get(const dsc_store_t* store, const char* key, int32_t timeout_ms, void* value,
                                   size_t capacity, size_t* needed);

/**
 * @brief Adds to a counter, which is 0 if the key is not set. The value is stored as decimal text.
 * @param[in] store the store
 * @param[in] key the key
 * @param[in] amount what to add; may be negative or 0
 * @param[out] sum the counter afterwards; may be NULL
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG if the value is not an integer; DSC_ERR_OVERFLOW; DSC_ERR_UNSUPPORTED;
 * those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_add(dsc_store_t* store, const char* key, int64_t amount, int64_t* sum);

/**
 * @brief Sets a key if its value is the expected one, in one step.
 *
 * If the key is not set and the expected value is empty, the key is set. If the key is not set and the
 * expected value is not empty, nothing is stored, and the call returns the expected value.
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
 * @return DSC_OK or DSC_TRUNCATED, whether the key was changed or not; DSC_ERR_UNSUPPORTED; those of
 * dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_compare_set(dsc_store_t* store, const char* key, const void* expected,
                                           size_t expected_bytes, const void* desired, size_t desired_bytes,
                                           void* value, size_t capacity, size_t* needed);

/**
 * @brief Appends to a value; a key that is not set counts as empty.
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
 * @brief Returns whether all the given keys are set.
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
 * @brief Waits until all the given keys are set.
 * @param[in] store the store
 * @param[in] keys the keys
 * @param[in] n number of keys
 * @param[in] timeout_ms how long to wait, 0 or more; -1: the store's time-out
 *
 * Collective: no. Blocking: until the keys are set, at most timeout_ms. Threads: any.
 * @return DSC_OK; DSC_ERR_TIMEOUT naming the missing keys; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_wait(const dsc_store_t* store, const char* const* keys, size_t n,
                                    int32_t timeout_ms);

/**
 * @brief Removes a key.
 * @param[in] store the store
 * @param[in] key the key
 * @param[out] deleted 1 if it was set, else 0; may be NULL
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_UNSUPPORTED; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_delete(dsc_store_t* store, const char* key, int32_t* deleted);

/**
 * @brief Counts the keys. For a part it counts those of the whole store.
 * @param[in] store the store
 * @param[out] count number of keys
 *
 * Collective: no. Blocking: as dsc_store_set(). Threads: any.
 * @return DSC_OK; DSC_ERR_UNSUPPORTED; those of dsc_store_set()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_count(const dsc_store_t* store, int64_t* count);

/**
 * @brief Releases a store. If this process is its server, the server ends, and processes that wait get
 * DSC_ERR_PEER_DEAD.
 * @param[in] store the store; NULL does nothing. Parts of it keep it alive
 *
 * Collective: no. Blocking: no, but up to 100 ms for a file that another process keeps locked. Threads: any;
 * running calls of other threads continue.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_store_destroy(dsc_store_t* store);

#ifdef __cplusplus
}
#endif

#endif /* DSC_STORE_H */
