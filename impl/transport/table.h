/* The interface of a transport module, such as libdsc_gloo.so, to libdsc: plain C functions for connections
 * to other hosts. The table is append-only; its size and version tell which members are present.
 *
 * A pair is one connection. Memory that the peer may write into is a region of the pair; messages name it by
 * its slot number, and a message that does not fit its region ends the connection. Messages of one pair
 * arrive in the order in which they were sent.
 *
 * Functions that return int return a dsc_result_t, and write the reason of an error, cut to its room, into
 * `error`. They may be called by any thread, but not from inside a listener. */
#ifndef DSC_IMPL_TRANSPORT_TABLE_H
#define DSC_IMPL_TRANSPORT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSC_TRANSPORT_TABLE_VERSION 1u
#define DSC_TRANSPORT_TABLE_SYMBOL "dsc_transport_module"
#define DSC_TRANSPORT_ADDRESS_BYTES 256

typedef struct dsc_transport_device dsc_transport_device; /* an address of this host, and one thread */
typedef struct dsc_transport_pair dsc_transport_pair;
typedef struct dsc_transport_region dsc_transport_region;

enum dsc_transport_event {
  DSC_TRANSPORT_OPENED = 1,  /* the pair is connected; detail: its socket */
  DSC_TRANSPORT_CLOSING = 2, /* the connection has ended for any reason; detail: the socket (or -1), which is
                                about to be closed */
  DSC_TRANSPORT_SENT = 3,   /* the kernel has taken the oldest unreported message: its memory may be reused */
  DSC_TRANSPORT_ARRIVED = 4 /* a message is complete in its region; detail: the region's slot */
};

/* Called on the device's thread or inside a call on the pair, while the pair is locked: it must return at
 * once and not call the table. */
typedef struct dsc_transport_listener {
  void (*event)(void* context, int32_t event, int32_t detail);
  void* context;
} dsc_transport_listener;

typedef struct dsc_transport_table {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  const char* library; /* name and version, such as "Gloo 0.5.0"; must be equal on all hosts */

  /* `address` must be numeric and belong to this host; connections are accepted only there. */
  int (*open_device)(const char* address, dsc_transport_device** device, char* error, size_t error_bytes);
  /* Must be called after all pairs of the device have been freed. */
  void (*close_device)(dsc_transport_device* device);

  /* Starts listening, and writes the address to which the peer connects to `address`. */
  int (*open_pair)(dsc_transport_device* device, const dsc_transport_listener* listener,
                   dsc_transport_pair** pair, char address[DSC_TRANSPORT_ADDRESS_BYTES],
                   size_t* address_bytes, char* error, size_t error_bytes);
  /* Returns at once; OPENED or CLOSING follows. Both sides call it. */
  int (*connect_pair)(dsc_transport_pair* pair, const char* address, size_t address_bytes, char* error,
                      size_t error_bytes);
  /* Ends the connection; messages reported as SENT are still delivered. After it returns, memory of its
   * regions and messages is not accessed any more. */
  void (*close_pair)(dsc_transport_pair* pair);
  /* Closes the pair, and frees it and its regions. */
  void (*free_pair)(dsc_transport_pair* pair);
  /* Writes why the connection ended; empty if it has not ended or this side closed it. */
  void (*pair_error)(dsc_transport_pair* pair, char* error, size_t error_bytes);

  int (*open_region)(dsc_transport_pair* pair, int32_t slot, void* memory, size_t bytes,
                     dsc_transport_region** region, char* error, size_t error_bytes);
  /* Returns the number of messages that have arrived since the last call. */
  uint32_t (*take_arrived)(dsc_transport_region* region);
  /* Frees the region. If a message has arrived only in part, this ends the connection. */
  void (*close_region)(dsc_transport_region* region);

  /* Never blocks: data that the socket does not accept now is sent later, when the pair is polled. The
   * memory is read until SENT. May raise SIGPIPE in the calling thread. */
  int (*send)(dsc_transport_pair* pair, int32_t slot, const void* memory, size_t bytes, size_t offset,
              char* error, size_t error_bytes);

  /* Selects who polls an open connection: the device's thread, which is the default, or the caller with
   * move_pair(). In the latter case the device's thread sees the end of a connection only when both sides
   * have ended it. */
  void (*poll_pair)(dsc_transport_pair* pair, int32_t by_device);
  /* Sends waiting data as far as the socket accepts it, and receives at most one message. Nonzero means that
   * it should be called again without waiting for the socket. May raise SIGPIPE in the calling thread. */
  int32_t (*move_pair)(dsc_transport_pair* pair);
} dsc_transport_table;

typedef const dsc_transport_table* (*dsc_transport_table_function)(void);

#ifdef __cplusplus
}
#endif

#endif /* DSC_IMPL_TRANSPORT_TABLE_H */
