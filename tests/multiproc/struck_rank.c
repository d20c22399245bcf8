/* A rank that reduces until an operation fails, prints which rank is at fault, and ends normally, as programs
 * do. */
#include <dsc/dsc.h>
#include <stdint.h>
#include <stdio.h>

static int tell(void) {
  dsc_error_info_t info = {.struct_size = sizeof info};
  if (dsc_last_error_info(&info) != DSC_OK) return 1;
  printf("%s", dsc_result_name(info.code));
  for (size_t i = 0; i < info.n_ranks; ++i) printf("%c%d", i == 0 ? ' ' : ',', info.ranks[i]);
  printf(": %s\n", info.text);
  fflush(stdout);
  dsc_finalize(); /* may fail, because the rank that was killed or stopped does not arrive */
  return 0;
}

int main(void) {
  enum { COUNT = 1000 };
  static float data[COUNT];
  dsc_comm_t* world = NULL;
  dsc_init_options_t options;
  dsc_init_options_init(&options, sizeof options);
  options.init_timeout_ms = options.timeout_ms = 60000;
  options.stall_timeout_ms = 3000;
  if (dsc_init_distributed(&options, &world) != DSC_OK) return tell();
  for (int64_t i = 0;; ++i) {
    if (dsc_all_reduce(world, data, data, i % 2 == 0 ? 1 : COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL) !=
        DSC_OK)
      return tell();
    if (i > 0) continue;
    printf("ready\n");
    fflush(stdout);
  }
}
