#include "anatomy/shape_rules.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <map>

#include "anatomy/shape_rule_helpers.h"

namespace hasten::anatomy {
namespace {

Tensor like(const Tensor& x) { return x.defined() ? at::empty_like(x) : Tensor(); }
Tensor like(const Tensor& x, at::ScalarType type) {
  return at::empty_like(x, x.options().dtype(type));
}
Tensor sized(at::IntArrayRef sizes, const Tensor& x) { return at::empty(sizes, x.options()); }
Tensor sized(at::IntArrayRef sizes, const Tensor& x, at::ScalarType type) {
  return at::empty(sizes, x.options().dtype(type));
}

// The rule of an operator with a single result that has the shape and the type of argument I.
template <std::size_t I>
Results like_argument(Arguments a) {
  return {like(tensor(a, I))};
}

Results embedding(Arguments a) {
  auto sizes = tensor(a, 1).sizes().vec();
  sizes.push_back(tensor(a, 0).size(1));
  return {sized(sizes, tensor(a, 0))};
}
Results embedding_dense_backward(Arguments a) {
  const Tensor gradient = tensor(a, 0);
  return {sized({a[2].toInt(), gradient.size(-1)}, gradient)};
}
Results index_select(Arguments a) {
  const Tensor x = tensor(a, 0);
  auto sizes = x.sizes().vec();
  if (!sizes.empty()) sizes[at::maybe_wrap_dim(a[1].toInt(), x.dim())] = tensor(a, 2).numel();
  return {sized(sizes, x)};
}

// Returns the type of a norm's statistics on the CPU: float if the weight and x have different
// types, else the type of x.
at::ScalarType norm_statistics_type(const Tensor& x, const Tensor& weight) {
  return weight.defined() && weight.scalar_type() != x.scalar_type() ? at::kFloat : x.scalar_type();
}
// The statistics have size 1 in the dimensions that are normalized.
Results layer_norm(Arguments a) {
  const Tensor x = tensor(a, 0).contiguous();
  auto sizes = x.sizes().vec();
  for (std::size_t i = sizes.size() - a[1].toIntVector().size(); i < sizes.size(); ++i)
    sizes[i] = 1;
  const at::ScalarType type = norm_statistics_type(x, tensor(a, 2));
  return {like(x), sized(sizes, x, type), sized(sizes, x, type)};
}
Results layer_norm_backward(Arguments a) {
  const auto mask = a[7].toBoolList();
  const Tensor x = tensor(a, 1), weight = tensor(a, 5), bias = tensor(a, 6);
  return {mask[0] ? like(x) : Tensor(), mask[1] && weight.defined() ? like(weight) : Tensor(),
          mask[2] && bias.defined() ? like(bias) : Tensor()};
}
Results group_norm(Arguments a) {
  const Tensor x = tensor(a, 0);
  const std::int64_t batch = a[3].toInt(), groups = a[6].toInt();
  const at::ScalarType type = norm_statistics_type(x, tensor(a, 1));
  return {like(x), sized({batch, groups}, x, type), sized({batch, groups}, x, type)};
}
Results group_norm_backward(Arguments a) {
  const Tensor x = tensor(a, 1), weight = tensor(a, 4);
  const auto mask = a[9].toBoolList();
  return {mask[0] ? like(x) : Tensor(), mask[1] && weight.defined() ? like(weight) : Tensor(),
          mask[2] && weight.defined() ? like(weight) : Tensor()};
}
Results batch_norm(Arguments a) {
  const Tensor x = tensor(a, 0), weight = tensor(a, 1);
  const bool training = a[5].toBool();
  const std::int64_t channels = training ? x.size(1) : 0;
  const at::ScalarType type = norm_statistics_type(x, weight.defined() ? weight : tensor(a, 3));
  return {like(x), sized({channels}, x, type), sized({channels}, x, type)};
}
// The gradients of weight and bias have the type of the weight.
Results batch_norm_backward(Arguments a) {
  const Tensor x = tensor(a, 1), weight = tensor(a, 2);
  const at::ScalarType type = weight.defined() ? weight.scalar_type() : x.scalar_type();
  const auto mask = a[9].toBoolList();
  return {mask[0] ? like(x) : Tensor(), mask[1] ? sized({x.size(1)}, x, type) : Tensor(),
          mask[2] ? sized({x.size(1)}, x, type) : Tensor()};
}

Results native_dropout(Arguments a) { return {like(tensor(a, 0)), like(tensor(a, 0), at::kBool)}; }

// q, k and v are [batch, heads, length, size]. The output has the memory order of q; the second
// result is stored as [batch, length, heads].
Results flash_attention_cpu(Arguments a) {
  const Tensor q = tensor(a, 0);
  return {empty_with_order_of(q),
          sized({q.size(0), q.size(2), q.size(1)}, q, at::kFloat).transpose(1, 2)};
}
Results where(Arguments a) {
  const Tensor condition = tensor(a, 0), x = tensor(a, 1), y = tensor(a, 2);
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes()));
  return {at::empty(sizes, x.options().dtype(at::result_type(x, y)))};
}

Results convolution(Arguments a) {
  const Tensor x = tensor(a, 0), weight = tensor(a, 1);
  const auto stride = a[3].toIntVector(), padding = a[4].toIntVector(),
             dilation = a[5].toIntVector(), extra = a[7].toIntVector();
  const bool transposed = a[6].toBool();
  const std::int64_t groups = a[8].toInt();
  std::vector<std::int64_t> sizes = {x.size(0),
                                     transposed ? weight.size(1) * groups : weight.size(0)};
  for (std::int64_t i = 2; i < x.dim(); ++i) {
    const auto at = [&](const std::vector<std::int64_t>& all) {
      return all.size() == 1 ? all[0] : all[static_cast<std::size_t>(i - 2)];
    };
    const std::int64_t kernel = at(dilation) * (weight.size(i) - 1) + 1;
    sizes.push_back(transposed ? (x.size(i) - 1) * at(stride) - 2 * at(padding) + kernel + at(extra)
                               : (x.size(i) + 2 * at(padding) - kernel) / at(stride) + 1);
  }
  return {sized(sizes, x)};
}
Results convolution_backward(Arguments a) {
  const Tensor dy = tensor(a, 0), x = tensor(a, 1), weight = tensor(a, 2);
  const auto mask = a[10].toBoolList();
  return {mask[0] ? like(x) : Tensor(), mask[1] ? like(weight) : Tensor(),
          mask[2] ? sized({dy.size(1)}, dy) : Tensor()};
}

// The product of all numbers. Integers are multiplied as 64-bit numbers.
Results prod(Arguments a) {
  const Tensor x = tensor(a, 0);
  const at::ScalarType own =
      at::isIntegralType(x.scalar_type(), /*includeBool=*/true) ? at::kLong : x.scalar_type();
  return {sized({}, x, a[1].isNone() ? own : a[1].toScalarType())};
}

Results linear_pointwise(Arguments a) {
  const Tensor x = tensor(a, 0);
  auto sizes = x.sizes().vec();
  sizes.back() = tensor(a, 1).size(0);
  return {sized(sizes, x)};
}

Results adaptive_pool(Arguments a) {
  const Tensor x = tensor(a, 0);
  auto sizes = x.sizes().vec();
  const auto out = a[1].toIntVector();
  std::copy(out.begin(), out.end(), sizes.end() - static_cast<std::ptrdiff_t>(out.size()));
  return {sized(sizes, x)};
}

using ShapeTable = std::map<std::string, ShapeRule, std::less<>>;

const ShapeTable& shape_table() {
  static const ShapeTable all = {
      {"aten::embedding", embedding},
      {"aten::embedding_dense_backward", embedding_dense_backward},
      {"aten::index_select", index_select},
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::native_group_norm", group_norm},
      {"aten::native_group_norm_backward", group_norm_backward},
      {"aten::native_batch_norm", batch_norm},
      {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::native_dropout", native_dropout},
      {"aten::native_dropout_backward", like_argument<0>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention_cpu},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", flash_attention_backward},
      {"aten::_safe_softmax", like_argument<0>},
      {"aten::where", where},
      {"aten::convolution", convolution},
      {"aten::convolution_overrideable", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::_adaptive_avg_pool2d", adaptive_pool},
      {"aten::_adaptive_avg_pool2d_backward", like_argument<1>},
      {"aten::relu", like_argument<0>},
      {"aten::relu_", like_argument<0>},
      {"aten::flip", like_argument<0>},
      {"aten::roll", like_argument<0>},
      {"aten::huber_loss_backward", like_argument<1>},
      {"aten::mse_loss_backward", like_argument<1>},
      {"aten::binary_cross_entropy_backward", like_argument<1>},
      {"aten::hardswish", like_argument<0>},
      {"aten::hardtanh", like_argument<0>},
      {"aten::multinomial",
       [](Arguments a) -> Results {
         const Tensor x = tensor(a, 0);
         auto sizes = x.sizes().vec();
         sizes.back() = a[1].toInt();
         return {sized(sizes, x, at::kLong)};
       }},
      {"mkldnn::_linear_pointwise", linear_pointwise},
  };
  return all;
}

}  // namespace

ShapeRule find_shape_rule(std::string_view name, std::string_view overload) {
  // The product over one dimension has a Meta kernel.
  if (name == "aten::prod") return overload.empty() ? prod : nullptr;
  const auto found = shape_table().find(name);
  return found == shape_table().end() ? nullptr : found->second;
}

}  // namespace hasten::anatomy
