#include "anatomy/op_rules.h"

#include <map>

namespace hasten::anatomy {
namespace {

using Calls = const CallShapes&;

double numel(Calls c, std::size_t input) {
  return input < c.inputs.size() ? static_cast<double>(c.inputs[input].numel) : 0;
}
double written(Calls c) { return c.outputs.empty() ? 0 : static_cast<double>(c.outputs[0].numel); }
double last(Calls c, std::size_t input) {
  return input < c.inputs.size() && !c.inputs[input].sizes.empty()
             ? static_cast<double>(c.inputs[input].sizes.back())
             : 1;
}
double size(Calls c, std::size_t input, std::size_t dimension) {
  return input < c.inputs.size() && dimension < c.inputs[input].sizes.size()
             ? static_cast<double>(c.inputs[input].sizes[dimension])
             : 1;
}

// N operations an element of the result, or of input I.
template <int N>
double an_output(Calls c) {
  return N * written(c);
}
template <int N, int I = 0>
double an_input(Calls c) {
  return N * numel(c, I);
}

// a [..., m, k] times b [..., k, n]
template <int A>
double product(Calls c) {
  return 2 * numel(c, A) * last(c, A + 1);
}
// x [..., in] times weight [out, in]
double linear(Calls c) { return 2 * numel(c, 0) * size(c, 1, 0); }
// x, dy, weight: as many for x's and the weight's gradient.
double linear_backward(Calls c) {
  double gradients = 0;
  for (std::size_t i = 0; i < 2 && i < c.outputs.size(); ++i) gradients += c.outputs[i].numel > 0;
  return gradients * 2 * numel(c, 0) * size(c, 2, 0);
}
// Each output element is a sum over the weights of its channel.
double convolution(Calls c) { return 2 * written(c) * numel(c, 1) / size(c, 1, 0); }
// dy, x, weight: as many for the input's and the weight's gradient as the forward pass took.
double convolution_backward(Calls c) {
  double gradients = 0;
  for (std::size_t i = 0; i < 2 && i < c.outputs.size(); ++i) gradients += c.outputs[i].numel > 0;
  return gradients * 2 * numel(c, 0) * numel(c, 2) / size(c, 2, 0);
}
// q [batch, heads, L, d] and k [batch, heads, S, d]: N products of 2 L S d for each head.
template <int N, int Q>
double attention(Calls c) {
  return N * 2 * numel(c, Q) * size(c, Q + 1, 2);
}
// x [length, batch, in] or [batch, length, in] through both weight matrices at each step; the
// backward pass forms two products for each. Its operands follow x in the same order.
template <int N>
double recurrent(Calls c) {
  return N * 2 * numel(c, 0) / last(c, 0) * (numel(c, 1) + numel(c, 2));
}
// Operators of the dispatcher's namespace hasten write into arguments: input I is what counts.
// N operations an element of the first list of tensors.
template <int N>
double a_listed(Calls c) {
  double elements = 0;
  for (std::int64_t i = 0; i < c.first_list; ++i) elements += numel(c, static_cast<std::size_t>(i));
  return N * elements;
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
  add(t, kContraction, product<0>, {"mm", "bmm", "_int_mm"});
  add(t, kContraction, product<1>, {"addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm"});
  add(t, kContraction, an_input<2>, {"mv", "dot", "vdot"});
  add(t, kContraction, an_input<2, 1>, {"addmv", "addmv_"});
  add(t, kContraction, linear, {"mkldnn_linear"});
  t["mkldnn::_linear_pointwise"] = {.group = kContraction, .flops = linear};
  add(t, kContraction, convolution, {"convolution", "convolution_overrideable"});
  add(t, kContraction, convolution_backward,
      {"convolution_backward", "convolution_backward_overrideable"});
  add(t, kContraction, recurrent<1>, {"mkldnn_rnn_layer"});
  add(t, kContraction, recurrent<2>, {"mkldnn_rnn_layer_backward"});
  add(t, kContraction, attention<2, 0>,
      {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
       "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"});
  // The probabilities again, and four products of gradients.
  add(t, kContraction, attention<5, 1>,
      {"_scaled_dot_product_flash_attention_for_cpu_backward",
       "_scaled_dot_product_flash_attention_backward",
       "_scaled_dot_product_efficient_attention_backward",
       "_scaled_dot_product_cudnn_attention_backward"});
}

void normalizations(OpTable& t) {
  // maximum, difference, exponential, sum, quotient
  add(t, kNormalization, an_input<5>, {"_softmax", "_log_softmax", "_safe_softmax"});
  add(t, kNormalization, an_input<4>, {"_softmax_backward_data", "_log_softmax_backward_data"});
  add(t, kNormalization, an_input<8>,
      {"native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
       "cudnn_batch_norm", "_batch_norm_with_update"});
  add(t, kNormalization, an_input<14>,
      {"native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward",
       "batch_norm_backward", "cudnn_batch_norm_backward"});
  add(t, kNormalization, an_input<1>,
      {"sum",
       "mean",
       "amax",
       "amin",
       "max",
       "min",
       "argmax",
       "argmin",
       "prod",
       "cumsum",
       "all",
       "any",
       "logsumexp",
       "nll_loss_forward",
       "nll_loss2d_forward",
       "max_pool2d_with_indices",
       "max_pool2d",
       "_adaptive_avg_pool2d",
       "avg_pool2d",
       "count_nonzero"});
  add(t, kNormalization, an_input<2>,
      {"norm", "linalg_vector_norm", "mse_loss", "binary_cross_entropy"});
  add(t, kNormalization, a_listed<2>, {"_foreach_norm"});
  add(t, kNormalization, an_input<3>, {"var", "std", "var_mean"});
  add(t, kNormalization, an_output<1>,
      {"nll_loss_backward", "nll_loss2d_backward", "max_pool2d_with_indices_backward",
       "_adaptive_avg_pool2d_backward", "avg_pool2d_backward"});
  const auto ours = [&](const char* name, Formula flops) {
    t[std::string("hasten::") + name] = {.group = kNormalization, .flops = flops};
  };
  ours("softmax_dropout", an_input<7>);           // scale, mask, softmax, dropout
  ours("softmax_dropout_backward", an_input<9>);  // and the probabilities again
  ours("dropout_add_norm", an_input<11>);         // bias, dropout, residual, norm
  ours("dropout_add_norm_backward", an_input<16>);
  ours("column_sum", an_input<1>);
  ours("sum_of_squares", a_listed<2>);
}

void element_wise(OpTable& t) {
  add(t, kElementWise, an_output<1>,
      {"add",
       "add_",
       "sub",
       "sub_",
       "rsub",
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
       "where",
       "masked_fill",
       "masked_fill_",
       "triu",
       "tril",
       "bernoulli_",
       "bernoulli",
       "isneginf",
       "native_dropout",
       "native_dropout_backward"});
  add(t, kElementWise, an_output<2>,
      {"lerp", "lerp_", "addcmul", "addcmul_", "addcdiv", "addcdiv_", "tanh_backward",
       "sigmoid_backward", "mse_loss_backward", "masked_scale"});
  add(t, kElementWise, an_output<5>, {"silu", "silu_", "softplus", "elu", "hardswish", "mish"});
  add(t, kElementWise, an_output<8>,
      {"gelu", "silu_backward", "softplus_backward", "elu_backward", "hardswish_backward"});
  add(t, kElementWise, an_output<14>, {"gelu_backward"});
  add(t, kElementWise, an_output<1>,
      {"embedding_dense_backward", "index_add_", "index_add", "scatter_add", "scatter_add_",
       "_index_put_impl_"});
  add(t, kElementWise, a_listed<14>, {"_fused_adamw_", "_fused_adam_"});
  add(t, kElementWise, a_listed<4>, {"_fused_sgd_"});
  add(t, kElementWise, a_listed<1>,
      {"_foreach_add", "_foreach_add_", "_foreach_sub", "_foreach_sub_", "_foreach_mul",
       "_foreach_mul_", "_foreach_div", "_foreach_div_", "_foreach_neg", "_foreach_sqrt",
       "_foreach_sqrt_", "_foreach_clamp_max_"});
  add(t, kElementWise, a_listed<2>,
      {"_foreach_addcmul_", "_foreach_addcdiv_", "_foreach_lerp", "_foreach_lerp_"});
  // Moved, not computed.
  add(t, kElementWise, nullptr,
      {"copy_",
       "fill_",
       "zero_",
       "cat",
       "stack",
       "index",
       "masked_select",
       "gather",
       "scatter",
       "scatter_",
       "index_fill_",
       "flip",
       "roll",
       "repeat",
       "normal_",
       "uniform_",
       "random_",
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
       "index_copy_",
       "tril_indices",
       "triu_indices",
       "linspace",
       "_coalesce",
       "_to_dense",
       "eye",
       "_pad_circular"});
  for (const char* name : {"embedding", "index_select"}) {
    t[std::string("aten::") + name] = {.group = kElementWise, .reads_as_written = true};
  }
  const auto ours = [&](const char* name, Formula flops, bool lookup = false) {
    t[std::string("hasten::") + name] = {
        .group = kElementWise, .flops = flops, .reads_as_written = lookup};
  };
  ours("bias_gelu", an_input<9>);
  ours("bias_gelu_backward", an_input<16>);
  ours("dropout", an_input<1>);
  ours("embedding_scatter", an_input<1>);
  ours("embedding_gather", an_input<1>);
  ours("adamw", a_listed<14>);
  t["hasten::embedding_sum"] = {.group = kElementWise,
                                .flops = [](Calls c) { return 2 * numel(c, c.inputs.size() - 1); },
                                .reads_as_written = true};
  t["hasten::adamw_rows"] = {.group = kElementWise,
                             .flops = [](Calls c) { return 14 * numel(c, 2); },
                             .reads_as_written = true};
}

// Shapes, allocations and single numbers: neither arithmetic nor traffic that counts.
void nothing(OpTable& t) {
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
    nothing(t);
    return t;
  }();
  return whole;
}

}  // namespace

const OpRule* find_rule(std::string_view name) {
  const auto found = op_table().find(name);
  return found == op_table().end() ? nullptr : &found->second;
}

const OpRule* find_rule_on_tpu(std::string_view name) {
  static const OpTable own = {
      {"aten::linear", {.group = kContraction, .flops = linear}},
      {"aten::linear_backward", {.group = kContraction, .flops = linear_backward}}};
  const auto found = own.find(name);
  return found == own.end() ? find_rule(name) : &found->second;
}

std::vector<std::pair<std::string, OpRule>> all_rules() {
  return {op_table().begin(), op_table().end()};
}

}  // namespace hasten::anatomy
