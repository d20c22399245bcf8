// The page that shows schedules. It is assembled from page/ when dscctl is built.
#pragma once

namespace dscctl::schedule {

extern const char* const kPageHead;  // the page before the data
extern const char* const kPageTail;

}  // namespace dscctl::schedule
