#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "hasten/ops/ops.h"

namespace hasten::ops {
namespace {

// Reading a mask would stall a GPU, so on a GPU the mask is always applied.
bool attends_everywhere(const Tensor& attention_mask) {
  if (!attention_mask.device().is_cpu()) return false;
  const Tensor mask = attention_mask.to(at::kLong).contiguous();
  const std::int64_t* first = mask.const_data_ptr<std::int64_t>();
  return std::all_of(first, first + mask.numel(), [](std::int64_t each) { return each != 0; });
}

}  // namespace

KeyMask::KeyMask(const Tensor& attention_mask) {
  if (!attention_mask.defined() || attends_everywhere(attention_mask)) return;
  const Tensor masked = attention_mask.eq(0);
  additive_ = at::zeros(masked.sizes(), masked.options().dtype(at::kFloat))
                  .masked_fill_(masked, -std::numeric_limits<float>::infinity());
}

KeyMask KeyMask::packed(std::vector<std::int64_t> lengths, Tensor bounds) {
  TORCH_CHECK(!lengths.empty() && *std::min_element(lengths.begin(), lengths.end()) >= 0,
              "KeyMask::packed: got lengths ", at::IntArrayRef(lengths),
              ", expected one or more, none of them negative");
  TORCH_CHECK(!bounds.defined() || (bounds.scalar_type() == at::kInt && bounds.dim() == 1 &&
                                    bounds.size(0) == std::ssize(lengths) + 1),
              "KeyMask::packed: got bounds of ", bounds.scalar_type(), " and shape ",
              bounds.sizes(), " for ", lengths.size(), " rows, expected Int [rows + 1]");
  KeyMask mask{Tensor()};
  mask.lengths_ = std::move(lengths);
  mask.bounds_ = std::move(bounds);
  return mask;
}

KeyMask KeyMask::causal() const {
  KeyMask mask = *this;
  mask.is_causal_ = true;
  return mask;
}

KeyMask KeyMask::first_keys(std::int64_t count) const {
  TORCH_CHECK(lengths_.empty(), "KeyMask::first_keys: got a mask of packed rows");
  KeyMask mask = *this;
  if (additive_.defined()) mask.additive_ = additive_.narrow(1, 0, count);
  return mask;
}

KeyMask KeyMask::repeated(std::int64_t times) const {
  TORCH_CHECK(lengths_.empty(), "KeyMask::repeated: got a mask of packed rows");
  KeyMask mask = *this;
  if (additive_.defined()) mask.additive_ = additive_.repeat_interleave(times, 0);
  return mask;
}

}  // namespace hasten::ops
