/* What libdsc_gloo.so gives to libdsc: plain C functions over connections to other hosts. The table is
 * append-only; its size and version say what is there.
 *
 * A pair is one connection. Memory that a peer may write into is a region of it, under a slot number that the
 * peer names; a message that does not fit its region ends the connection. Messages of one pair arrive in the
 * order in which they were sent.
 *
 * Functions that return int return a dsc_result_t, and write the reason of an error, cut to its room, into
 * `error`. They may be called by any thread, but not from inside an event. */
#ifndef DSC_IMPL_WIRE_TABLE_H
#define DSC_IMPL_WIRE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSC_TRANSPORT_TABLE_VERSION 1u
#define DSC_TRANSPORT_TABLE_SYMBOL "dsc_gloo_table"
#define DSC_TRANSPORT_ADDRESS_BYTES 256

typedef struct dsc_transport_device dsc_transport_device; /* an address of this host, and one thread */
typedef struct dsc_transport_pair dsc_transport_pair;
typedef struct dsc_transport_region dsc_transport_region;

enum dsc_transport_event {
  DSC_TRANSPORT_OPENED = 1, /* connected; detail: its socket */
  DSC_TRANSPORT_CLOSING =
      2, /* ended for ever, for whatever reason; detail: the socket (or -1), about to be closed */
  DSC_TRANSPORT_SENT = 3,   /* the oldest message not yet told is with the kernel: its memory is free again */
  DSC_TRANSPORT_ARRIVED = 4 /* a message is complete in its region; detail: the region's slot */
};

/* Called on the device's thread or inside a call on the pair, with the pair locked: takes note and returns.
 */
typedef struct dsc_transport_listener {
  void (*event)(void* context, int32_t event, int32_t detail);
  void* context;
} dsc_transport_listener;

typedef struct dsc_transport_table {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  const char* library; /* "Gloo 0.5.0" */

  /* `address` is numeric, and of this host: connections are accepted there only. */
  int (*open_device)(const char* address, dsc_transport_device** device, char* error, size_t error_bytes);
  /* After its pairs. */
  void (*close_device)(dsc_transport_device* device);

  /* Listens; what is written to `address` is for the peer. */
  int (*open_pair)(dsc_transport_device* device, const dsc_transport_listener* listener,
                   dsc_transport_pair** pair, char address[DSC_TRANSPORT_ADDRESS_BYTES],
                   size_t* address_bytes, char* error, size_t error_bytes);
  /* Returns at once; OPENED or CLOSING follows. Both sides call it. */
  int (*connect_pair)(dsc_transport_pair* pair, const char* address, size_t address_bytes, char* error,
                      size_t error_bytes);
  /* Ends the connection; what was told as SENT is still delivered. When it returns, nobody touches memory of
   * its regions and messages any more. */
  void (*close_pair)(dsc_transport_pair* pair);
  /* Closes, and frees it and its regions. */
  void (*free_pair)(dsc_transport_pair* pair);
  /* Why the connection ended; empty while it has not, or when this side closed it. */
  void (*pair_error)(dsc_transport_pair* pair, char* error, size_t error_bytes);

  int (*open_region)(dsc_transport_pair* pair, int32_t slot, void* memory, size_t bytes,
                     dsc_transport_region** region, char* error, size_t error_bytes);
  /* Number of messages that have come since it was last asked. */
  uint32_t (*take_arrived)(dsc_transport_region* region);
  /* When a message is only half there, ends the connection first. */
  void (*close_region)(dsc_transport_region* region);

  /* Never blocks: what the socket does not take is sent by who looks after the connection. The memory is read
   * until SENT. May raise SIGPIPE in the calling thread. */
  int (*send)(dsc_transport_pair* pair, int32_t slot, const void* memory, size_t bytes, size_t offset,
              char* error, size_t error_bytes);

  /* Who looks after an open connection: the device's thread, as at first, or the caller, with move_pair():
   * the device's thread then sees the end of a connection only when both sides have ended it. */
  void (*poll_pair)(dsc_transport_pair* pair, int32_t by_device);
  /* Sends what waits, as far as the socket takes it, and receives at most one message. Nonzero: call it again
   * without waiting for the socket. May raise SIGPIPE in the calling thread. */
  int32_t (*move_pair)(dsc_transport_pair* pair);
} dsc_transport_table;

typedef const dsc_transport_table* (*dsc_transport_table_function)(void);

#ifdef __cplusplus
}
#endif

#endif /* DSC_IMPL_WIRE_TABLE_H */
