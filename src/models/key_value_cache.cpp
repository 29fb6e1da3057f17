#include "hasten/models/detail/key_value_cache.h"

#include <torch/torch.h>

#include <algorithm>

#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

void check_size(const CacheShape& shape, const KeyValueCache::Size& size) {
  if (shape.layers >= 0 && shape.width >= 0 && size.rows >= 1 && size.capacity >= 1 &&
      size.copies >= 1)
    return;
  throw UsageError("models.cache", {.what = "a cache of keys and values",
                                    .got = str(size.rows, " rows, ", size.copies, " copies, ",
                                               size.capacity, " tokens, ", shape.layers, " layers"),
                                    .expected = "at least one row, copy and token"});
}

}  // namespace

KeyValueCache::KeyValueCache(const CacheShape& shape, const Size& size)
    : size_(size), width_(shape.width) {
  check_size(shape, size);
  layers_.resize(static_cast<std::size_t>(shape.layers));
}

void KeyValueCache::check_prompt(const at::Tensor& attention_mask) const {
  const bool fits = !attention_mask.defined() ||
                    (attention_mask.dim() == 2 && attention_mask.size(0) == size_.rows &&
                     attention_mask.size(1) <= size_.capacity);
  if (fits && length_ == 0) return;
  throw UsageError("models.cache",
                   {.what = "attention_mask",
                    .got = str(fits ? "one" : "shape " + shape_text(attention_mask.sizes()),
                               " after ", length_, " tokens"),
                    .expected = str("shape [", size_.rows, ", at most ", size_.capacity,
                                    "], before the first token")});
}

void KeyValueCache::check_next(std::int64_t tokens) const {
  if (tokens >= 0 && tokens <= size_.capacity - length_) return;
  throw UsageError("models.cache", {.what = "the next tokens of a cache",
                                    .got = str(tokens, " after ", length_, " tokens"),
                                    .expected = str("at most ", size_.capacity - length_)});
}

void KeyValueCache::set_prompt(const at::Tensor& attention_mask) {
  check_prompt(attention_mask);
  token_counts_.clear();
  prompt_length_ = 0;
  mask_ = ops::KeyMask(attention_mask);
  if (!mask_.additive().defined()) return;
  const at::Tensor counts = attention_mask.ne(0).to(at::kCPU, at::kLong).contiguous();
  prompt_length_ = counts.size(1);
  const std::int64_t* count = counts.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < size_.rows; ++row) {
    std::vector<std::int64_t> before = {0};
    for (std::int64_t token = 0; token < prompt_length_; ++token)
      before.push_back(before.back() + count[row * prompt_length_ + token]);
    token_counts_.push_back(std::move(before));
  }
  // All tokens after the prompt are unmasked.
  mask_ = ops::KeyMask(at::constant_pad_nd(attention_mask.ne(0).to(at::kLong),
                                           {0, size_.capacity - prompt_length_}, 1));
}

at::Tensor KeyValueCache::positions(std::int64_t tokens) const {
  check_next(tokens);
  const std::int64_t own_rows = token_counts_.empty() ? 1 : rows(), copies = rows() / size_.rows;
  const at::Tensor out = at::empty({own_rows, tokens}, at::kLong);
  std::int64_t* to = out.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < own_rows; ++row) {
    for (std::int64_t token = length_; token < length_ + tokens; ++token, ++to) {
      *to = token;
      if (token_counts_.empty()) continue;
      const auto& counted = token_counts_[static_cast<std::size_t>(row / copies)];
      const std::int64_t in_prompt = std::min(token, prompt_length_);
      *to = counted[static_cast<std::size_t>(in_prompt)] + token - in_prompt;
    }
  }
  return out;
}

ops::KeyMask KeyValueCache::mask(std::int64_t tokens) const {
  check_next(tokens);
  return mask_.first_keys(length_ + tokens).causal();
}

// Returns the current rows. Before expand() these are only the first row of each prompt.
at::Tensor KeyValueCache::rows_of(const at::Tensor& all) const {
  if (is_expanded_ || size_.copies == 1) return all;
  return all.view({size_.rows, size_.copies, size_.capacity, width_}).select(1, 0);
}

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(std::int64_t layer, const at::Tensor& keys,
                                                        const at::Tensor& values) {
  const std::int64_t tokens = keys.dim() == 3 ? keys.size(1) : 0, end = length_ + tokens;
  const bool fits = layer >= 0 && layer < std::ssize(layers_) && keys.dim() == 3 &&
                    keys.size(0) == rows() && keys.size(2) == width_ &&
                    values.sizes() == keys.sizes() && end <= size_.capacity;
  if (!fits) {
    throw UsageError("models.cache",
                     {.what = str("the keys of layer ", layer),
                      .got = str("shape ", shape_text(keys.sizes()), " after ", length_, " tokens"),
                      .expected = str("[", rows(), ", at most ", size_.capacity - length_, ", ",
                                      width_, "], and one of ", layers_.size(), " layers")});
  }
  Layer& own = layers_[static_cast<std::size_t>(layer)];
  const auto add = [&](at::Tensor& all, const at::Tensor& next) {
    if (!all.defined()) {
      all = at::empty({size_.rows * size_.copies, size_.capacity, width_},
                      next.options().requires_grad(false));
    }
    const at::Tensor now = rows_of(all);
    now.narrow(1, length_, tokens).copy_(next);
    return now.narrow(1, 0, end);
  };
  const at::Tensor all_keys = add(own.keys, keys), all_values = add(own.values, values);
  return {all_keys, all_values};
}

void KeyValueCache::advance(std::int64_t tokens) {
  check_next(tokens);
  length_ += tokens;
}

void KeyValueCache::expand() {
  if (is_expanded_) return;
  const std::int64_t copies = size_.copies;
  for (const at::Tensor& all : keys_and_values()) {
    if (copies == 1) break;
    const at::Tensor groups =
        all.view({size_.rows, copies, size_.capacity, width_}).narrow(2, 0, length_);
    groups.narrow(1, 1, copies - 1).copy_(groups.narrow(1, 0, 1));
  }
  if (mask_.additive().defined() && copies > 1) mask_ = mask_.repeated(copies);
  common_prefixes_.assign(static_cast<std::size_t>(size_.rows * copies * copies), length_);
  is_expanded_ = true;
}

std::int64_t& KeyValueCache::common_prefix(std::int64_t a, std::int64_t b) {
  return common_prefixes_[static_cast<std::size_t>(a * size_.copies + b % size_.copies)];
}

void KeyValueCache::copy_row(std::int64_t from, std::int64_t to) {
  const std::int64_t first = from / size_.copies * size_.copies;
  if (!is_expanded_ || from < 0 || from >= rows() || to < first || to >= first + size_.copies) {
    throw UsageError("models.cache", {.what = "a copy of a row",
                                      .got = str("row ", from, " to row ", to),
                                      .expected = "two rows of one prompt, after expand()"});
  }
  if (from == to) return;
  const std::int64_t equal = common_prefix(from, to);
  for (const at::Tensor& all : keys_and_values()) {
    all.select(0, to)
        .narrow(0, equal, length_ - equal)
        .copy_(all.select(0, from).narrow(0, equal, length_ - equal));
  }
  for (std::int64_t other = first; other < first + size_.copies; ++other) {
    if (other == to) continue;
    const std::int64_t shared = other == from ? length_ : common_prefix(from, other);
    common_prefix(to, other) = common_prefix(other, to) = shared;
  }
}

std::vector<at::Tensor> KeyValueCache::keys_and_values() const {
  std::vector<at::Tensor> out;
  for (const Layer& layer : layers_) {
    if (layer.keys.defined()) out.insert(out.end(), {layer.keys, layer.values});
  }
  return out;
}

std::vector<at::Tensor> KeyValueCache::tensors() const {
  std::vector<at::Tensor> out = keys_and_values();
  if (mask_.additive().defined()) out.push_back(mask_.additive());
  return out;
}

}  // namespace hasten
