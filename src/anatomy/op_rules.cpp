#include "anatomy/op_rules.h"

#include <algorithm>
#include <map>

#include "anatomy/op_formulas.h"

namespace hasten::anatomy {
namespace {

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
  using namespace formulas;
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
  // The scores are computed again, and then the gradients of the probabilities, v, q and k.
  add(t, kContraction, attention<3, 2, 1>,
      {"_scaled_dot_product_flash_attention_for_cpu_backward",
       "_scaled_dot_product_flash_attention_backward",
       "_scaled_dot_product_efficient_attention_backward",
       "_scaled_dot_product_cudnn_attention_backward",
       "_scaled_dot_product_fused_attention_overrideable_backward"});
  add(t, kContraction, packed_attention<1, 1, 0, 6>, {"_flash_attention_forward"});
  add(t, kContraction, packed_attention<3, 2, 1, 9>, {"_flash_attention_backward"});
  add(t, kContraction, packed_attention<1, 1, 0, 7>, {"_efficient_attention_forward"});
  add(t, kContraction, packed_attention<3, 2, 1, 9>, {"_efficient_attention_backward"});
  // Per score: scale, mask, softmax, dropout.
  t["hasten::attention"] = {.group = kContraction, .flops = attention_by_rows<2, 7, 0, 4>};
  // The probabilities are also computed again.
  t["hasten::attention_backward"] = {.group = kContraction, .flops = attention_by_rows<5, 9, 1, 7>};
}

void normalizations(OpTable& t) {
  using namespace formulas;
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
  add(t, kNormalization, full_norm_backward, {"cudnn_batch_norm_backward"});
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
  add(t, kNormalization, per_list_element<2>, {"_foreach_norm"});
  add(t, kNormalization, per_input<4>, {"var", "std", "var_mean", "std_mean"});
  const auto add_own = [&](const char* name, Formula flops) {
    t[std::string("hasten::") + name] = {.group = kNormalization, .flops = flops};
  };
  add_own("rms_norm", per_input<4>);  // square, sum, scale, weight
  add_own("rms_norm_backward", per_input<10>);
  add_own("dropout_add_norm", per_input<11>);           // bias, dropout, residual, norm
  add_own("dropout_add_norm_backward", per_input<15>);  // norm 13, dropout, bias
  // The bias is optional. Without a mean (and beta) the norm works like rms_norm.
  add_own("dropout_add_pre_norm", [](const CallShapes& c) -> Amount {
    return (2 + has(c, 1) + (has(c, 4) ? 8 : 4)) * numel(c, 0);
  });
  // The sum of the two gradients of z, dropout and bias, and the norm, which has one or two
  // moments.
  add_own("dropout_add_pre_norm_backward", [](const CallShapes& c) -> Amount {
    const auto& moments = c.input(3).sizes;
    return (2 + has(c, 1) + (!moments.empty() && moments[0] == 2 ? 13 : 10)) * numel(c, 0);
  });
  // Forward: scale, mask, softmax and dropout. Backward: the probabilities again, and the gradients
  // of dropout and softmax.
  add_own("softmax_dropout",
          [](const CallShapes& c) -> Amount { return (7 + has(c, 1)) * numel(c, 0); });
  add_own("softmax_dropout_backward",
          [](const CallShapes& c) -> Amount { return (9 + has(c, 2)) * numel(c, 1); });
  add_own("column_sum", per_input<1>);
  // Maximum, difference, exponential, sum; the gradient takes difference and exponential once more.
  add_own("cross_entropy",
          [](const CallShapes& c) -> Amount { return (4 + 2 * flag(c, 6)) * numel(c, 0); });
  add_own("sum_of_squares", per_list_element<2>);
}

void element_wise(OpTable& t) {
  using namespace formulas;
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
  // Sums at positions that an index selects.
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
  add(t, kElementWise, sum_of_lists<2>,
      {"_foreach_add", "_foreach_add_", "_foreach_sub", "_foreach_sub_"});
  add(t, kElementWise, per_list_element<1>,
      {"_foreach_mul", "_foreach_mul_", "_foreach_div", "_foreach_div_", "_foreach_neg",
       "_foreach_sqrt", "_foreach_sqrt_", "_foreach_clamp_max_"});
  add(t, kElementWise, sum_with_product_of_lists, {"_foreach_addcmul_", "_foreach_addcdiv_"});
  add(t, kElementWise, per_list_element<3>, {"_foreach_lerp", "_foreach_lerp_"});
  add(t, kElementWise, per_list_element<1>, {"_amp_foreach_non_finite_check_and_unscale_"});
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
  // These operators do not read what they overwrite.
  for (const char* name : {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_"})
    t[std::string("aten::") + name] = {.group = kElementWise, .overwrites = true};
  t["aten::bernoulli_"] = {.group = kElementWise, .flops = per_output<1>, .overwrites = true};
  // Only the selected part is read or written.
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
  t["aten::_coalesce"] = {.group = kElementWise, .flops = coalesce, .supports_sparse = true};
  const auto add_own = [&](const char* name, Formula flops) {
    t[std::string("hasten::") + name] = {.group = kElementWise, .flops = flops};
  };
  add_own("bias_gelu", per_input<9>);
  add_own("bias_gelu_backward", per_input<16>);
  // Bias 1, share 8 and product 1; bias and share, slope 9, gradient 1 and sum 1.
  add_own("bias_tanh_gelu", per_input<10>);
  add_own("bias_tanh_gelu_backward", per_input<20>);
  add_own("silu_multiply", per_input<6>);
  add_own("silu_multiply_backward", per_input<13>);
  add_own("rotate", per_input<3>);
  add_own("dropout", per_input<1>);
  add_own("embedding_scatter", per_input<1>);
  add_own("embedding_gather", per_input<1>);
  add_own("adamw", per_list_element<14>);
  // Decoding is a product. Encoding is a comparison with the largest number, a quotient and one
  // comparison with the map.
  add_own("adamw_moments", per_list_element<14 + 2 * 4>);
  add_own("lion_moments", per_list_element<8 + 4>);
  // word, position, type, ids, position_ids, type_ids, out: each row of out reads three rows.
  t["hasten::embedding_sum"] = {.group = kElementWise,
                                .flops = [](const CallShapes& c) -> Amount {
                                  return static_cast<double>(c.count(1) + c.count(2)) * numel(c, 6);
                                },
                                .reads = [](const CallShapes& c) -> Amount {
                                  double all = bytes(c, 3) + bytes(c, 4) + bytes(c, 5);
                                  for (const std::size_t table : {0, 1, 2})
                                    all += std::min(bytes(c, table), bytes(c, 6));
                                  return all;
                                }};
  // gradient, order, ids, skipped, partial, table: reads at most as many rows of the table as the
  // gradient has.
  t["hasten::embedding_gradient"] = {.group = kElementWise,
                                     .flops = per_input<1>,
                                     .reads = [](const CallShapes& c) -> Amount {
                                       return bytes(c, 0) + bytes(c, 1) + bytes(c, 2) + bytes(c, 4);
                                     },
                                     .writes = [](const CallShapes& c) -> Amount {
                                       return bytes(c, 4) + std::min(bytes(c, 0), bytes(c, 5));
                                     }};
  // parameter, rows, values, moments: counts only rows with a gradient. The rows that had a
  // gradient before are known only from the values of a tensor, so this figure leaves out the decay
  // of their moments.
  t["hasten::adamw_rows"] = {
      .group = kElementWise,
      .flops = per_input<14, 2>,
      .reads = [](const CallShapes& c) -> Amount { return bytes(c, 1) + 4 * bytes(c, 2); },
      .writes = [](const CallShapes& c) -> Amount { return 3 * bytes(c, 2); }};
  // The whole table counts: its moments also decay in rows without a gradient.
  t["hasten::adamw_moments_rows"] = {.group = kElementWise, .flops = per_input<14 + 2 * 4, 0>};
  t["hasten::lion_moments_rows"] = {.group = kElementWise, .flops = per_input<8 + 4, 0>};
}

// Shapes, allocations and single numbers, without arithmetic or traffic that counts.
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
      {"aten::linear", {.group = kContraction, .flops = formulas::linear}},
      {"aten::linear_backward", {.group = kContraction, .flops = formulas::linear_backward}}};
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
