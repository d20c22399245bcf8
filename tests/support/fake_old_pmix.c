/* A fake libpmix that is older than the oldest supported version. It can do nothing else. */
const char* PMIx_Get_version(void);
const char* PMIx_Get_version(void) { return "fake PMIx 2.2.5"; }
