/* Stands for a libpmix from before the oldest that is understood. A fake: it can do nothing else. */
const char* PMIx_Get_version(void);
const char* PMIx_Get_version(void) { return "fake PMIx 2.2.5"; }
