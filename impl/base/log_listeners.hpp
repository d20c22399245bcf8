// Who receives log records besides DSC_LOG's standard error stream.
#pragma once

#include <cstdint>
#include <string>

namespace dsc {

using dsc_log_callback = void (*)(void* ctx, int32_t level, const char* message);

// Returns only when no call of the callback that it replaces is running, except from inside that callback.
void set_log_callback(dsc_log_callback callback, void* ctx, int32_t level);

// Takes the oldest record; `level` sets what is recorded from now on.
bool read_log(int32_t level, std::string& text, int32_t& record_level);

}  // namespace dsc
