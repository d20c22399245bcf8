# ./dev wheel makes the wheel and the source distribution, and tests them.
cd "$LIBDSC_SOURCE"
./dev wheel "$LIBDSC_SHARED/wheels"
git rev-parse HEAD >"$LIBDSC_SHARED/wheels_commit"
