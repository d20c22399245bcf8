// The page that shows schedules, put together from page/ when dscctl is built.
#pragma once

namespace dscctl::schedule {

extern const char* const kPageHead;  // up to where the schedules go
extern const char* const kPageTail;

}  // namespace dscctl::schedule
