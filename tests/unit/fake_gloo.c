/* Two invalid transport modules: one lacks the function, the other has the table of an older release. */
#include "transport/table.h"

#ifdef OLD_TABLE
const dsc_transport_table* dsc_transport_module(void);
const dsc_transport_table* dsc_transport_module(void) {
  static const dsc_transport_table table = {.struct_size = sizeof table - sizeof(void*),
                                            .version = DSC_TRANSPORT_TABLE_VERSION};
  return &table;
}
#else
int fake_gloo_something_else(void);
int fake_gloo_something_else(void) { return 1; }
#endif
