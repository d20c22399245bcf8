# The wheel and the source distribution are reproducible: made again from the same commit, in another folder and without
# the compiler's cache, they have the same bytes.
other=/opt/other/folder
git clone --quiet "$LIBDSC_SOURCE" "$other"
cd "$other"
CCACHE_DISABLE=1 ./dev wheel "$other/wheels"
for file in "$LIBDSC_SHARED"/wheels/*; do # made by ./dev test bare wheel
  cmp "$file" "$other/wheels/$(basename "$file")"
done
