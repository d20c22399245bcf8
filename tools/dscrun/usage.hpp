// The texts of --help before and after the list of options.
#pragma once

namespace dscrun {

extern const char* const kUsageText;
extern const char* const kFooter;

}  // namespace dscrun
