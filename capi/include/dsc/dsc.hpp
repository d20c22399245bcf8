// All of the C++17 layer over the C interface; the only header of it to include. docs/cpp.md describes it.
#ifndef DSC_DSC_HPP
#define DSC_DSC_HPP

#include <dsc/cpp/comm.hpp>

#endif  // DSC_DSC_HPP
