#include "ops/sum_of_squares.h"

#include <vector>

#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using at::Tensor;

struct Chunk {
  const float* data;
  std::int64_t count;
};

void sum_of_squares_cpu(at::TensorList tensors, const Tensor& total) {
  constexpr std::int64_t kChunkElements = 1 << 16;
  std::vector<Chunk> chunks;
  for (const Tensor& x : tensors) {
    const float* data = x.const_data_ptr<float>();
    for (std::int64_t at = 0; at < x.numel(); at += kChunkElements)
      chunks.push_back({data + at, std::min(kChunkElements, x.numel() - at)});
  }
  std::vector<double> sums(chunks.size());
  at::parallel_for(0, static_cast<std::int64_t>(chunks.size()), 4,
                   [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t i = first; i < last; ++i)
                       sums[i] = kernels().sum_of_squares(chunks[i].data, chunks[i].count);
                   });
  double sum = 0;
  for (const double part : sums) sum += part;
  *total.mutable_data_ptr<double>() = sum;
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library, "sum_of_squares(Tensor[] tensors, Tensor(a!) total) -> ()",
               sum_of_squares_cpu);
}

}  // namespace

double sum_of_squares(at::TensorList tensors) {
  if (tensors.empty()) return 0;
  const Tensor total = at::zeros({}, at::kDouble);
  call_operator<sum_of_squares_cpu>("hasten::sum_of_squares", tensors, total);
  return total.item<double>();
}

}  // namespace hasten::ops
