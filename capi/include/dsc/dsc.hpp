// All of the C++17 layer over the C interface; the only header of it to include. docs/cpp.md describes it.
#ifndef DSC_DSC_HPP
#define DSC_DSC_HPP

#include <dsc/cpp/comm.hpp>
#include <dsc/cpp/join.hpp>
#include <dsc/cpp/memory.hpp>
#include <dsc/cpp/mesh.hpp>
#include <dsc/cpp/pipe.hpp>
#include <dsc/cpp/pipe_run.hpp>
#include <dsc/cpp/reducer.hpp>
#include <dsc/cpp/sharded.hpp>
#include <dsc/cpp/store.hpp>
#include <dsc/cpp/tensor.hpp>

#endif  // DSC_DSC_HPP
