/* Meshes. */
#include <stdint.h>

#include "capi_walk.h"

#define M walk_world.mesh
#define W walk_world.alone

static void options_init(void) {
  dsc_mesh_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_mesh_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_mesh_options_init(&options, sizeof options - 1));
  EXPECT(options.world_size == 0x77777777);
  WALK(DSC_OK, dsc_mesh_options_init(&options, sizeof options));
  EXPECT(options.order == NULL && options.world_size == 0 && options.rank_offset == 0);
}

static void create_wrong_options(void) {
  static const char* const names[] = {"a", "b"};
  static const int32_t sizes[] = {2, 3};
  dsc_mesh_t* mesh = M;
  dsc_mesh_options_t options;
  dsc_mesh_options_init(&options, sizeof options);
#define WRONG(expected, field, value)                                          \
  options.field = (value);                                                     \
  WALK(DSC_ERR_##expected, dsc_mesh_create(names, sizes, 2, &options, &mesh)); \
  dsc_mesh_options_init(&options, sizeof options)
  WRONG(INVALID_ARG, struct_size, sizeof options - 1);
  WRONG(INVALID_ARG, order, "");
  WRONG(INVALID_ARG, order, "a-c");
  WRONG(INVALID_ARG, world_size, 7);
  WRONG(INVALID_ARG, world_size, INT32_MIN);
  WRONG(INVALID_ARG, rank_offset, -1);
  WRONG(OVERFLOW, rank_offset, INT32_MAX);
  EXPECT(mesh == NULL);
  WALK(DSC_OK, dsc_mesh_create(names, sizes, 2, &options, &mesh));
  WALK(DSC_OK, dsc_mesh_destroy(mesh));
#undef WRONG
}

static void create(void) {
  static const char *const names[] = {"a", "b"}, *const holes[] = {"a", NULL}, *const twice[] = {"a", "a"};
  static const int32_t sizes[] = {2, 3}, wrong[] = {2, 0}, huge[] = {INT32_MAX, INT32_MAX};
  dsc_mesh_t* mesh = M;
  WALK_INVALID(dsc_mesh_create(names, sizes, 2, NULL, NULL));
  WALK_INVALID(dsc_mesh_create(NULL, sizes, 2, NULL, &mesh));
  EXPECT(mesh == NULL);
  WALK_INVALID(dsc_mesh_create(names, NULL, 2, NULL, &mesh));
  WALK_INVALID(dsc_mesh_create(names, sizes, 0, NULL, &mesh));
  WALK_INVALID(dsc_mesh_create(names, sizes, INT32_MIN, NULL, &mesh));
  WALK_INVALID(dsc_mesh_create(names, sizes, INT32_MAX, NULL, &mesh));
  WALK_INVALID(dsc_mesh_create(holes, sizes, 2, NULL, &mesh));
  WALK_INVALID(dsc_mesh_create(twice, sizes, 2, NULL, &mesh));
  WALK_INVALID(dsc_mesh_create(names, wrong, 2, NULL, &mesh));
  WALK(DSC_ERR_OVERFLOW, dsc_mesh_create(names, huge, 2, NULL, &mesh));
  create_wrong_options();
}

static void create_experts(void) {
  dsc_mesh_t* experts = M;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_create_experts(bad, 1, 0, &experts));
  EXPECT(experts == NULL);
  WALK_INVALID(dsc_mesh_create_experts(M, 1, 0, NULL));
  WALK_INVALID(dsc_mesh_create_experts(M, 0, 0, &experts));
  WALK_INVALID(dsc_mesh_create_experts(M, 2, 0, &experts)); /* the mesh has no axis "ep" */
  WALK_INVALID(dsc_mesh_create_experts(M, 1, -1, &experts));
  WALK_INVALID(dsc_mesh_create_experts(M, 1, 4, &experts));
  WALK(DSC_OK, dsc_mesh_create_experts(M, 1, 3, &experts));
  WALK(DSC_OK, dsc_mesh_destroy(experts));
}

static void destroy(void) {
  WALK(DSC_OK, dsc_mesh_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_MESH, dsc_mesh_t, dsc_mesh_destroy(bad));
}

static void size(void) {
  int32_t size = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_size(bad, &size));
  WALK_INVALID(dsc_mesh_size(M, NULL));
  EXPECT(size == 99);
  WALK(DSC_OK, dsc_mesh_size(M, &size));
  EXPECT(size == 6);
}

static void order(void) {
  char text[8] = "before";
  size_t bytes = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_order(bad, text, sizeof text, &bytes));
  WALK_INVALID(dsc_mesh_order(M, NULL, 8, &bytes));
  WALK_INVALID(dsc_mesh_order(M, text, sizeof text, NULL));
  EXPECT(strcmp(text, "before") == 0 && bytes == 99);
  WALK(DSC_TRUNCATED, dsc_mesh_order(M, text, 5, &bytes));
  EXPECT(strcmp(text, "tp-d") == 0 && bytes == 6);
  WALK(DSC_OK, dsc_mesh_order(M, text, sizeof text, &bytes));
  EXPECT(strcmp(text, "tp-dp") == 0 && bytes == 6);
}

static void axis_size(void) {
  int32_t size = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_axis_size(bad, "tp", &size));
  WALK_INVALID(dsc_mesh_axis_size(M, NULL, &size));
  WALK_INVALID(dsc_mesh_axis_size(M, "pp", &size));
  WALK_INVALID(dsc_mesh_axis_size(M, "", &size));
  WALK_INVALID(dsc_mesh_axis_size(M, "tp", NULL));
  EXPECT(size == 99);
  WALK(DSC_OK, dsc_mesh_axis_size(M, "dp", &size));
  EXPECT(size == 3);
}

static void coord(void) {
  int32_t coords[2] = {99, 99};
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_coord(bad, 5, coords, 2));
  WALK_INVALID(dsc_mesh_coord(M, -1, coords, 2));
  WALK_INVALID(dsc_mesh_coord(M, 6, coords, 2));
  WALK_INVALID(dsc_mesh_coord(M, 5, NULL, 2));
  WALK_INVALID(dsc_mesh_coord(M, 5, coords, 1));
  WALK_INVALID(dsc_mesh_coord(M, 5, coords, -1));
  EXPECT(coords[0] == 99 && coords[1] == 99);
  WALK(DSC_OK, dsc_mesh_coord(M, 4, coords, 2));
  EXPECT(coords[0] == 0 && coords[1] == 2);
}

static void rank(void) {
  const int32_t coords[] = {1, 2}, wrong[] = {2, 0}, negative[] = {0, -1};
  int32_t rank = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_rank(bad, coords, 2, &rank));
  WALK_INVALID(dsc_mesh_rank(M, NULL, 2, &rank));
  WALK_INVALID(dsc_mesh_rank(M, coords, 3, &rank));
  WALK_INVALID(dsc_mesh_rank(M, wrong, 2, &rank));
  WALK_INVALID(dsc_mesh_rank(M, negative, 2, &rank));
  WALK_INVALID(dsc_mesh_rank(M, coords, 2, NULL));
  EXPECT(rank == 99);
  WALK(DSC_OK, dsc_mesh_rank(M, coords, 2, &rank));
  EXPECT(rank == 5);
}

static void filter(void) {
  const int32_t coords[] = {1, -1}, wrong[] = {2, -1}, negative[] = {-2, 0};
  int32_t ranks[3] = {99, 99, 99};
  size_t n = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_filter(bad, coords, 2, ranks, 3, &n));
  WALK_INVALID(dsc_mesh_filter(M, NULL, 2, ranks, 3, &n));
  WALK_INVALID(dsc_mesh_filter(M, coords, 1, ranks, 3, &n));
  WALK_INVALID(dsc_mesh_filter(M, wrong, 2, ranks, 3, &n));
  WALK_INVALID(dsc_mesh_filter(M, negative, 2, ranks, 3, &n));
  WALK_INVALID(dsc_mesh_filter(M, coords, 2, NULL, 3, &n));
  WALK_INVALID(dsc_mesh_filter(M, coords, 2, ranks, 3, NULL));
  EXPECT(ranks[0] == 99 && n == 99);
  WALK(DSC_OK, dsc_mesh_filter(M, coords, 2, NULL, 0, &n));
  EXPECT(n == 3);
  WALK(DSC_TRUNCATED, dsc_mesh_filter(M, coords, 2, ranks, 2, &n));
  EXPECT(n == 3 && ranks[0] == 1 && ranks[1] == 3 && ranks[2] == 99);
  WALK(DSC_OK, dsc_mesh_filter(M, coords, 2, ranks, 3, &n));
  EXPECT(ranks[0] == 1 && ranks[1] == 3 && ranks[2] == 5);
}

static void neighbor(void) {
  int32_t peer = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_neighbor(bad, 1, "dp", 1, &peer));
  WALK_INVALID(dsc_mesh_neighbor(M, 6, "dp", 1, &peer));
  WALK_INVALID(dsc_mesh_neighbor(M, 1, NULL, 1, &peer));
  WALK_INVALID(dsc_mesh_neighbor(M, 1, "tp-dp", 1, &peer));
  WALK_INVALID(dsc_mesh_neighbor(M, 1, "dp", 1, NULL));
  EXPECT(peer == 99);
  WALK(DSC_OK, dsc_mesh_neighbor(M, 1, "dp", -1, &peer));
  EXPECT(peer == 5);
}

static void peer(void) {
  int32_t peer = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_peer(bad, 1, "dp", 0, &peer));
  WALK_INVALID(dsc_mesh_peer(M, -1, "dp", 0, &peer));
  WALK_INVALID(dsc_mesh_peer(M, 1, NULL, 0, &peer));
  WALK_INVALID(dsc_mesh_peer(M, 1, "d", 0, &peer));
  WALK_INVALID(dsc_mesh_peer(M, 1, "dp", 3, &peer));
  WALK_INVALID(dsc_mesh_peer(M, 1, "dp", -4, &peer));
  WALK_INVALID(dsc_mesh_peer(M, 1, "dp", INT32_MIN, &peer));
  WALK_INVALID(dsc_mesh_peer(M, 1, "dp", 0, NULL));
  EXPECT(peer == 99);
  WALK(DSC_OK, dsc_mesh_peer(M, 1, "dp", -1, &peer));
  EXPECT(peer == 5);
}

static void rank_name(void) {
  char text[16] = "before";
  size_t bytes = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_rank_name(bad, 1, NULL, NULL, NULL, text, 16, &bytes));
  WALK_INVALID(dsc_mesh_rank_name(M, 6, NULL, NULL, NULL, text, 16, &bytes));
  WALK_INVALID(dsc_mesh_rank_name(M, 1, "-", NULL, NULL, text, 16, &bytes));
  WALK_INVALID(dsc_mesh_rank_name(M, 1, NULL, NULL, NULL, NULL, 16, &bytes));
  WALK_INVALID(dsc_mesh_rank_name(M, 1, NULL, NULL, NULL, text, 16, NULL));
  EXPECT(strcmp(text, "before") == 0 && bytes == 99);
  WALK(DSC_OK, dsc_mesh_rank_name(M, 3, "data", NULL, ".", text, 16, &bytes));
  EXPECT(strcmp(text, "tp_01.dp_01") == 0 && bytes == 12);
}

static void groups(void) {
  int32_t ranks[6] = {99};
  size_t n = 99, each = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_groups(bad, "tp", ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_groups(M, NULL, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_groups(M, "", ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_groups(M, "tp-", ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_groups(M, "tp-tp", ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_groups(M, "t\xff\xc3\xa4\xed\xa0\x80\xc3", ranks, 6, &n, &each));
  EXPECT(strstr(dsc_last_error_message(), "t?\xc3\xa4????") != NULL); /* the message must stay valid UTF-8 */
  WALK_INVALID(dsc_mesh_groups(M, "tpp", ranks, 6, &n, &each));
  EXPECT(strstr(dsc_last_error_message(), "did you mean \"tp\"?") != NULL);
  WALK_INVALID(dsc_mesh_groups(M, "tp", NULL, 6, &n, &each));
  WALK_INVALID(dsc_mesh_groups(M, "tp", ranks, 6, NULL, &each));
  WALK_INVALID(dsc_mesh_groups(M, "tp", ranks, 6, &n, NULL));
  EXPECT(ranks[0] == 99 && n == 99 && each == 99);
  WALK(DSC_TRUNCATED, dsc_mesh_groups(M, "dp", ranks, 5, &n, &each));
  EXPECT(n == 2 && each == 3 && ranks[4] == 3 && ranks[5] != 5);
  WALK(DSC_OK, dsc_mesh_groups(M, "dp", ranks, 6, &n, &each));
  EXPECT(n == 2 && each == 3 && ranks[1] == 2 && ranks[3] == 1);
}

static void group(void) {
  int32_t ranks[3] = {99};
  size_t each = 99, number = 99, member = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_group(bad, 1, "dp", ranks, 3, &each, &number, &member));
  WALK_INVALID(dsc_mesh_group(M, 6, "dp", ranks, 3, &each, &number, &member));
  WALK_INVALID(dsc_mesh_group(M, 1, NULL, ranks, 3, &each, &number, &member));
  WALK_INVALID(dsc_mesh_group(M, 1, "dq", ranks, 3, &each, &number, &member));
  WALK_INVALID(dsc_mesh_group(M, 1, "dp", NULL, 3, &each, &number, &member));
  WALK_INVALID(dsc_mesh_group(M, 1, "dp", ranks, 3, NULL, &number, &member));
  EXPECT(ranks[0] == 99 && each == 99 && number == 99 && member == 99);
  WALK(DSC_OK, dsc_mesh_group(M, 3, "dp", NULL, 0, &each, NULL, NULL));
  WALK(DSC_OK, dsc_mesh_group(M, 3, "dp", ranks, 3, &each, &number, &member));
  EXPECT(each == 3 && number == 1 && member == 1 && ranks[0] == 1 && ranks[2] == 5);
}

static void levels(void) {
  const int32_t box[] = {2, 3}, wrong[] = {2, 2}, zero[] = {6, 0};
  int32_t ranks[6] = {99};
  size_t n = 99, each = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_levels(bad, "tp-dp", box, 2, 0, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, NULL, box, 2, 0, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", NULL, 2, 0, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", box, 0, 0, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", box, 2, 2, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", wrong, 2, 0, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", zero, 2, 0, ranks, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", box, 2, 0, NULL, 6, &n, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", box, 2, 0, ranks, 6, NULL, &each));
  WALK_INVALID(dsc_mesh_levels(M, "tp-dp", box, 2, 0, ranks, 6, &n, NULL));
  EXPECT(ranks[0] == 99 && n == 99 && each == 99);
  WALK(DSC_OK, dsc_mesh_levels(M, "tp-dp", box, 2, 1, ranks, 6, &n, &each));
  EXPECT(n == 2 && each == 3 && ranks[0] == 0 && ranks[1] == 2 && ranks[3] == 1);
}

static void members(void) {
  const int32_t ends[] = {0, -1}, wrong[] = {3}, before[] = {-4};
  int32_t ranks[4] = {99};
  size_t n = 99, each = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_members(bad, "dp", ends, 2, ranks, 4, &n, &each));
  WALK_INVALID(dsc_mesh_members(M, NULL, ends, 2, ranks, 4, &n, &each));
  WALK_INVALID(dsc_mesh_members(M, "dp", NULL, 2, ranks, 4, &n, &each));
  WALK_INVALID(dsc_mesh_members(M, "dp", ends, 0, ranks, 4, &n, &each));
  WALK_INVALID(dsc_mesh_members(M, "dp", wrong, 1, ranks, 4, &n, &each));
  WALK_INVALID(dsc_mesh_members(M, "dp", before, 1, ranks, 4, &n, &each));
  WALK_INVALID(dsc_mesh_members(M, "dp", ends, 2, NULL, 4, &n, &each));
  WALK_INVALID(dsc_mesh_members(M, "dp", ends, 2, ranks, 4, NULL, &each));
  WALK_INVALID(dsc_mesh_members(M, "dp", ends, 2, ranks, 4, &n, NULL));
  EXPECT(ranks[0] == 99 && n == 99 && each == 99);
  WALK(DSC_OK, dsc_mesh_members(M, "dp", ends, 2, ranks, 4, &n, &each));
  EXPECT(n == 2 && each == 2 && ranks[0] == 0 && ranks[1] == 4 && ranks[2] == 1 && ranks[3] == 5);
}

static void plan_options_init(void) {
  dsc_mesh_plan_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_mesh_plan_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_mesh_plan_options_init(&options, sizeof options - 1));
  EXPECT(options.rank == 0x77777777);
  WALK(DSC_OK, dsc_mesh_plan_options_init(&options, sizeof options));
  EXPECT(strcmp(options.style, "megatron") == 0 && options.experts == NULL && options.cp_levels == NULL);
  EXPECT(options.instances == 1 && options.virtual_stages == 1 && options.hybrid == 0 && options.rank == -1);
}

static void plan_wrong_options(void) {
  size_t n = 99, n_ranks = 99;
  dsc_mesh_plan_options_t options;
  dsc_mesh_plan_options_init(&options, sizeof options);
#define WRONG(expected, field, value)                                                         \
  options.field = (value);                                                                    \
  WALK(DSC_ERR_##expected, dsc_mesh_plan(M, &options, NULL, NULL, 0, NULL, 0, &n, &n_ranks)); \
  dsc_mesh_plan_options_init(&options, sizeof options)
  WRONG(INVALID_ARG, struct_size, sizeof options - 1);
  WRONG(INVALID_ARG, style, NULL);
  WRONG(INVALID_ARG, style, "torch");
  WRONG(INVALID_ARG, style, "deepspeed"); /* the style "deepspeed" has other axes */
  WRONG(BAD_HANDLE, experts, (dsc_mesh_t*)walk_world.world);
  WRONG(INVALID_ARG, n_cp_levels, 2);
  WRONG(INVALID_ARG, instances, 0);
  WRONG(INVALID_ARG, instances, 2);
  WRONG(INVALID_ARG, hybrid, 1); /* hybrid needs an even dp */
  WRONG(INVALID_ARG, hybrid, 2);
  WRONG(INVALID_ARG, virtual_stages, 0);
  WRONG(INVALID_ARG, virtual_stages, 2);
  WRONG(INVALID_ARG, rank, 6);
  WRONG(INVALID_ARG, rank, -2);
  EXPECT(n == 99 && n_ranks == 99);
#undef WRONG
}

static void plan(void) {
  enum { GROUPS = 128, RANKS = 512 };
  static const char* names[GROUPS];
  static size_t starts[GROUPS + 1];
  static int32_t ranks[RANKS];
  size_t n = 99, n_ranks = 99;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t,
                   dsc_mesh_plan(bad, NULL, names, starts, GROUPS, ranks, RANKS, &n, &n_ranks));
  WALK_INVALID(dsc_mesh_plan(M, NULL, NULL, starts, GROUPS, ranks, RANKS, &n, &n_ranks));
  WALK_INVALID(dsc_mesh_plan(M, NULL, names, NULL, GROUPS, ranks, RANKS, &n, &n_ranks));
  WALK_INVALID(dsc_mesh_plan(M, NULL, names, starts, GROUPS, NULL, RANKS, &n, &n_ranks));
  WALK_INVALID(dsc_mesh_plan(M, NULL, names, starts, 0, ranks, RANKS, &n, &n_ranks));
  WALK_INVALID(dsc_mesh_plan(M, NULL, names, starts, GROUPS, ranks, RANKS, NULL, &n_ranks));
  WALK_INVALID(dsc_mesh_plan(M, NULL, names, starts, GROUPS, ranks, RANKS, &n, NULL));
  EXPECT(names[0] == NULL && starts[1] == 0 && n == 99 && n_ranks == 99);
  plan_wrong_options();
  WALK(DSC_TRUNCATED, dsc_mesh_plan(M, NULL, names, starts, 1, ranks, 1, &n, &n_ranks));
  EXPECT(strcmp(names[0], "gtp") == 0 && names[1] == NULL && starts[1] == 1 && n > 1 && n_ranks > 1);
  WALK(DSC_OK, dsc_mesh_plan(M, NULL, names, starts, GROUPS, ranks, RANKS, &n, &n_ranks));
  EXPECT(strcmp(names[0], "gtp") == 0 && starts[0] == 0 && starts[1] == 1 && starts[n] == n_ranks);
}

static void comm(void) {
  static const char* const names[] = {"dp"};
  static const int32_t one[] = {1};
  dsc_mesh_t* mesh = NULL;
  WALK(DSC_OK, dsc_mesh_create(names, one, 1, NULL, &mesh));
  dsc_comm_t* group = W;
  WALK_BAD_HANDLES(WALK_MESH, dsc_mesh_t, dsc_mesh_comm(bad, W, "dp", NULL, &group));
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_mesh_comm(mesh, bad, "dp", NULL, &group));
  EXPECT(group == NULL);
  WALK_INVALID(dsc_mesh_comm(mesh, W, NULL, NULL, &group));
  WALK_INVALID(dsc_mesh_comm(mesh, W, "pp", NULL, &group));
  WALK_INVALID(dsc_mesh_comm(M, W, "dp", NULL, &group)); /* the mesh has 6 ranks, the world 2 */
  WALK_INVALID(dsc_mesh_comm(mesh, W, "dp", NULL, NULL));
  dsc_comm_options_t options;
  dsc_comm_options_init(&options, sizeof options);
  options.timeout_ms = -1;
  WALK_INVALID(dsc_mesh_comm(mesh, W, "dp", &options, &group));
  EXPECT(group == NULL);
  WALK(DSC_OK, dsc_mesh_comm(mesh, W, "dp", NULL, &group));
  WALK(DSC_OK, dsc_mesh_destroy(mesh)); /* destroying the mesh keeps the group */
  int32_t size = 0;
  WALK(DSC_OK, dsc_comm_size(group, &size));
  EXPECT(size == 1);
  WALK(DSC_OK, dsc_comm_destroy(group));
}

const walk_step_t walk_mesh[] = {{"dsc_mesh_options_init", options_init},
                                 {"dsc_mesh_create", create},
                                 {"dsc_mesh_create_experts", create_experts},
                                 {"dsc_mesh_destroy", destroy},
                                 {"dsc_mesh_size", size},
                                 {"dsc_mesh_order", order},
                                 {"dsc_mesh_axis_size", axis_size},
                                 {"dsc_mesh_coord", coord},
                                 {"dsc_mesh_rank", rank},
                                 {"dsc_mesh_filter", filter},
                                 {"dsc_mesh_neighbor", neighbor},
                                 {"dsc_mesh_peer", peer},
                                 {"dsc_mesh_rank_name", rank_name},
                                 {"dsc_mesh_groups", groups},
                                 {"dsc_mesh_group", group},
                                 {"dsc_mesh_levels", levels},
                                 {"dsc_mesh_members", members},
                                 {"dsc_mesh_plan_options_init", plan_options_init},
                                 {"dsc_mesh_plan", plan},
                                 {"dsc_mesh_comm", comm},
                                 {NULL, NULL}};
