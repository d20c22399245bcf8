/* Stores. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "capi_walk.h"

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void options_init(void) {
  dsc_store_options_t options;
  WALK_INVALID(dsc_store_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_store_options_init(&options, 8));
  WALK(DSC_OK, dsc_store_options_init(&options, sizeof options));
  EXPECT(options.world_size == 1 && options.timeout_ms == 300000 && options.serve == 0);
}

static void open_wrong_options(void) {
  dsc_store_t* store = NULL;
  dsc_store_options_t options;
  const struct {
    int32_t* field;
    int32_t value;
  } wrong[] = {{&options.serve, 2},
               {&options.world_size, 0},
               {&options.timeout_ms, 0},
               {&options.timeout_ms, -1},
               {&options.allow_unauthenticated, -1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    dsc_store_options_init(&options, sizeof options);
    *wrong[i].field = wrong[i].value;
    WALK_INVALID(dsc_store_open("memory://", &options, &store));
  }
  dsc_store_options_init(&options, sizeof options);
  options.serve = 1;
  WALK_INVALID(dsc_store_open("memory://", &options, &store)); /* a store in memory has no server */
  options.token = "short";
  WALK(DSC_ERR_CONFIG, dsc_store_open("tcp://127.0.0.1:0", &options, &store));
  options.struct_size = 8;
  WALK_INVALID(dsc_store_open("memory://", &options, &store));
  options.struct_size = SIZE_MAX; /* nothing behind the struct must be read */
  WALK_INVALID(dsc_store_open("memory://", &options, &store));
  EXPECT(store == NULL);
}

static void open_store(void) {
  static const char* const wrong[] = {
      "",           "memory",       "memory:///x", "file://",      "http://x:1",   "tcp://",
      "tcp://:1",   "tcp://host",   "tcp://host:", "tcp://host:x", "tcp://host:0", "tcp://host:65536",
      "tcp://[]:1", "tcp://host:1/"};
  dsc_store_t* store = walk_world.store;
  WALK_INVALID(dsc_store_open(NULL, NULL, &store));
  EXPECT(store == NULL);
  WALK_INVALID(dsc_store_open("memory://", NULL, NULL));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    WALK_INVALID(dsc_store_open(wrong[i], NULL, &store));
  open_wrong_options();
  WALK(DSC_OK, dsc_store_open("memory://", NULL, &store));
  WALK(DSC_OK, dsc_store_destroy(store));
}

/* This process is server and client of the store. */
static void open_and_serve(void) {
  dsc_store_options_t options;
  dsc_store_options_init(&options, sizeof options);
  options.token = TOKEN;
  options.serve = 1;
  options.timeout_ms = 20000;
  dsc_store_t *server = NULL, *client = NULL, *file = NULL;
  WALK(DSC_OK, dsc_store_open("tcp://127.0.0.1:0", &options, &server));
  int32_t port = 0;
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_port(bad, &port));
  WALK_INVALID(dsc_store_port(server, NULL));
  WALK(DSC_ERR_STATE, dsc_store_port(walk_world.store, &port));
  WALK(DSC_OK, dsc_store_port(server, &port));
  EXPECT(port > 0);
  char uri[64], value[8], folder[] = "dsc_walk_XXXXXX";
  size_t bytes = 0;
  snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", (int)port);
  options.serve = 0;
  WALK(DSC_OK, dsc_store_open(uri, &options, &client));
  WALK(DSC_OK, dsc_store_set(client, "k", "value", 5));
  WALK(DSC_OK, dsc_store_get(server, "k", -1, value, sizeof value, &bytes));
  EXPECT(bytes == 5 && memcmp(value, "value", 5) == 0);
  WALK(DSC_OK, dsc_store_destroy(server));
  WALK(DSC_ERR_PEER_DEAD, dsc_store_get(client, "k", 50, value, sizeof value, &bytes));
  EXPECT(strstr(dsc_last_error_message(), "127.0.0.1") != NULL);
  WALK(DSC_OK, dsc_store_destroy(client));
  EXPECT(mkdtemp(folder) != NULL);
  snprintf(uri, sizeof uri, "file://%s/store", folder);
  WALK(DSC_OK, dsc_store_open(uri, &options, &file));
  WALK(DSC_OK, dsc_store_set(file, "k", "", 0));
  WALK(DSC_OK, dsc_store_destroy(file));
  EXPECT(rmdir(folder) == 0); /* fails if the folder is not empty */
}

typedef struct shelf {
  char key[16], value[16];
  size_t bytes;
  dsc_result_t result;
  int destroyed;
} shelf_t;

static dsc_result_t put_on_shelf(void* context, const char* key, const void* value, size_t bytes,
                                 int32_t timeout_ms) {
  shelf_t* shelf = context;
  snprintf(shelf->key, sizeof shelf->key, "%s", key);
  memcpy(shelf->value, value, bytes);
  shelf->bytes = bytes;
  return timeout_ms > 0 ? shelf->result : DSC_ERR_INTERNAL;
}

static dsc_result_t get_from_shelf(void* context, const char* key, int32_t timeout_ms, void* value,
                                   size_t capacity, size_t* bytes) {
  shelf_t* shelf = context;
  if (timeout_ms < 0 || strcmp(key, shelf->key) != 0) return DSC_ERR_TIMEOUT;
  if (shelf->bytes <= capacity && shelf->bytes <= sizeof shelf->value)
    memcpy(value, shelf->value, shelf->bytes);
  *bytes = shelf->bytes;
  return shelf->result;
}

static void leave_shelf(void* context) { ++((shelf_t*)context)->destroyed; }

static void from_callbacks(void) {
  shelf_t shelf = {.result = DSC_OK};
  dsc_store_callbacks_t callbacks = {sizeof callbacks, &shelf, put_on_shelf, NULL, leave_shelf};
  dsc_store_t *store = NULL, *part = NULL;
  char value[16];
  size_t bytes = 0;
  WALK_INVALID(dsc_store_from_callbacks(NULL, &store));
  WALK_INVALID(dsc_store_from_callbacks(&callbacks, &store));
  callbacks.get = get_from_shelf;
  WALK_INVALID(dsc_store_from_callbacks(&callbacks, NULL));
  callbacks.struct_size = 8;
  WALK_INVALID(dsc_store_from_callbacks(&callbacks, &store));
  EXPECT(store == NULL && shelf.destroyed == 0);
  callbacks.struct_size = sizeof callbacks;
  WALK(DSC_OK, dsc_store_from_callbacks(&callbacks, &store));
  WALK(DSC_OK, dsc_store_prefix(store, "p", &part));
  WALK(DSC_OK, dsc_store_set(part, "k", "value", 5));
  EXPECT(strcmp(shelf.key, "p/k") == 0);
  WALK(DSC_OK, dsc_store_get(store, "p/k", -1, value, sizeof value, &bytes));
  EXPECT(bytes == 5 && memcmp(value, "value", 5) == 0);
  WALK(DSC_ERR_TIMEOUT, dsc_store_get(store, "other", 10, value, sizeof value, &bytes));
  WALK(DSC_ERR_UNSUPPORTED, dsc_store_add(store, "k", 1, NULL));
  shelf.result = -77;
  WALK(DSC_ERR_CALLBACK, dsc_store_set(part, "k", "value", 5));
  EXPECT(strstr(dsc_last_error_message(), "-77") != NULL);
  shelf.result = DSC_OK;
  shelf.bytes = (size_t)2 << 20;
  WALK(DSC_ERR_CALLBACK, dsc_store_get(part, "k", -1, value, sizeof value, &bytes));
  WALK(DSC_OK, dsc_store_destroy(store));
  EXPECT(shelf.destroyed == 0); /* a part of the store still uses it */
  WALK(DSC_OK, dsc_store_destroy(part));
  EXPECT(shelf.destroyed == 1);
}

static void prefix(void) {
  dsc_store_t* part = walk_world.store;
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_prefix(bad, "p", &part));
  EXPECT(part == NULL);
  WALK_INVALID(dsc_store_prefix(walk_world.store, NULL, &part));
  WALK_INVALID(dsc_store_prefix(walk_world.store, "", &part));
  WALK_INVALID(dsc_store_prefix(walk_world.store, "p", NULL));
  WALK(DSC_OK, dsc_store_prefix(walk_world.store, "p", &part));
  WALK(DSC_OK, dsc_store_destroy(part));
}

static void set(void) {
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_set(bad, "k", "v", 1));
  WALK_INVALID(dsc_store_set(walk_world.store, NULL, "v", 1));
  WALK_INVALID(dsc_store_set(walk_world.store, "", "v", 1));
  WALK_INVALID(dsc_store_set(walk_world.store, "k", NULL, 1));
  WALK_INVALID(dsc_store_set(walk_world.store, "k", "v", SIZE_MAX)); /* refused before the value is read */
  WALK(DSC_OK, dsc_store_set(walk_world.store, "k", "before", 6));
  WALK(DSC_OK, dsc_store_set(walk_world.store, "empty", NULL, 0));
}

static void get(void) {
  const dsc_store_t* store = walk_world.store; /* functions that only read take a const store */
  char value[8] = "left";
  size_t bytes = 99;
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_get(bad, "k", 0, value, sizeof value, &bytes));
  WALK_INVALID(dsc_store_get(store, NULL, 0, value, sizeof value, &bytes));
  WALK_INVALID(dsc_store_get(store, "k", -2, value, sizeof value, &bytes));
  WALK_INVALID(dsc_store_get(store, "k", 0, NULL, 1, &bytes));
  WALK_INVALID(dsc_store_get(store, "k", 0, value, sizeof value, NULL));
  WALK(DSC_ERR_TIMEOUT, dsc_store_get(store, "never", 0, value, sizeof value, &bytes));
  EXPECT(strstr(dsc_last_error_message(), "\"never\"") != NULL);
  EXPECT(bytes == 99 && strcmp(value, "left") == 0);
  WALK(DSC_OK, dsc_store_get(store, "k", 0, NULL, 0, &bytes));
  EXPECT(bytes == 6);
  WALK(DSC_TRUNCATED, dsc_store_get(store, "k", 0, value, 5, &bytes));
  EXPECT(bytes == 6 && memcmp(value, "befor", 6) == 0);
  WALK(DSC_OK, dsc_store_get(store, "k", 0, value, 6, &bytes));
  EXPECT(memcmp(value, "before", 6) == 0);
}

static void add(void) {
  int64_t sum = 99;
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_add(bad, "n", 1, &sum));
  WALK_INVALID(dsc_store_add(walk_world.store, NULL, 1, &sum));
  WALK_INVALID(dsc_store_add(walk_world.store, "k", 1, &sum)); /* the value "before" is not a number */
  EXPECT(sum == 99);
  WALK(DSC_OK, dsc_store_add(walk_world.store, "n", 2, NULL));
  WALK(DSC_OK, dsc_store_add(walk_world.store, "n", -5, &sum));
  EXPECT(sum == -3);
}

static void compare_set(void) {
  char value[8];
  size_t bytes = 99;
  dsc_store_t* store = walk_world.store;
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t,
                   dsc_store_compare_set(bad, "c", NULL, 0, "v", 1, value, sizeof value, &bytes));
  WALK_INVALID(dsc_store_compare_set(store, NULL, NULL, 0, "v", 1, value, sizeof value, &bytes));
  WALK_INVALID(dsc_store_compare_set(store, "c", NULL, 1, "v", 1, value, sizeof value, &bytes));
  WALK_INVALID(dsc_store_compare_set(store, "c", NULL, 0, NULL, 1, value, sizeof value, &bytes));
  WALK_INVALID(dsc_store_compare_set(store, "c", NULL, 0, "v", 1, NULL, 1, &bytes));
  WALK_INVALID(dsc_store_compare_set(store, "c", NULL, 0, "v", 1, value, sizeof value, NULL));
  EXPECT(bytes == 99);
  WALK(DSC_OK, dsc_store_compare_set(store, "c", "x", 1, "v", 1, value, sizeof value, &bytes));
  EXPECT(bytes == 1 && value[0] == 'x'); /* nothing was stored */
  WALK(DSC_OK, dsc_store_compare_set(store, "c", NULL, 0, "v", 1, value, sizeof value, &bytes));
  WALK(DSC_OK, dsc_store_compare_set(store, "c", "v", 1, "w", 1, value, sizeof value, &bytes));
  EXPECT(bytes == 1 && value[0] == 'w');
}

static void append(void) {
  size_t bytes = 0;
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_append(bad, "a", "v", 1));
  WALK_INVALID(dsc_store_append(walk_world.store, NULL, "v", 1));
  WALK_INVALID(dsc_store_append(walk_world.store, "a", NULL, 1));
  for (int i = 0; i < 3; ++i) WALK(DSC_OK, dsc_store_append(walk_world.store, "a", "vw", 2));
  WALK(DSC_OK, dsc_store_get(walk_world.store, "a", 0, NULL, 0, &bytes));
  EXPECT(bytes == 6);
}

static void check_and_wait(void) {
  const char* keys[] = {"k", "nowhere"};
  const char* hole[] = {"k", NULL};
  int32_t present = 99;
  const dsc_store_t* store = walk_world.store;
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_check(bad, keys, 1, &present));
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_wait(bad, keys, 1, 0));
  WALK_INVALID(dsc_store_check(store, NULL, 1, &present));
  WALK_INVALID(dsc_store_check(store, hole, 2, &present));
  WALK_INVALID(dsc_store_check(store, keys, 1, NULL));
  WALK_INVALID(dsc_store_wait(store, NULL, 1, 0));
  WALK_INVALID(dsc_store_wait(store, hole, 2, 0));
  WALK_INVALID(dsc_store_wait(store, keys, 1, -2));
  EXPECT(present == 99);
  WALK(DSC_OK, dsc_store_check(store, keys, 2, &present));
  EXPECT(present == 0);
  WALK(DSC_OK, dsc_store_check(store, keys, 1, &present));
  EXPECT(present == 1);
  WALK(DSC_ERR_TIMEOUT, dsc_store_wait(store, keys, 2, 10));
  EXPECT(strstr(dsc_last_error_message(), "\"nowhere\"") != NULL);
  WALK(DSC_OK, dsc_store_wait(store, keys, 1, 0));
}

static void delete_and_count(void) {
  int32_t deleted = 99;
  int64_t before = 0, after = 0;
  dsc_store_t* store = walk_world.store;
  WALK(DSC_OK, dsc_store_set(store, "k", "v", 1));
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_count(bad, &before));
  WALK_INVALID(dsc_store_count(store, NULL));
  WALK(DSC_OK, dsc_store_count(store, &before));
  WALK_BAD_HANDLES(WALK_STORE, dsc_store_t, dsc_store_delete(bad, "k", &deleted));
  WALK_INVALID(dsc_store_delete(store, NULL, &deleted));
  EXPECT(deleted == 99);
  WALK(DSC_OK, dsc_store_delete(store, "k", &deleted));
  EXPECT(deleted == 1);
  WALK(DSC_OK, dsc_store_delete(store, "k", NULL));
  WALK(DSC_OK, dsc_store_count(store, &after));
  EXPECT(after == before - 1);
}

static void destroy(void) {
  WALK(DSC_OK, dsc_store_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_STORE, dsc_store_t, dsc_store_destroy(bad));
}

const walk_step_t walk_store[] = {
    {"dsc_store_options_init", options_init},
    {"dsc_store_open", open_store},
    {"dsc_store_port", open_and_serve},
    {"dsc_store_from_callbacks", from_callbacks},
    {"dsc_store_prefix", prefix},
    {"dsc_store_set", set},
    {"dsc_store_get", get},
    {"dsc_store_add", add},
    {"dsc_store_compare_set", compare_set},
    {"dsc_store_append", append},
    {"dsc_store_check", check_and_wait},
    {"dsc_store_wait", check_and_wait},
    {"dsc_store_delete", delete_and_count},
    {"dsc_store_count", delete_and_count},
    {"dsc_store_destroy", destroy},
    {NULL, NULL},
};
