/* Stands for an installed libdsc.so.0 that does not fit: it has a version, but no other function. */
#include <dsc/version.h>

dsc_result_t dsc_version(int32_t* major, int32_t* minor, int32_t* patch) {
  *major = DSC_VERSION_MAJOR;
  *minor = DSC_VERSION_MINOR - OLDER_BY;
  *patch = 0;
  return DSC_OK;
}
