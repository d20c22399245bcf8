/* Traces of the flight recorder. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "capi_walk.h"

static void trace_dump(void) {
  char folder[] = "dsc_walk_XXXXXX", path[64], inside[96];
  EXPECT(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/trace.json", folder);
  snprintf(inside, sizeof inside, "%s/inside.json", path);
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_trace_dump(bad, path));
  WALK_INVALID(dsc_trace_dump(walk_world.world, ""));
  EXPECT(access(path, F_OK) != 0);
  WALK_INVALID(dsc_trace_dump(walk_world.world, NULL)); /* the walk runs without DSC_TRACE_DIR */
  EXPECT(strstr(dsc_last_error_message(), "DSC_TRACE_DIR") != NULL);
  WALK(DSC_OK, dsc_trace_dump(walk_world.world, path));
  WALK(DSC_ERR_SYSTEM, dsc_trace_dump(walk_world.world, inside)); /* the parent folder is a file */
  EXPECT(strstr(dsc_last_error_message(), path) != NULL);
  WALK(DSC_OK, dsc_trace_dump(walk_world.alone, path));
  EXPECT(unlink(path) == 0 && rmdir(folder) == 0);
}

static void trace_text(void) {
  static char text[1 << 20];
  size_t bytes = 99;
  strcpy(text, "before");
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_trace_json(bad, text, sizeof text, &bytes));
  WALK_INVALID(dsc_trace_json(walk_world.world, text, sizeof text, NULL));
  WALK_INVALID(dsc_trace_json(walk_world.world, NULL, 1, &bytes));
  EXPECT(bytes == 99 && strcmp(text, "before") == 0);
  WALK(DSC_OK, dsc_trace_json(walk_world.world, NULL, 0, &bytes));
  EXPECT(bytes > 99 && bytes < sizeof text);
  WALK(DSC_TRUNCATED, dsc_trace_json(walk_world.world, text, 99, &bytes));
  EXPECT(bytes > 99 && strlen(text) == 98 && text[0] == '{');
  WALK(DSC_OK, dsc_trace_json(walk_world.world, text, sizeof text, &bytes));
  EXPECT(bytes == strlen(text) + 1 && text[0] == '{');
}

/* The function may be called in signal handlers, so it sets no error message. */
static void trace_dump_request(void) { EXPECT(dsc_trace_dump_request() == DSC_ERR_STATE); }

const walk_step_t walk_trace[] = {
    {"dsc_trace_dump", trace_dump},
    {"dsc_trace_json", trace_text},
    {"dsc_trace_dump_request", trace_dump_request},
    {NULL, NULL},
};
