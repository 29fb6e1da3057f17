#include "anatomy/gpu_reduction.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ceil_div.h>

#include <algorithm>
#include <bit>
#include <set>

namespace hasten::anatomy {
namespace {

// The properties of the operand that decide the split. `summed` is the product of the sizes of the
// summed dimensions, and `kept` is the product of the other sizes.
struct Shape {
  std::int64_t summed = 1, kept = 1;
  bool sums_fastest = true;        // a summed dimension has the smallest stride
  bool adjacent = false;           // the smallest stride is 1
  std::int64_t fastest_kept = 1;   // size of the kept dimension with the smallest stride
  std::int64_t summed_stride = 0;  // in elements; the smallest one
};

Shape shape_of(const at::Tensor& x, const std::vector<std::int64_t>& dimensions) {
  std::set<std::int64_t> summed;
  for (const std::int64_t dim : dimensions) summed.insert(at::maybe_wrap_dim(dim, x.dim()));
  Shape out;
  std::int64_t closest_summed = INT64_MAX, closest_kept = INT64_MAX;
  for (std::int64_t dim = 0; dim < x.dim(); ++dim) {
    const bool sums = dimensions.empty() || summed.count(dim) != 0;
    (sums ? out.summed : out.kept) *= x.size(dim);
    if (x.size(dim) == 1) continue;
    std::int64_t& closest = sums ? closest_summed : closest_kept;
    if (x.stride(dim) >= closest) continue;
    closest = x.stride(dim);
    if (!sums) out.fastest_kept = x.size(dim);
  }
  out.sums_fastest = closest_kept == INT64_MAX || closest_summed < closest_kept;
  out.adjacent = std::min(closest_summed, closest_kept) == 1;
  out.summed_stride = closest_summed == INT64_MAX ? 0 : closest_summed;
  return out;
}

std::int64_t power_of_two_below(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(value)));
}

}  // namespace

ReductionBuffers reduction_buffers(const at::Tensor& x, const std::vector<std::int64_t>& dimensions,
                                   const Gpu& gpu) {
  if (x.numel() == 0 || !at::isFloatingType(x.scalar_type())) return {};
  const Shape shape = shape_of(x, dimensions);
  const auto element = static_cast<std::int64_t>(x.element_size());
  // A block's threads form a grid of `width` by `height`. `width` runs along the dimensions with
  // the smallest stride.
  std::int64_t along = shape.sums_fastest ? shape.summed : shape.kept;
  std::int64_t across = shape.sums_fastest ? shape.kept : shape.summed;
  std::int64_t outputs_per_thread = 1;
  if (shape.adjacent && shape.sums_fastest) {
    if (along >= 128) along /= element == 2 ? 8 : 4;  // elements are read as vectors
  } else if (shape.adjacent) {
    for (const std::int64_t width : {4, 2}) {
      if (shape.fastest_kept % width != 0 || shape.summed_stride % width != 0) continue;
      outputs_per_thread = width;
      break;
    }
    along /= outputs_per_thread;
  }
  constexpr std::int64_t kWarp = 32;
  const std::int64_t max_threads = 512 / outputs_per_thread;
  const auto threads_for = [&](std::int64_t length) {
    return length < max_threads ? power_of_two_below(std::max<std::int64_t>(length, 1))
                                : max_threads;
  };
  std::int64_t width = std::min(threads_for(along), kWarp);
  const std::int64_t height = std::min(threads_for(across), max_threads / width);
  width = std::min(threads_for(along), max_threads / height);

  // Decides whether the rows of a block's threads share a sum, and how many numbers a thread adds.
  std::int64_t step_in = shape.sums_fastest ? width : 1;
  std::int64_t step_out = shape.sums_fastest ? 1 : width;
  const bool rows_share_sum =
      at::ceil_div<std::int64_t>(shape.summed, step_in) >= std::min<std::int64_t>(16 * height, 256);
  (rows_share_sum ? step_in : step_out) *= height;
  const std::int64_t elements_per_thread = at::ceil_div<std::int64_t>(shape.summed, step_in);
  const std::int64_t blocks = at::ceil_div<std::int64_t>(shape.kept / outputs_per_thread, step_out);
  const std::int64_t max_blocks =
      gpu.multiprocessors * (gpu.threads_per_multiprocessor / (width * height));
  if (!rows_share_sum || elements_per_thread < 256 || blocks > max_blocks) return {};
  const std::int64_t splits =
      std::max(std::min(at::ceil_div<std::int64_t>(max_blocks, blocks),
                        at::ceil_div<std::int64_t>(elements_per_thread, 16)),
               at::ceil_div<std::int64_t>(elements_per_thread, 256));
  if (splits <= 1) return {};
  const std::int64_t sum = x.scalar_type() == at::kDouble ? 8 : 4;
  return {
      .staging = sum * shape.kept * splits * (shape.sums_fastest ? 1 : width * outputs_per_thread),
      .semaphores = 4 * blocks};
}

}  // namespace hasten::anatomy
