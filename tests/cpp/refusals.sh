#!/usr/bin/env bash
# Compiles statements that the C++ layer refuses, and expects the message that says why: refusals.sh SOURCE
#
# g++ compiles all of them, and clang the first one for each message.
set -euo pipefail
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
clang=$(command -v clang++-14 || command -v clang++) || { echo "clang++ is not installed"; exit 77; }
command -v g++ >/dev/null || { echo "g++ is not installed"; exit 77; }

cat >"$scratch/prelude.hpp" <<'PRELUDE'
#include <array>
#include <dsc/dsc.hpp>
#include <vector>

extern dsc::comm_view comm;
extern dsc::bucket_reducer reducer;
extern dsc::sharded sharded;
extern dsc::pipe_call pipe_call;
extern dsc::bucket bucket;
extern dsc::shard shard;
using floats = std::vector<float>;
using shorts = std::vector<short>;
inline floats x, y;
inline const floats fixed;
inline shorts small;
inline std::vector<std::size_t> counts;
PRELUDE
flags=(-std=c++17 -I "$source/capi/include")
g++ "${flags[@]}" -x c++-header "$scratch/prelude.hpp" -o "$scratch/prelude.hpp.gch"
"$clang" "${flags[@]}" -x c++-header "$scratch/prelude.hpp" -o "$scratch/prelude.hpp.pch"
failures=0

# compile COMPILER STATEMENT prints the errors.
compile() {
  echo "void test() { $2; }" | "$1" "${flags[@]}" -include "$scratch/prelude.hpp" -x c++ -fsyntax-only - 2>&1
}

# expect COMPILER MESSAGE STATEMENT: compiling the statement must fail with the message.
expect() {
  local text
  if text=$(compile "$1" "$3"); then
    text="it compiles"
  elif [[ $text == *"$2"* ]]; then
    return
  fi
  printf '%s: %s\nexpected: %s\n%s\n' "$1" "$3" "$2" "$text"
  failures=$((failures + 1))
}

# refused MESSAGE STATEMENT...
refused() {
  local message=$1 statement
  shift
  expect "$clang" "$message" "$1"
  for statement in "$@"; do expect g++ "$message" "$statement"; done
}

accepted() {
  local statement
  for statement in "$@"; do compile g++ "$statement" || failures=$((failures + 1)); done
}

refused "wrong element type; expected float, double, bool, an integer of 1, 4 or 8 bytes" \
  'comm.all_reduce(small, dsc::op::sum)' \
  'comm.all_gather(shorts(3), small)' \
  'comm.send(small, 1)' \
  'comm.start(dsc::request::recv(small, 1))' \
  'comm.all_reduce_value(short(1), dsc::op::sum)' \
  'dsc::tensor made(small)' \
  'dsc::tensor::described<short>(3)' \
  'dsc::user_op<short>(1, [](dsc::span<short>, dsc::span<const short>) {})' \
  'reducer.mark_ready(0, small)' \
  'reducer.accumulate(0, small)' \
  'reducer.grad_view<short>(0)' \
  'sharded.mark_ready(0, small)' \
  'sharded.accumulate(0, small)' \
  'sharded.param_view<short>(0)' \
  'shard.grad_elements<short>()' \
  'bucket.elements<short>()' \
  'pipe_call.input<short>()'

# A request, a tensor and a mark of a reducer keep the address of their buffer.
refused "the buffer is a temporary, which ends before it is used; expected a variable or a view" \
  'dsc::operation stored = dsc::request::all_gather(floats(3), x); comm.run(stored)' \
  'dsc::operation stored = dsc::request::all_reduce(x, std::array<float, 3>(), dsc::op::sum)' \
  'dsc::operation stored = dsc::request::broadcast(floats(3), 0)' \
  'comm.start(dsc::request::send(floats(3), 1))' \
  'comm.batch({dsc::request::all_to_all_v(floats(3), counts, x, counts)})' \
  'dsc::tensor made(floats(3))' \
  'reducer.mark_ready(0, floats(3))'

refused "the buffer is written to; expected a variable, or a view of elements that are not const" \
  'comm.all_gather(x, fixed)' \
  'comm.all_gather(x, floats(3))' \
  'comm.all_reduce(floats(3), dsc::op::sum)' \
  'comm.recv(dsc::span<const float>(x), 1)' \
  'dsc::tensor made(fixed)' \
  'reducer.mark_ready(0, fixed)'

refused "the argument is no buffer; expected something with data() and size()" \
  'comm.send(1.0f, 1)' \
  'comm.send(std::vector<bool>(3), 1)' \
  'reducer.accumulate(0, x.data())'

accepted \
  'comm.all_gather(floats(3), x); comm.send(fixed, 1); comm.all_gather_v(floats(3), x, std::vector<std::size_t>(2))' \
  'static_cast<void>(comm.start(dsc::request::all_gather(fixed, dsc::span(x))))' \
  'reducer.accumulate(0, floats(3)); sharded.mark_ready(0, floats(3)); sharded.accumulate(0, fixed)'

exit $((failures > 0))
