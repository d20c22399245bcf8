#include "device/kernels.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "device/kernels/list.hpp"
#include "device/kernels/move.hpp"
#include "device/kernels/reduce.hpp"
#include "device/kernels/rows.hpp"
#include "device/kernels/strided.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr unsigned kBlocksPerMultiprocessor = 4;
static_assert(Kernels::kPartsPerLaunch == kernels::kMaxSegments);
static_assert(Kernels::kNormResultBytes == sizeof(kernels::Norm));

// Names a kernel of DSC_KERNEL_MOVES by its element types.
struct MoveKernel {
  int32_t from, to;
  const char *name, *norm_name;
};
#define DSC_DTYPE_OF_f64 DSC_DTYPE_F64
#define DSC_DTYPE_OF_f32 DSC_DTYPE_F32
#define DSC_DTYPE_OF_f16 DSC_DTYPE_F16
#define DSC_DTYPE_OF_bf16 DSC_DTYPE_BF16
#define DSC_DTYPE_OF_f8e4m3 DSC_DTYPE_F8E4M3
#define DSC_DTYPE_OF_f8e5m2 DSC_DTYPE_F8E5M2
#define DSC_MOVE(from, From, to, To) \
  {DSC_DTYPE_OF_##from, DSC_DTYPE_OF_##to, "dsc_move_" #from "_" #to, "dsc_move_norm_" #from "_" #to},
constexpr MoveKernel kMoves[] = {DSC_KERNEL_MOVES(DSC_MOVE)};

// Names a kernel of DSC_KERNEL_REDUCES by its element type.
struct ReduceKernel {
  int32_t dtype;
  const char* name;
};
#define DSC_REDUCE(dtype, Scalar) {DSC_DTYPE_OF_##dtype, "dsc_reduce_" #dtype},
constexpr ReduceKernel kReduces[] = {DSC_KERNEL_REDUCES(DSC_REDUCE)};

// Names the kernels of DSC_KERNEL_ROWS by their element type.
struct RowKernels {
  int32_t dtype;
  const char *sum, *multiply, *add;
};
#define DSC_ROWS(dtype, Scalar) \
  {DSC_DTYPE_OF_##dtype, "dsc_sum_rows_" #dtype, "dsc_multiply_rows_" #dtype, "dsc_add_products_" #dtype},
constexpr RowKernels kRows[] = {DSC_KERNEL_ROWS(DSC_ROWS)};

size_t row_kernels_of(int32_t dtype) {
  const auto* const found = std::ranges::find(kRows, dtype, &RowKernels::dtype);
  if (found == std::end(kRows))
    fail(DSC_ERR_UNSUPPORTED, "no kernel sums rows of %s (dtype %d)", dtype_name(dtype), dtype);
  return static_cast<size_t>(found - kRows);
}

constexpr char kCopy[] = "dsc_copy";
constexpr char kCopyStrided[] = "dsc_copy_strided";
constexpr char kGatherRows[] = "dsc_gather_rows";

const char* bytes_at(CudaAddress address) { return reinterpret_cast<const char*>(address); }
char* room_at(CudaAddress address) { return reinterpret_cast<char*>(address); }
const int64_t* list_at(CudaAddress address) { return reinterpret_cast<const int64_t*>(address); }

// Returns the largest unit in bytes, at most 16, that divides all addresses and sizes in the argument, which
// is their bitwise OR.
uint64_t unit_of(uint64_t addresses_and_sizes) {
  const uint64_t all = addresses_and_sizes | kernels::kVectorBytes;
  return all & -all;
}

uint64_t chunks_of(uint64_t units) { return kernels::count_chunks(units, 0, kernels::kChunkUnits); }

}  // namespace

// Handles of all kernels, in the order of the lists.
struct Kernels::Functions {
  CudaFunction* move[std::size(kMoves)];
  CudaFunction* move_norm[std::size(kMoves)];
  CudaFunction* reduce[std::size(kReduces)];
  CudaFunction *sum_rows[std::size(kRows)], *multiply_rows[std::size(kRows)], *add_products[std::size(kRows)];
  CudaFunction* copy;
  CudaFunction* copy_strided;
  CudaFunction* gather_rows;
};

// The kernel that converts one element type to another, and its element sizes.
struct Kernels::Way {
  CudaFunction* function;
  const char* name;
  unsigned from_bytes, to_bytes;
  bool as_bytes;  // the kernel counts bytes, not elements
};

StridedCopy join_slices(CudaAddress from, CudaAddress to, uint64_t parts, uint64_t outer,
                        uint64_t part_bytes) noexcept {
  return {.from = from,
          .to = to,
          .parts = parts,
          .rows = outer,
          .row_bytes = part_bytes,
          .from_part = outer * part_bytes,
          .from_row = part_bytes,
          .to_part = part_bytes,
          .to_row = parts * part_bytes};
}

StridedCopy split_slices(CudaAddress from, CudaAddress to, uint64_t parts, uint64_t outer,
                         uint64_t part_bytes) noexcept {
  StridedCopy copy = join_slices(from, to, parts, outer, part_bytes);
  std::swap(copy.from_part, copy.to_part);
  std::swap(copy.from_row, copy.to_row);
  return copy;
}

size_t Kernels::norm_bytes() noexcept { return sizeof(kernels::NormState); }

Kernels::Kernels(std::shared_ptr<const CudaLibrary> cuda, int multiprocessors,
                 std::span<const std::byte> image)
    : cuda_(std::move(cuda)),
      most_blocks_(std::clamp(static_cast<unsigned>(multiprocessors) * kBlocksPerMultiprocessor, 1u,
                              kernels::kMaxBlocks)),
      module_(nullptr, {cuda_.get()}) {
  CudaModule* module = nullptr;
  const CudaResult loaded = cuda_->functions.module_load_data(&module, image.data());
  if (loaded != CudaResult::success && !has_kernels() && image.data() == kernels_image().data())
    fail(DSC_ERR_UNSUPPORTED, "libdsc was built without its GPU kernels: nvcc was missing");
  check(loaded, "cuModuleLoadData", "the kernels");
  module_.reset(module);
  functions_ = std::make_unique<Functions>();
  find_all();
}

Kernels::~Kernels() = default;

void Kernels::Unload::operator()(CudaModule* module) const noexcept { cuda->functions.module_unload(module); }

void Kernels::find_all() {
  for (size_t i = 0; i < std::size(kMoves); ++i) {
    functions_->move[i] = find(kMoves[i].name);
    functions_->move_norm[i] = find(kMoves[i].norm_name);
  }
  for (size_t i = 0; i < std::size(kReduces); ++i) functions_->reduce[i] = find(kReduces[i].name);
  for (size_t i = 0; i < std::size(kRows); ++i) {
    functions_->sum_rows[i] = find(kRows[i].sum);
    functions_->multiply_rows[i] = find(kRows[i].multiply);
    functions_->add_products[i] = find(kRows[i].add);
  }
  functions_->copy = find(kCopy);
  functions_->copy_strided = find(kCopyStrided);
  functions_->gather_rows = find(kGatherRows);
}

CudaFunction* Kernels::find(const char* name) const {
  CudaFunction* function = nullptr;
  check(cuda_->functions.module_get_function(&function, module_.get(), name), "cuModuleGetFunction", name);
  return function;
}

void Kernels::check(CudaResult result, const char* call, const char* kernel) const {
  if (result == CudaResult::success) return;
  const char *name = nullptr, *text = nullptr;
  cuda_->functions.get_error_name(result, &name);
  cuda_->functions.get_error_string(result, &text);
  fail(DSC_ERR_BACKEND, "%s of %s failed: %.60s (%u), %.200s", call, kernel, name ? name : "error",
       static_cast<unsigned>(result), text ? text : "which the driver does not describe");
}

void Kernels::launch(CudaFunction* function, const char* name, uint64_t chunks, void* args,
                     CudaStream* stream) const {
  const auto blocks = static_cast<unsigned>(std::min<uint64_t>(chunks, most_blocks_));
  void* params[] = {args};
  check(cuda_->functions.launch_kernel(function, blocks, 1, 1, kernels::kThreads, 1, 1, 0, stream, params,
                                       nullptr),
        "cuLaunchKernel", name);
}

Kernels::Way Kernels::way(int32_t from, int32_t to, double scale, CudaAddress norm) const {
  const auto in_bytes = dtype_facts(from).bytes, out_bytes = dtype_facts(to).bytes;
  if (from == to && scale == 1 && norm == 0 && in_bytes != 0)
    return {functions_->copy, kCopy, in_bytes, out_bytes, true};
  for (size_t i = 0; i < std::size(kMoves); ++i)
    if (kMoves[i].from == from && kMoves[i].to == to)
      return {norm != 0 ? functions_->move_norm[i] : functions_->move[i],
              norm != 0 ? kMoves[i].norm_name : kMoves[i].name, in_bytes, out_bytes, false};
  fail(DSC_ERR_UNSUPPORTED, "no kernel copies %s (dtype %d) to %s (dtype %d)%s", dtype_name(from), from,
       dtype_name(to), to, from == to ? " with a scale or norm" : "");
}

// Launches the kernel over `count` segments. segment(i) describes a segment in elements, which is converted
// here to the unit in which the kernel counts.
template <class Segments>
void Kernels::move(const Way& way, size_t count, double scale, CudaAddress norm, Segments segment,
                   CudaStream* stream) const {
  const unsigned unit = way.as_bytes ? way.from_bytes : 1;
  const unsigned from_bytes = way.as_bytes ? 1 : way.from_bytes, to_bytes = way.as_bytes ? 1 : way.to_bytes;
  const unsigned pack =
      way.as_bytes ? kernels::kVectorBytes : kernels::pack_elements(std::max(from_bytes, to_bytes));
  const unsigned chunk = kernels::chunk_elements(from_bytes, to_bytes);
  kernels::MoveArgs args = {};
  args.scale = scale;
  args.norm = reinterpret_cast<kernels::NormState*>(norm);
  const auto flush = [&] {
    if (args.segments != 0) launch(way.function, way.name, args.chunks, &args, stream);
    args.segments = args.chunks = 0;
  };
  for (size_t i = 0; i < count; ++i) {
    kernels::Segment next = segment(i);
    if (next.count == 0) continue;
    next.count *= unit;
    args.first_chunk[args.segments] = args.chunks;
    args.segment[args.segments++] = next;
    const unsigned into = kernels::into_pack(next.from, from_bytes, pack);
    args.chunks += static_cast<uint32_t>(kernels::count_chunks(next.count, into, chunk));
    if (args.segments == kPartsPerLaunch) flush();
  }
  flush();
}

void Kernels::gather(const BucketCopy& copy, CudaStream* stream) const {
  const Way found = way(copy.tensor_dtype, copy.bucket_dtype, copy.scale, copy.norm);
  const auto segment = [&](size_t i) -> kernels::Segment {
    const BucketPart& part = copy.parts[i];
    return {bytes_at(part.tensor), room_at(copy.bucket + part.offset * found.to_bytes), part.count};
  };
  move(found, copy.parts.size(), copy.scale, copy.norm, segment, stream);
}

void Kernels::scatter(const BucketCopy& copy, CudaStream* stream) const {
  const Way found = way(copy.bucket_dtype, copy.tensor_dtype, copy.scale, copy.norm);
  const auto segment = [&](size_t i) -> kernels::Segment {
    const BucketPart& part = copy.parts[i];
    return {bytes_at(copy.bucket + part.offset * found.from_bytes), room_at(part.tensor), part.count};
  };
  move(found, copy.parts.size(), copy.scale, copy.norm, segment, stream);
}

void Kernels::copy(const ScaledCopy& copy, CudaStream* stream) const {
  const Way found = way(copy.from_dtype, copy.to_dtype, copy.scale, copy.norm);
  if (found.as_bytes && copy.from == copy.to) return;
  const auto segment = [&](size_t) -> kernels::Segment {
    return {bytes_at(copy.from), room_at(copy.to), copy.count};
  };
  move(found, 1, copy.scale, copy.norm, segment, stream);
}

void Kernels::copy_strided(StridedCopy copy, CudaStream* stream) const {
  if (copy.parts == 0 || copy.rows == 0 || copy.row_bytes == 0) return;
  // Contiguous rows are merged into one longer row.
  for (int level = 0; level < 2; ++level) {
    const bool touch = copy.from_row == copy.row_bytes && copy.to_row == copy.row_bytes;
    if (!touch && copy.rows > 1) break;
    copy.row_bytes *= copy.rows;
    copy.rows = std::exchange(copy.parts, 1);
    copy.from_row = copy.from_part, copy.to_row = copy.to_part;
  }
  uint64_t all = copy.from | copy.to | copy.row_bytes;
  if (copy.rows > 1) all |= copy.from_row | copy.to_row;
  if (copy.parts > 1) all |= copy.from_part | copy.to_part;
  const uint64_t unit = unit_of(all);
  kernels::StridedArgs args = {};
  args.from = bytes_at(copy.from), args.to = room_at(copy.to);
  args.parts = copy.parts, args.rows = copy.rows, args.row_units = copy.row_bytes / unit;
  args.from_part = copy.from_part, args.from_row = copy.from_row;
  args.to_part = copy.to_part, args.to_row = copy.to_row;
  args.chunks = chunks_of(args.parts * args.rows * args.row_units);
  args.unit_bytes = static_cast<uint32_t>(unit);
  launch(functions_->copy_strided, kCopyStrided, args.chunks, &args, stream);
}

void Kernels::sum_parts(const PartsSum& sum, CudaStream* stream) const {
  const auto* const kernel = std::find_if(std::begin(kReduces), std::end(kReduces),
                                          [&](const ReduceKernel& k) { return k.dtype == sum.dtype; });
  if (kernel == std::end(kReduces))
    fail(DSC_ERR_UNSUPPORTED, "no kernel sums %s (dtype %d)", dtype_name(sum.dtype), sum.dtype);
  if (sum.count == 0 || sum.n_parts == 0) return;
  const size_t element = dtype_bytes(sum.dtype);
  kernels::ReduceArgs args = {};
  args.from = bytes_at(sum.from), args.to = room_at(sum.to);
  args.part_bytes = sum.part_bytes != 0 ? sum.part_bytes : sum.count * element;
  args.count = sum.count, args.parts = sum.n_parts;
  args.prescale = sum.prescale, args.divisor = sum.divisor;
  const unsigned into = kernels::into_pack(args.from, element, kernels::pack_elements(element));
  args.chunks = static_cast<uint32_t>(
      kernels::count_chunks(sum.count, into, kernels::chunk_elements(element, element)));
  launch(functions_->reduce[kernel - std::begin(kReduces)], kernel->name, args.chunks, &args, stream);
}

void Kernels::gather_rows(const RowGather& gather, CudaStream* stream) const {
  if (gather.rows == 0 || gather.row_bytes == 0) return;
  const uint64_t unit = unit_of(gather.from | gather.to | gather.row_bytes);
  kernels::RowGatherArgs args = {};
  args.from = bytes_at(gather.from), args.to = room_at(gather.to), args.index = list_at(gather.index);
  args.rows = gather.rows, args.row_units = gather.row_bytes / unit;
  args.chunks = chunks_of(args.rows * args.row_units);
  args.unit_bytes = static_cast<uint32_t>(unit);
  launch(functions_->gather_rows, kGatherRows, args.chunks, &args, stream);
}

void Kernels::sum_rows(const RowSum& sum, CudaStream* stream) const {
  const size_t kernel = row_kernels_of(sum.dtype), element = dtype_bytes(sum.dtype);
  if (sum.rows == 0 || sum.elements == 0) return;
  const bool is_packed = unit_of(sum.from | sum.to | sum.elements * element) == kernels::kVectorBytes;
  kernels::RowSumArgs args = {};
  args.from = bytes_at(sum.from), args.to = room_at(sum.to), args.index = list_at(sum.index);
  args.weights = bytes_at(sum.weights), args.weight_index = list_at(sum.weight_index);
  args.rows = sum.rows, args.terms = sum.terms, args.is_packed = is_packed ? 1 : 0;
  args.row_units = is_packed ? sum.elements * element / kernels::kVectorBytes : sum.elements;
  args.chunks = chunks_of(args.rows * args.row_units);
  launch(functions_->sum_rows[kernel], kRows[kernel].sum, args.chunks, &args, stream);
}

size_t Kernels::partial_bytes(size_t count) noexcept {
  return count * kernels::kPartialSums * sizeof(double);
}

void Kernels::multiply_rows(const RowProducts& products, CudaStream* stream) const {
  const size_t kernel = row_kernels_of(products.dtype);
  if (products.count == 0) return;
  kernels::RowProductArgs args = {};
  args.from = bytes_at(products.from), args.other = bytes_at(products.other);
  args.index = list_at(products.index);
  args.partial = reinterpret_cast<double*>(products.partial), args.to = room_at(products.to);
  args.count = products.count, args.divisor = products.divisor, args.elements = products.elements;
  args.chunks = chunks_of(args.count * kernels::kPartialSums);
  launch(functions_->multiply_rows[kernel], kRows[kernel].multiply, args.chunks, &args, stream);
  args.chunks = chunks_of(args.count);
  launch(functions_->add_products[kernel], kRows[kernel].add, args.chunks, &args, stream);
}

}  // namespace dsc
