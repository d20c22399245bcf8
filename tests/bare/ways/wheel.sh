# ./dev wheel makes the wheel and the source distribution, and tries them.
cd "$LIBDSC_SOURCE"
./dev wheel "$LIBDSC_SHARED/wheels"
