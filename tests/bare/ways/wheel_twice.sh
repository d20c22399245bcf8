# The wheel and the source distribution are reproducible: made again from the same commit, in another folder and without
# the compiler's cache, they have the same bytes.
other=/opt/other/folder
git clone --quiet "$LIBDSC_SOURCE" "$other"
cd "$other"
made_from=$(cat "$LIBDSC_SHARED/wheels_commit") # with the wheels, made by ./dev test bare wheel
[[ $made_from == "$(git rev-parse HEAD)" ]] || {
  echo "expected wheels of this commit, got those of $made_from; run ./dev test bare wheel first" >&2
  exit 1
}
CCACHE_DISABLE=1 ./dev wheel "$other/wheels"
for file in "$LIBDSC_SHARED"/wheels/*; do
  cmp "$file" "$other/wheels/$(basename "$file")"
done
