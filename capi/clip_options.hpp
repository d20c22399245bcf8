// The options of clipping, which reducers and sharded parameters take.
#pragma once

#include "dsc/clip.h"

namespace dsc {

dsc_clip_options_t default_clip_options();
// NULL: defaults. Throws INVALID_ARG for a struct of another version.
dsc_clip_options_t read_clip_options(const dsc_clip_options_t* given);

}  // namespace dsc
