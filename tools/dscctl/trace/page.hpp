// The timeline's page, before and after the data. It is assembled from page/ at build time.
#pragma once

namespace dscctl::trace {

extern const char* const kPageHead;
extern const char* const kPageTail;

}  // namespace dscctl::trace
