/* The interface between libdsc and a transport module, such as libdsc_gloo.so. It is a table of C functions
 * for connections to other hosts. New members are only ever appended to the table. Its size and version show
 * which members a module has.
 *
 * A pair is one connection. A region of a pair is memory into which the peer may write. A message contains
 * the slot number of its region. A message that does not fit into its region ends the connection. Messages of
 * a pair arrive in the order in which they were sent.
 *
 * Functions that return int return a dsc_result_t. On failure they write the reason into `error`, cut to
 * `error_bytes`. Any thread may call the functions, but not from inside a listener. */
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

typedef struct dsc_transport_device dsc_transport_device; /* an address of this host, with one thread */
typedef struct dsc_transport_pair dsc_transport_pair;
typedef struct dsc_transport_region dsc_transport_region;

enum dsc_transport_event {
  DSC_TRANSPORT_OPENED = 1,  /* the pair is connected; detail: its socket */
  DSC_TRANSPORT_CLOSING = 2, /* the connection has ended for any reason; detail: the socket that will now be
                                closed, or -1 */
  DSC_TRANSPORT_SENT = 3,   /* the kernel has taken the oldest unreported message: its memory may be reused */
  DSC_TRANSPORT_ARRIVED = 4 /* a message is complete in its region; detail: the region's slot */
};

/* Called on the device's thread or inside a call on the pair, while the pair is locked. It must return
 * quickly and must not call a function of the table. */
typedef struct dsc_transport_listener {
  void (*event)(void* context, int32_t event, int32_t detail);
  void* context;
} dsc_transport_listener;

typedef struct dsc_transport_table {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  const char* library; /* name and version, such as "Gloo 0.5.0"; must be equal on all hosts */

  /* `address` must be numeric and belong to this host. Connections are accepted only at this address. */
  int (*open_device)(const char* address, dsc_transport_device** device, char* error, size_t error_bytes);
  /* Must be called after all pairs of the device have been freed. */
  void (*close_device)(dsc_transport_device* device);

  /* Starts listening, and writes the address to which the peer connects to `address`. */
  int (*open_pair)(dsc_transport_device* device, const dsc_transport_listener* listener,
                   dsc_transport_pair** pair, char address[DSC_TRANSPORT_ADDRESS_BYTES],
                   size_t* address_bytes, char* error, size_t error_bytes);
  /* Must be called by both sides. Returns immediately; the event OPENED or CLOSING follows. */
  int (*connect_pair)(dsc_transport_pair* pair, const char* address, size_t address_bytes, char* error,
                      size_t error_bytes);
  /* Ends the connection. Messages that were reported as SENT are still delivered. When this returns, the
   * memory of regions and messages of the pair is no longer accessed. */
  void (*close_pair)(dsc_transport_pair* pair);
  /* Closes the pair, and frees it and its regions. */
  void (*free_pair)(dsc_transport_pair* pair);
  /* Writes why the connection ended. The text is empty if it has not ended or this side has closed it. */
  void (*pair_error)(dsc_transport_pair* pair, char* error, size_t error_bytes);

  int (*open_region)(dsc_transport_pair* pair, int32_t slot, void* memory, size_t bytes,
                     dsc_transport_region** region, char* error, size_t error_bytes);
  /* Returns the number of messages that have arrived since the last call. */
  uint32_t (*take_arrived)(dsc_transport_region* region);
  /* Frees the region. If a message has arrived only in part, this ends the connection. */
  void (*close_region)(dsc_transport_region* region);

  /* Never blocks. Data that the socket does not accept now is sent later, when the pair is polled. The memory
   * must stay unchanged until the event SENT. May raise SIGPIPE in the calling thread. */
  int (*send)(dsc_transport_pair* pair, int32_t slot, const void* memory, size_t bytes, size_t offset,
              char* error, size_t error_bytes);

  /* Selects who polls an open connection: the device's thread, which is the default, or the caller with
   * move_pair(). If the caller polls, the device's thread notices the end of a connection only when both
   * sides have ended it. */
  void (*poll_pair)(dsc_transport_pair* pair, int32_t by_device);
  /* Sends as much of the waiting data as the socket accepts, and receives at most one message. Returns
   * nonzero if it should be called again without waiting for the socket. May raise SIGPIPE in the calling
   * thread. */
  int32_t (*move_pair)(dsc_transport_pair* pair);
} dsc_transport_table;

typedef const dsc_transport_table* (*dsc_transport_table_function)(void);

#ifdef __cplusplus
}
#endif

#endif /* DSC_IMPL_TRANSPORT_TABLE_H */
