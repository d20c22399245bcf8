# A user's project that finds libdsc by CMake. Part of meson_install.sh.
get_packages cmake make

mkdir project
cp hello.c project/
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(hello C)
find_package(libdsc 0.1 REQUIRED CONFIG)
add_executable(hello hello.c)
target_link_libraries(hello PRIVATE dsc::dsc)
CMAKE
cmake -S project -B project-build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log
cmake --build project-build >>cmake.log
four_ranks 6 project-build/hello # CMake writes the library's path into the program
