// The options of clipping. Reducers and sharded parameters use the same ones.
#pragma once

#include "dsc/clip.h"

namespace dsc {

dsc_clip_options_t default_clip_options();
// Reads the options; NULL means defaults. Throws INVALID_ARG if struct_size is wrong.
dsc_clip_options_t read_clip_options(const dsc_clip_options_t* given);

}  // namespace dsc
