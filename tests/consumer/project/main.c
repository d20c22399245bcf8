/* A program of a user: includes the header, links the library, and sums a vector in a world of one rank. */
#include <dsc/dsc.h>
#include <stdio.h>

int main(void) {
  dsc_init_options_t options;
  dsc_comm_t* world = NULL;
  double values[3] = {1, 2, 3};
  dsc_result_t result = dsc_init_options_init(&options, sizeof options);
  options.rank = 0;
  options.world_size = 1;
  if (result == DSC_OK) result = dsc_init_distributed(&options, &world);
  if (result == DSC_OK)
    result = dsc_all_reduce(world, values, values, 3, DSC_DTYPE_F64, DSC_OP_SUM, NULL, NULL);
  if (result == DSC_OK) result = dsc_finalize();
  if (result != DSC_OK) {
    fprintf(stderr, "%s: %s\n", dsc_result_name(result), dsc_last_error_message());
    return 1;
  }
  printf("consumer: %g %g %g\n", values[0], values[1], values[2]);
  return 0;
}
