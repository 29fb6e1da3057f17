#include "anatomy/op_rules.h"

#include <algorithm>
#include <map>

namespace hasten::anatomy {
namespace {

using Amount = std::optional<double>;

double numel(const CallShapes& c, std::size_t argument) {
  return static_cast<double>(c.input(argument).numel);
}
double bytes(const CallShapes& c, std::size_t argument) {
  double all = 0;
  for (std::size_t i = 0; i < c.count(argument); ++i)
    all += static_cast<double>(c.inputs[c.first[argument] + i].bytes);
  return all;
}
double written(const CallShapes& c) {
  return c.outputs.empty() ? 0 : static_cast<double>(c.outputs[0].numel);
}
double result_bytes(const CallShapes& c) {
  return c.outputs.empty() ? 0 : static_cast<double>(c.outputs[0].bytes);
}
double size(const TensorShape& shape, std::size_t dimension) {
  return dimension < shape.sizes.size() ? static_cast<double>(shape.sizes[dimension]) : 1;
}
double size(const CallShapes& c, std::size_t argument, std::size_t dimension) {
  return size(c.input(argument), dimension);
}
double last(const CallShapes& c, std::size_t argument) {
  const auto& sizes = c.input(argument).sizes;
  return sizes.empty() ? 1 : static_cast<double>(sizes.back());
}
// The product of all sizes but the first. Nothing is divided, because sizes may be 0.
double size_after_first(const TensorShape& shape) {
  double product = 1;
  for (std::size_t i = 1; i < shape.sizes.size(); ++i) product *= size(shape, i);
  return product;
}
// The product of all sizes but the last.
double size_before_last(const TensorShape& shape) {
  double product = 1;
  for (std::size_t i = 0; i + 1 < shape.sizes.size(); ++i) product *= size(shape, i);
  return product;
}

// The options of the call. A missing option has the value that counts least.
const c10::IValue& value(const CallShapes& c, std::size_t argument) {
  static const c10::IValue none;
  return argument < c.values.size() ? c.values[argument] : none;
}
bool flag(const CallShapes& c, std::size_t argument) {
  const c10::IValue& given = value(c, argument);
  return given.isBool() && given.toBool();
}
bool flag(const CallShapes& c, std::size_t argument, std::size_t place) {
  const c10::IValue& given = value(c, argument);
  return given.isBoolList() && place < given.toBoolList().size() && given.toBoolList()[place];
}
// True if the call multiplies by this argument: a scalar other than 1, a list or a tensor.
bool is_factor(const CallShapes& c, std::size_t argument) {
  const c10::IValue& given = value(c, argument);
  if (given.isScalar()) return !given.toScalar().equal(1);
  return given.isList() || c.count(argument) > 0;
}
bool is_not_zero(const CallShapes& c, std::size_t argument) {
  const c10::IValue& given = value(c, argument);
  return given.isScalar() && !given.toScalar().equal(0);
}
bool has(const CallShapes& c, std::size_t argument) { return c.input(argument).numel > 0; }

// N operations per element of the result.
template <int N>
Amount per_output(const CallShapes& c) {
  return N * written(c);
}
// N operations per element of argument I.
template <int N, int I = 0>
Amount per_input(const CallShapes& c) {
  return N * numel(c, I);
}

// a [..., m, k] times b [..., k, n]; a is argument A.
template <int A>
Amount product(const CallShapes& c) {
  return 2 * numel(c, A) * last(c, A + 1);
}
// The outer product of two vectors is added to self [m, n].
Amount outer(const CallShapes& c) { return 2 * numel(c, 1) * numel(c, 2); }
// x [..., in] times weight [out, in].
Amount linear(const CallShapes& c) { return 2 * numel(c, 0) * size(c, 1, 0); }
// x, dy, weight: the gradients of x and weight cost as much as the product, each.
Amount linear_backward(const CallShapes& c) {
  return (flag(c, 3, 0) + flag(c, 3, 1)) * 2 * numel(c, 0) * size(c, 2, 0);
}

// Every number of the smaller side is multiplied by all weights of its channel. That side is the
// result (weight [out, in / groups, ...]), or the input of a transposed convolution (weight [in,
// out / groups, ...]). Padding counts like numbers of the input.
double convolved(const TensorShape& smaller_side, const TensorShape& weight) {
  return 2 * static_cast<double>(smaller_side.numel) * size_after_first(weight);
}
Amount convolution(const CallShapes& c) {
  if (c.outputs.empty()) return {};
  return convolved(flag(c, 6) ? c.input(0) : c.outputs[0], c.input(1));
}
// For the backends' own operators, which are never transposed.
Amount plain_convolution(const CallShapes& c) {
  return c.outputs.empty() ? Amount() : convolved(c.outputs[0], c.input(1));
}
// dy, x, weight: the gradients of input and weight cost as much as the forward pass, each.
template <int Transposed, int Mask>
Amount convolution_backward(const CallShapes& c) {
  return (flag(c, Mask, 0) + flag(c, Mask, 1)) *
         convolved(c.input(flag(c, Transposed) ? 1 : 0), c.input(2));
}

// From argument Q on: q [batch, heads, L, d], k [batch, key heads, S, d], v [batch, key heads, S,
// e]. Each head of q takes `Keys` products of 2 L S d and `Values` of 2 L S e operations. Scores
// that a causal mask excludes count too, as in PyTorch's counter.
template <int Keys, int Values, int Q>
Amount attention(const CallShapes& c) {
  if (c.input(Q).sizes.size() != 4 || c.input(Q + 1).sizes.size() != 4) return {};
  return 2 * size_before_last(c.input(Q)) * size(c, Q + 1, 2) *
         (Keys * last(c, Q) + Values * last(c, Q + 2));
}

// hasten's attention on the CPU. From argument `Lengths` on: the length of each row, its number of
// keys up to the last one used, and the number of heads. Each head takes `Products` products of 2 L
// keys d, and N operations per score.
template <int Products, int N, int Q, int Lengths>
Amount attention_by_rows(const CallShapes& c) {
  const auto &lengths = value(c, Lengths), &keys = value(c, Lengths + 1),
             &heads = value(c, Lengths + 2);
  if (!lengths.isIntList() || !keys.isIntList() || !heads.isInt()) return {};
  const auto lines = lengths.toIntVector(), columns = keys.toIntVector();
  double scores = 0;
  for (std::size_t row = 0; row < std::min(lines.size(), columns.size()); ++row)
    scores += static_cast<double>(lines[row]) * static_cast<double>(columns[row]);
  return scores * (Products * 2 * last(c, Q) + N * static_cast<double>(heads.toInt()));
}

// x [length, batch, in] or [batch, length, in] times both weight matrices at each step. The
// backward pass (N = 2) forms two products for each; its arguments follow x in the same order.
template <int N>
Amount recurrent(const CallShapes& c) {
  return N * 2 * size_before_last(c.input(0)) * (numel(c, 1) + numel(c, 2));
}
// The same for all layers and directions. The list after x has their weights and biases, of which
// only the matrices count.
template <int N>
Amount recurrent_layers(const CallShapes& c) {
  double weights = 0;
  for (std::size_t i = 0; i < c.count(1); ++i) {
    const TensorShape& weight = c.inputs[c.first[1] + i];
    if (weight.sizes.size() == 2) weights += static_cast<double>(weight.numel);
  }
  return N * 2 * size_before_last(c.input(0)) * weights;
}

// The number of elements in a list of tensors.
double listed(const CallShapes& c, std::size_t argument = 0) {
  double elements = 0;
  for (std::size_t i = 0; i < c.count(argument); ++i)
    elements += static_cast<double>(c.inputs[c.first[argument] + i].numel);
  return elements;
}
template <int N>
Amount per_listed(const CallShapes& c) {
  return N * listed(c);
}

// Per element: mean (1), variance (3), difference times reciprocal deviation (2).
template <int Weight, int Bias>
Amount norm(const CallShapes& c) {
  return (6 + has(c, Weight) + has(c, Bias)) * numel(c, 0);
}
// With running statistics no mean and no variance is computed. `Training` is the flag's argument;
// negative: they always are.
template <int Training>
Amount batch_norm(const CallShapes& c) {
  const bool computes_statistics = Training < 0 || flag(c, static_cast<std::size_t>(Training));
  return (2 + 4 * computes_statistics + has(c, 1) + has(c, 2)) * numel(c, 0);
}
// Per element: the normalized number again (2), times dy and summed for the weight (2), dy summed
// for the bias (1). The input's gradient takes dy times the weight (1), two sums (3) and their
// subtraction from dy (4); without statistics of the batch, only dy times the weight and the
// reciprocal deviation.
double norm_gradient(const CallShapes& c, bool input, bool weight, bool bias, bool has_weight,
                     bool of_statistics = true) {
  const double for_input = input ? has_weight + (of_statistics ? 7 : 1) : 0;
  const bool normalizes = weight || (input && of_statistics);
  return (2 * normalizes + 2 * weight + bias + for_input) * numel(c, 0);
}
template <int Mask, int Weight>
Amount norm_backward(const CallShapes& c) {
  return norm_gradient(c, flag(c, Mask, 0), flag(c, Mask, 1), flag(c, Mask, 2), has(c, Weight));
}
Amount batch_norm_backward(const CallShapes& c) {
  return norm_gradient(c, flag(c, 9, 0), flag(c, 9, 1), flag(c, 9, 2), has(c, 2), flag(c, 7));
}
Amount whole_norm_backward(const CallShapes& c) { return norm_gradient(c, true, true, true, true); }

// The size of a pooling window. A list of one number holds for all dimensions.
template <int Dimensions>
double window(const CallShapes& c, std::size_t argument) {
  const c10::IValue& given = value(c, argument);
  if (!given.isIntList()) return 1;
  const auto sizes = given.toIntVector();
  double product = 1;
  for (std::size_t i = 0; i < Dimensions; ++i)
    product *= sizes.empty() ? 1 : static_cast<double>(sizes[sizes.size() == 1 ? 0 : i]);
  return product;
}
// Each result is the maximum or the mean of a window.
template <int Dimensions>
Amount pool(const CallShapes& c) {
  return written(c) * window<Dimensions>(c, 1);
}
template <int Dimensions>
Amount mean_pool_backward(const CallShapes& c) {
  return numel(c, 0) * window<Dimensions>(c, 2);
}
// The sizes of all windows together. PyTorch's window i goes from floor(i * in / out) to ceil((i +
// 1) * in / out).
double adaptive_windows(const TensorShape& in, const TensorShape& out, std::size_t dimensions) {
  if (in.sizes.size() < dimensions || in.sizes.size() != out.sizes.size()) return 0;
  const std::size_t leading = in.sizes.size() - dimensions;
  double all = 1;
  for (std::size_t d = 0; d < in.sizes.size(); ++d) {
    if (d < leading) {
      all *= size(in, d);
      continue;
    }
    double read = 0;
    const std::int64_t from = in.sizes[d], to = out.sizes[d];
    for (std::int64_t i = 0; i < to; ++i) {
      const std::int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
      read += static_cast<double>(end - begin);
    }
    all *= read;
  }
  return all;
}
template <int Dimensions>
Amount adaptive_pool(const CallShapes& c) {
  return c.outputs.empty() ? Amount() : adaptive_windows(c.input(0), c.outputs[0], Dimensions);
}
template <int Dimensions>
Amount adaptive_pool_backward(const CallShapes& c) {
  return adaptive_windows(c.input(1), c.input(0), Dimensions);
}

// Per target: the sign, the weight twice (for the loss and for the sum of weights), and the sum
// unless the losses are not reduced.
Amount nll_loss(const CallShapes& c) {
  return numel(c, 1) * (1 + 2 * has(c, 2) + is_not_zero(c, 3));
}
Amount nll_loss_backward(const CallShapes& c) { return numel(c, 2) * (1 + has(c, 3)); }
// Reads the targets, the weights, and of the numbers only those at the targets.
Amount nll_loss_reads(const CallShapes& c) {
  const double of_number = static_cast<double>(at::elementSize(c.input(0).type));
  return numel(c, 1) * of_number + bytes(c, 1) + bytes(c, 2);
}
Amount nll_loss_backward_reads(const CallShapes& c) {
  return bytes(c, 0) + bytes(c, 2) + bytes(c, 3) + bytes(c, 6);
}
double broadcast(const CallShapes& c) { return std::max(numel(c, 0), numel(c, 1)); }
// Difference and square, and the sum unless the losses are not reduced.
Amount mse_loss(const CallShapes& c) { return broadcast(c) * (2 + is_not_zero(c, 2)); }
// -(t log x + (1 - t) log(1 - x))
Amount binary_cross_entropy(const CallShapes& c) {
  return numel(c, 0) * (8 + has(c, 2) + is_not_zero(c, 3));
}

// A sum, and one more operation if the second operand has a factor.
template <int Alpha>
Amount sum_with_factor(const CallShapes& c) {
  return (1 + is_factor(c, Alpha)) * written(c);
}
template <int Alpha>
Amount sum_of_listed(const CallShapes& c) {
  return (1 + is_factor(c, Alpha)) * listed(c);
}
// self + value * a * b, or self + value * a / b.
Amount sum_with_product(const CallShapes& c) { return (2 + is_factor(c, 3)) * written(c); }
Amount sum_with_product_listed(const CallShapes& c) { return (2 + is_factor(c, 3)) * listed(c); }

// A lookup reads the index, and as much of the table as the result is large.
template <int Index>
Amount lookup_reads(const CallShapes& c) {
  return std::min(bytes(c, 0), result_bytes(c)) + bytes(c, Index);
}
// The bytes that an index selects. An in-place operator writes only these, and reads them only if
// it adds to them.
template <int Source>
double selected_bytes(const CallShapes& c) {
  return numel(c, Source) * static_cast<double>(at::elementSize(c.input(0).type));
}
template <int Index, int Source>
Amount accumulated_reads(const CallShapes& c) {
  return selected_bytes<Source>(c) + bytes(c, Index) + (Index == Source ? 0 : bytes(c, Source));
}
template <int Source>
Amount selected_writes(const CallShapes& c) {
  return selected_bytes<Source>(c);
}
// Adds the source at an index. Only index_put may expand the source to what the index selects.
template <int Source, int Alpha>
Amount index_add(const CallShapes& c) {
  return (1 + is_factor(c, Alpha)) * numel(c, Source);
}
// self, indices, values, accumulate: how many numbers the indices select. Shapes do not show how
// many a mask selects. Other indices are broadcast and select rows of the dimensions after them.
Amount index_put_selection(const CallShapes& c) {
  double selected = 1;
  for (std::size_t i = 0; i < c.count(1); ++i) {
    const TensorShape& index = c.inputs[c.first[1] + i];
    if (index.type == at::kBool || index.type == at::kByte) return {};
    if (index.sizes.empty() && index.numel == 0) return {};  // a dimension that is not indexed
    selected = std::max(selected, static_cast<double>(index.numel));
  }
  for (std::size_t d = c.count(1); d < c.input(0).sizes.size(); ++d) selected *= size(c, 0, d);
  const bool fits = numel(c, 2) == 1 || numel(c, 2) == selected;  // else they broadcast further
  return fits ? Amount(selected) : Amount();
}
Amount index_put(const CallShapes& c) { return flag(c, 3) ? index_put_selection(c) : 0; }
Amount index_put_writes(const CallShapes& c) {
  const Amount selected = index_put_selection(c);
  return selected ? Amount(*selected * static_cast<double>(at::elementSize(c.input(0).type)))
                  : selected;
}
Amount index_put_reads(const CallShapes& c) {
  const Amount written_bytes = index_put_writes(c);
  return written_bytes ? Amount((flag(c, 3) ? *written_bytes : 0) + bytes(c, 1) + bytes(c, 2))
                       : written_bytes;
}
// self, dim, index: writes slices of the other dimensions.
Amount index_fill_writes(const CallShapes& c) {
  const auto& sizes = c.input(0).sizes;
  if (!value(c, 1).isInt() || sizes.empty()) return {};
  std::int64_t dimension = value(c, 1).toInt();
  if (dimension < 0) dimension += static_cast<std::int64_t>(sizes.size());
  double selected = numel(c, 2);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    selected *= static_cast<std::int64_t>(d) == dimension ? 1 : size(c, 0, d);
  return selected * static_cast<double>(at::elementSize(c.input(0).type));
}

// One addition for each number that is merged into another one of the same place.
Amount coalesce(const CallShapes& c) {
  return c.outputs.empty() ? Amount() : numel(c, 0) - static_cast<double>(c.outputs[0].numel);
}

// Per element: decay (1, or 2 if it is added to the gradient), moments (3 and 4), denominator (3),
// update (3).
Amount fused_adamw(const CallShapes& c) { return (14 + flag(c, 11) + flag(c, 12)) * listed(c); }
Amount fused_adam(const CallShapes& c) {
  return (13 + 2 * is_not_zero(c, 9) + flag(c, 11) + flag(c, 12)) * listed(c);
}
// self, grads, momentum: decay and momentum count only if they are used.
Amount fused_sgd(const CallShapes& c) {
  const bool momentum = is_not_zero(c, 4) && !flag(c, 9);
  return (2 + 2 * is_not_zero(c, 3) + 3 * momentum + 2 * flag(c, 7) + flag(c, 8)) * listed(c);
}
// All lists but the gradients, which are written only if a scale is divided out of them.
template <int Lists, int Scale>
Amount fused_writes(const CallShapes& c) {
  double all = bytes(c, 0) + (c.count(Scale) > 0 ? bytes(c, 1) : 0);
  for (std::size_t i = 2; i < Lists; ++i) all += bytes(c, i);
  return all;
}

constexpr OperationGroup kContraction = OperationGroup::tensor_contraction;
constexpr OperationGroup kNormalization = OperationGroup::statistical_normalization;
constexpr OperationGroup kElementWise = OperationGroup::element_wise;
constexpr OperationGroup kNone = OperationGroup::none;

using OpTable = std::map<std::string, OpRule, std::less<>>;

void add(OpTable& table, OperationGroup group, Formula flops,
         std::initializer_list<const char*> names) {
  for (const char* name : names) {
    table[std::string("aten::") + name] = {.group = group, .flops = flops};
  }
}

void contractions(OpTable& t) {
  add(t, kContraction, product<0>, {"mm", "bmm", "_int_mm", "_scaled_mm"});
  add(t, kContraction, product<1>, {"addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addbmm_"});
  add(t, kContraction, outer, {"addr", "addr_"});
  add(t, kContraction, per_input<2>, {"mv", "dot", "vdot"});
  add(t, kContraction, per_input<2, 1>, {"addmv", "addmv_"});
  add(t, kContraction, linear, {"mkldnn_linear"});
  t["mkldnn::_linear_pointwise"] = {.group = kContraction, .flops = linear};
  add(t, kContraction, convolution, {"convolution", "_convolution", "convolution_overrideable"});
  add(t, kContraction, plain_convolution,
      {"cudnn_convolution", "mkldnn_convolution", "_slow_conv2d_forward", "slow_conv3d_forward",
       "_conv_depthwise2d"});
  add(t, kContraction, convolution_backward<7, 10>, {"convolution_backward"});
  add(t, kContraction, convolution_backward<6, 9>, {"convolution_backward_overrideable"});
  add(t, kContraction, recurrent<1>, {"mkldnn_rnn_layer"});
  add(t, kContraction, recurrent<2>, {"mkldnn_rnn_layer_backward"});
  add(t, kContraction, recurrent_layers<1>, {"_cudnn_rnn"});
  add(t, kContraction, recurrent_layers<2>, {"_cudnn_rnn_backward"});
  add(t, kContraction, attention<1, 1, 0>,
      {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
       "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
       "_scaled_dot_product_fused_attention_overrideable"});
  // The scores again, and the gradients of the probabilities, v, q and k.
  add(t, kContraction, attention<3, 2, 1>,
      {"_scaled_dot_product_flash_attention_for_cpu_backward",
       "_scaled_dot_product_flash_attention_backward",
       "_scaled_dot_product_efficient_attention_backward",
       "_scaled_dot_product_cudnn_attention_backward",
       "_scaled_dot_product_fused_attention_overrideable_backward"});
  // Per score: scale, mask, softmax, dropout.
  t["hasten::attention"] = {.group = kContraction, .flops = attention_by_rows<2, 7, 0, 4>};
  // The probabilities are computed again, too.
  t["hasten::attention_backward"] = {.group = kContraction, .flops = attention_by_rows<5, 9, 1, 7>};
}

void normalizations(OpTable& t) {
  // Maximum, difference, exponential, sum, quotient.
  add(t, kNormalization, per_input<5>, {"_softmax", "_log_softmax", "_safe_softmax"});
  add(t, kNormalization, per_input<4>, {"_softmax_backward_data", "_log_softmax_backward_data"});
  add(t, kNormalization, norm<2, 3>, {"native_layer_norm"});
  add(t, kNormalization, norm<1, 2>, {"native_group_norm"});
  add(t, kNormalization, batch_norm<5>,
      {"native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"});
  add(t, kNormalization, batch_norm<3>, {"_native_batch_norm_legit.no_stats"});
  add(t, kNormalization, batch_norm<-1>, {"_batch_norm_with_update"});
  t["aten::_native_batch_norm_legit_no_training"] = {
      .group = kNormalization, .flops = [](const CallShapes& c) -> Amount {
        return (2 + has(c, 1) + has(c, 2)) * numel(c, 0);
      }};
  add(t, kNormalization, norm_backward<7, 5>, {"native_layer_norm_backward"});
  add(t, kNormalization, norm_backward<9, 4>, {"native_group_norm_backward"});
  add(t, kNormalization, batch_norm_backward,
      {"native_batch_norm_backward", "batch_norm_backward"});
  add(t, kNormalization, whole_norm_backward, {"cudnn_batch_norm_backward"});
  add(t, kNormalization, per_input<1>,
      {"sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "cumsum", "all",
       "any", "count_nonzero"});
  add(t, kNormalization, per_input<4>, {"logsumexp"});  // maximum, difference, exponential, sum
  add(t, kNormalization, pool<2>, {"max_pool2d_with_indices", "max_pool2d", "avg_pool2d"});
  add(t, kNormalization, pool<3>, {"max_pool3d_with_indices", "avg_pool3d"});
  add(t, kNormalization, mean_pool_backward<2>, {"avg_pool2d_backward"});
  add(t, kNormalization, mean_pool_backward<3>, {"avg_pool3d_backward"});
  add(t, kNormalization, per_input<1>,
      {"max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"});
  add(t, kNormalization, adaptive_pool<2>, {"_adaptive_avg_pool2d"});
  add(t, kNormalization, adaptive_pool<3>, {"_adaptive_avg_pool3d"});
  add(t, kNormalization, adaptive_pool_backward<2>, {"_adaptive_avg_pool2d_backward"});
  add(t, kNormalization, adaptive_pool_backward<3>, {"_adaptive_avg_pool3d_backward"});
  for (const char* name : {"nll_loss_forward", "nll_loss2d_forward"}) {
    t[std::string("aten::") + name] = {
        .group = kNormalization, .flops = nll_loss, .reads = nll_loss_reads};
  }
  for (const char* name : {"nll_loss_backward", "nll_loss2d_backward"}) {
    t[std::string("aten::") + name] = {
        .group = kNormalization, .flops = nll_loss_backward, .reads = nll_loss_backward_reads};
  }
  add(t, kNormalization, mse_loss, {"mse_loss"});
  add(t, kNormalization, binary_cross_entropy, {"binary_cross_entropy"});
  add(t, kNormalization, per_input<2>, {"norm", "linalg_vector_norm"});
  add(t, kNormalization, per_listed<2>, {"_foreach_norm"});
  add(t, kNormalization, per_input<4>, {"var", "std", "var_mean", "std_mean"});
  const auto add_own = [&](const char* name, Formula flops) {
    t[std::string("hasten::") + name] = {.group = kNormalization, .flops = flops};
  };
  add_own("dropout_add_norm", per_input<11>);           // bias, dropout, residual, norm
  add_own("dropout_add_norm_backward", per_input<15>);  // norm 13, dropout, bias
  add_own("column_sum", per_input<1>);
  add_own("sum_of_squares", per_listed<2>);
}

void element_wise(OpTable& t) {
  add(t, kElementWise, sum_with_factor<2>, {"add", "add_", "sub", "sub_", "rsub"});
  add(t, kElementWise, per_output<1>,
      {"max.other",
       "min.other",
       "mul",
       "mul_",
       "div",
       "div_",
       "neg",
       "neg_",
       "abs",
       "exp",
       "exp_",
       "log",
       "sqrt",
       "sqrt_",
       "rsqrt",
       "reciprocal",
       "pow",
       "square",
       "relu",
       "relu_",
       "tanh",
       "tanh_",
       "sigmoid",
       "sigmoid_",
       "sin",
       "cos",
       "erf",
       "clamp",
       "clamp_",
       "clamp_min",
       "clamp_max",
       "maximum",
       "minimum",
       "eq",
       "ne",
       "lt",
       "le",
       "gt",
       "ge",
       "logical_not",
       "logical_and",
       "logical_or",
       "bitwise_not",
       "bitwise_and",
       "isfinite",
       "isnan",
       "isinf",
       "floor",
       "ceil",
       "round",
       "sign",
       "remainder",
       "threshold",
       "threshold_backward",
       "hardtanh",
       "leaky_relu",
       "where.self",
       "where.ScalarOther",
       "where.ScalarSelf",
       "where.Scalar",
       "where.self_out",
       "masked_fill",
       "masked_fill_",
       "bernoulli",
       "isneginf",
       "native_dropout",
       "native_dropout_backward"});
  add(t, kElementWise, per_output<2>, {"mse_loss_backward", "masked_scale"});
  add(t, kElementWise, per_output<3>, {"lerp", "lerp_", "tanh_backward", "sigmoid_backward"});
  add(t, kElementWise, sum_with_product, {"addcmul", "addcmul_", "addcdiv", "addcdiv_"});
  add(t, kElementWise, per_output<5>, {"silu", "silu_", "softplus", "elu", "hardswish", "mish"});
  add(t, kElementWise, per_output<8>,
      {"gelu", "silu_backward", "softplus_backward", "elu_backward", "hardswish_backward"});
  add(t, kElementWise, per_output<14>, {"gelu_backward"});
  // Sums at places that an index selects.
  add(t, kElementWise, per_input<1>, {"embedding_dense_backward"});
  add(t, kElementWise, index_add<3, 4>, {"index_add"});
  add(t, kElementWise, per_input<1, 3>, {"scatter_add"});
  t["aten::index_add_"] = {.group = kElementWise,
                           .flops = index_add<3, 4>,
                           .reads = accumulated_reads<2, 3>,
                           .writes = selected_writes<3>};
  t["aten::scatter_add_"] = {.group = kElementWise,
                             .flops = per_input<1, 3>,
                             .reads = accumulated_reads<2, 3>,
                             .writes = selected_writes<3>};
  t["aten::_index_put_impl_"] = {.group = kElementWise,
                                 .flops = index_put,
                                 .reads = index_put_reads,
                                 .writes = index_put_writes};
  t["aten::_fused_adamw_"] = {
      .group = kElementWise, .flops = fused_adamw, .writes = fused_writes<5, 13>};
  t["aten::_fused_adam_"] = {
      .group = kElementWise, .flops = fused_adam, .writes = fused_writes<5, 13>};
  t["aten::_fused_sgd_"] = {
      .group = kElementWise, .flops = fused_sgd, .writes = fused_writes<3, 10>};
  add(t, kElementWise, sum_of_listed<2>,
      {"_foreach_add", "_foreach_add_", "_foreach_sub", "_foreach_sub_"});
  add(t, kElementWise, per_listed<1>,
      {"_foreach_mul", "_foreach_mul_", "_foreach_div", "_foreach_div_", "_foreach_neg",
       "_foreach_sqrt", "_foreach_sqrt_", "_foreach_clamp_max_"});
  add(t, kElementWise, sum_with_product_listed, {"_foreach_addcmul_", "_foreach_addcdiv_"});
  add(t, kElementWise, per_listed<3>, {"_foreach_lerp", "_foreach_lerp_"});
  // These move data and compute nothing.
  add(t, kElementWise, nullptr,
      {"cat",
       "stack",
       "masked_select",
       "scatter",
       "flip",
       "roll",
       "repeat",
       "triu",
       "tril",
       "randperm",
       "arange",
       "constant_pad_nd",
       "nonzero",
       "sort",
       "topk",
       "_unique2",
       "slice_backward",
       "select_backward",
       "one_hot",
       "embedding_renorm_",
       "tril_indices",
       "triu_indices",
       "linspace",
       "_to_dense",
       "eye",
       "_pad_circular",
       "pixel_shuffle",
       "pixel_unshuffle",
       "channel_shuffle"});
  // These do not read what they overwrite.
  for (const char* name : {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_"})
    t[std::string("aten::") + name] = {.group = kElementWise, .overwrites = true};
  t["aten::bernoulli_"] = {.group = kElementWise, .flops = per_output<1>, .overwrites = true};
  // Only what the index selects is read or written.
  const Formula index_and_source = [](const CallShapes& c) -> Amount {
    return bytes(c, 2) + bytes(c, 3);
  };
  t["aten::scatter_"] = {
      .group = kElementWise, .reads = index_and_source, .writes = selected_writes<2>};
  t["aten::index_fill_"] = {
      .group = kElementWise, .reads = index_and_source, .writes = index_fill_writes};
  t["aten::index_copy_"] = {
      .group = kElementWise, .reads = index_and_source, .writes = selected_writes<3>};
  for (const char* name : {"embedding", "index"})
    t[std::string("aten::") + name] = {.group = kElementWise, .reads = lookup_reads<1>};
  for (const char* name : {"index_select", "gather"})
    t[std::string("aten::") + name] = {.group = kElementWise, .reads = lookup_reads<2>};
  t["aten::_coalesce"] = {.group = kElementWise, .flops = coalesce, .takes_sparse = true};
  const auto add_own = [&](const char* name, Formula flops) {
    t[std::string("hasten::") + name] = {.group = kElementWise, .flops = flops};
  };
  add_own("bias_gelu", per_input<9>);
  add_own("bias_gelu_backward", per_input<16>);
  add_own("dropout", per_input<1>);
  add_own("embedding_scatter", per_input<1>);
  add_own("embedding_gather", per_input<1>);
  add_own("adamw", per_listed<14>);
  // word, position, type, ids, position_ids, type_ids, out: three rows are read for each row of
  // out.
  t["hasten::embedding_sum"] = {
      .group = kElementWise, .flops = per_input<2, 6>, .reads = [](const CallShapes& c) -> Amount {
        double all = bytes(c, 3) + bytes(c, 4) + bytes(c, 5);
        for (const std::size_t table : {0, 1, 2}) all += std::min(bytes(c, table), bytes(c, 6));
        return all;
      }};
  // parameter, rows, values, moments: counts only rows with a gradient. A tensor holds which rows
  // had one before, so the decay of their moments is not in this figure.
  t["hasten::adamw_rows"] = {
      .group = kElementWise,
      .flops = per_input<14, 2>,
      .reads = [](const CallShapes& c) -> Amount { return bytes(c, 1) + 4 * bytes(c, 2); },
      .writes = [](const CallShapes& c) -> Amount { return 3 * bytes(c, 2); }};
}

// Shapes, allocations and single numbers: no arithmetic or traffic that counts.
void uncounted(OpTable& t) {
  add(t, kNone, nullptr,
      {"empty",
       "empty_like",
       "empty_strided",
       "new_empty",
       "new_empty_strided",
       "resize_",
       "resize_as_",
       "set_",
       "detach",
       "detach_",
       "_local_scalar_dense",
       "item",
       "is_nonzero",
       "result_type",
       "size",
       "stride",
       "lift_fresh",
       "requires_grad_",
       "_has_compatible_shallow_copy_type",
       "set_data",
       "_unsafe_view",
       "unsafe_chunk",
       "unsafe_split",
       "unsafe_split_with_sizes",
       "squeeze_",
       "unsqueeze_",
       "transpose_",
       "t_",
       "as_strided_",
       "scalar_tensor",
       "_sparse_coo_tensor_with_dims_and_tensors",
       "_sparse_coo_tensor_unsafe",
       "_coalesced_",
       "equal",
       "_fused_sdp_choice",
       "cudnn_is_acceptable",
       "record_stream",
       "is_pinned",
       "_indices",
       "_values",
       "indices",
       "values",
       "_nnz",
       "sparse_dim",
       "dense_dim",
       "is_coalesced",
       "_assert_async",
       "_version",
       "retain_grad",
       "output_nr",
       "is_same_size"});
}

const OpTable& op_table() {
  static const OpTable whole = [] {
    OpTable t;
    contractions(t);
    normalizations(t);
    element_wise(t);
    uncounted(t);
    return t;
  }();
  return whole;
}

}  // namespace

std::size_t CallShapes::count(std::size_t argument) const {
  return argument + 1 < first.size() ? first[argument + 1] - first[argument] : 0;
}

const TensorShape& CallShapes::input(std::size_t argument) const {
  static const TensorShape missing;
  return count(argument) > 0 ? inputs[first[argument]] : missing;
}

const OpRule* find_rule(std::string_view name, std::string_view overload) {
  if (!overload.empty()) {
    const auto own = op_table().find(std::string(name) + "." + std::string(overload));
    if (own != op_table().end()) return &own->second;
  }
  const auto found = op_table().find(name);
  return found == op_table().end() ? nullptr : &found->second;
}

const OpRule* find_rule_with_linear_kernel(std::string_view name, std::string_view overload) {
  static const OpTable own = {
      {"aten::linear", {.group = kContraction, .flops = linear}},
      {"aten::linear_backward", {.group = kContraction, .flops = linear_backward}}};
  const auto found = own.find(name);
  return found == own.end() ? find_rule(name, overload) : &found->second;
}

std::optional<double> flops_of(const OpRule& rule, const CallShapes& call) {
  if (rule.flops == nullptr) return 0;
  const auto complex = [](const TensorShape& shape) { return at::isComplexType(shape.type); };
  const bool any = std::any_of(call.inputs.begin(), call.inputs.end(), complex) ||
                   std::any_of(call.outputs.begin(), call.outputs.end(), complex);
  if (!any) return rule.flops(call);
  const bool all = std::all_of(call.inputs.begin(), call.inputs.end(), complex);
  if (rule.group != kContraction || !all) return {};
  const std::optional<double> real = rule.flops(call);
  return real ? std::optional(4 * *real) : std::nullopt;
}

std::vector<std::pair<std::string, OpRule>> all_rules() {
  return {op_table().begin(), op_table().end()};
}

}  // namespace hasten::anatomy
