// File: anatomy/op_formulas.h (internal)
// The formulas of op_rules.cpp. They compute the operations of a call, or the bytes that it reads
// or writes, from its shapes and options.
//
//   table["aten::mm"] = {.group = kContraction, .flops = formulas::product<0>};
//
// The numbers in angle brackets are positions of arguments in the operator's schema, or factors.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "anatomy/op_rules.h"

namespace hasten::anatomy::formulas {

using Amount = std::optional<double>;

inline double numel(const CallShapes& c, std::size_t argument) {
  return static_cast<double>(c.input(argument).numel);
}
inline double bytes(const CallShapes& c, std::size_t argument) {
  double all = 0;
  for (std::size_t i = 0; i < c.count(argument); ++i)
    all += static_cast<double>(c.inputs[c.first[argument] + i].bytes);
  return all;
}
inline double output_numel(const CallShapes& c) {
  return c.outputs.empty() ? 0 : static_cast<double>(c.outputs[0].numel);
}
inline double result_bytes(const CallShapes& c) {
  return c.outputs.empty() ? 0 : static_cast<double>(c.outputs[0].bytes);
}
inline double size(const TensorShape& shape, std::size_t dimension) {
  return dimension < shape.sizes.size() ? static_cast<double>(shape.sizes[dimension]) : 1;
}
inline double size(const CallShapes& c, std::size_t argument, std::size_t dimension) {
  return size(c.input(argument), dimension);
}
inline double last(const CallShapes& c, std::size_t argument) {
  const auto& sizes = c.input(argument).sizes;
  return sizes.empty() ? 1 : static_cast<double>(sizes.back());
}
// Returns the product of all sizes except the first. It does not divide, because sizes may be 0.
inline double size_after_first(const TensorShape& shape) {
  double product = 1;
  for (std::size_t i = 1; i < shape.sizes.size(); ++i) product *= size(shape, i);
  return product;
}
// Returns the product of all sizes except the last.
inline double size_before_last(const TensorShape& shape) {
  double product = 1;
  for (std::size_t i = 0; i + 1 < shape.sizes.size(); ++i) product *= size(shape, i);
  return product;
}

// Returns an option of the call. A missing option has the value that gives the smallest count.
inline const c10::IValue& value(const CallShapes& c, std::size_t argument) {
  static const c10::IValue none;
  return argument < c.values.size() ? c.values[argument] : none;
}
inline bool flag(const CallShapes& c, std::size_t argument) {
  const c10::IValue& given = value(c, argument);
  return given.isBool() && given.toBool();
}
inline bool flag(const CallShapes& c, std::size_t argument, std::size_t index) {
  const c10::IValue& given = value(c, argument);
  return given.isBoolList() && index < given.toBoolList().size() && given.toBoolList()[index];
}
// True if the call multiplies by this argument: a scalar other than 1, a list or a tensor.
inline bool is_factor(const CallShapes& c, std::size_t argument) {
  const c10::IValue& given = value(c, argument);
  if (given.isScalar()) return !given.toScalar().equal(1);
  return given.isList() || c.count(argument) > 0;
}
inline bool is_not_zero(const CallShapes& c, std::size_t argument) {
  const c10::IValue& given = value(c, argument);
  return given.isScalar() && !given.toScalar().equal(0);
}
inline bool has(const CallShapes& c, std::size_t argument) { return c.input(argument).numel > 0; }

// N operations per element of the result.
template <int N>
Amount per_output(const CallShapes& c) {
  return N * output_numel(c);
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
inline Amount outer(const CallShapes& c) { return 2 * numel(c, 1) * numel(c, 2); }
// x [..., in] times weight [out, in].
inline Amount linear(const CallShapes& c) { return 2 * numel(c, 0) * size(c, 1, 0); }
// x, dy, weight: the gradient of x and the gradient of weight each cost as much as the product.
inline Amount linear_backward(const CallShapes& c) {
  return (flag(c, 3, 0) + flag(c, 3, 1)) * 2 * numel(c, 0) * size(c, 2, 0);
}

// Every number of the smaller side is multiplied by all weights of its channel. The smaller side is
// the result (weight [out, in / groups, ...]), or the input of a transposed convolution (weight
// [in, out / groups, ...]). Padding counts like numbers of the input.
inline double convolution_flops(const TensorShape& smaller_side, const TensorShape& weight) {
  return 2 * static_cast<double>(smaller_side.numel) * size_after_first(weight);
}
inline Amount convolution(const CallShapes& c) {
  if (c.outputs.empty()) return {};
  return convolution_flops(flag(c, 6) ? c.input(0) : c.outputs[0], c.input(1));
}
// Does what convolution() does, for the backends' own operators, which are never transposed.
inline Amount plain_convolution(const CallShapes& c) {
  return c.outputs.empty() ? Amount() : convolution_flops(c.outputs[0], c.input(1));
}
// dy, x, weight: the gradient of the input and the gradient of the weight each cost as much as the
// forward pass.
template <int Transposed, int Mask>
Amount convolution_backward(const CallShapes& c) {
  return (flag(c, Mask, 0) + flag(c, Mask, 1)) *
         convolution_flops(c.input(flag(c, Transposed) ? 1 : 0), c.input(2));
}

// The arguments from Q on are q [batch, heads, L, d], k [batch, key heads, S, d], v [batch, key
// heads, S, e]. Each head of q takes `Keys` products of 2 L S d operations and `Values` products of
// 2 L S e. Scores that a causal mask excludes count too, as in PyTorch's counter.
template <int Keys, int Values, int Q>
Amount attention(const CallShapes& c) {
  if (c.input(Q).sizes.size() != 4 || c.input(Q + 1).sizes.size() != 4) return {};
  return 2 * size_before_last(c.input(Q)) * size(c, Q + 1, 2) *
         (Keys * last(c, Q) + Values * last(c, Q + 2));
}

// Attention of packed rows. The arguments from Q on are q [..., heads, d], k and v [..., key heads,
// e], and argument `Longest` is the most keys of a row. The lengths of the rows are in a tensor of
// the device, so each token counts as many keys as the longest row has: the exact number if all
// rows have one length, and otherwise more than are computed.
template <int Keys, int Values, int Q, int Longest>
Amount packed_attention(const CallShapes& c) {
  const c10::IValue& longest = value(c, Longest);
  if (c.input(Q).sizes.size() < 3 || !longest.isInt()) return {};
  return 2 * size_before_last(c.input(Q)) * static_cast<double>(longest.toInt()) *
         (Keys * last(c, Q) + Values * last(c, Q + 2));
}

// hasten's attention on the CPU. The arguments from `Lengths` on are the length of each row, its
// number of keys up to the last one used, and the number of heads. Each head takes `Products`
// products of 2 L keys d operations, and N operations per score.
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

// Each step multiplies x [length, batch, in] or [batch, length, in] by both weight matrices. The
// backward pass (N = 2) computes two products for each of them; its arguments follow x in the same
// order.
template <int N>
Amount recurrent(const CallShapes& c) {
  return N * 2 * size_before_last(c.input(0)) * (numel(c, 1) + numel(c, 2));
}
// Counts what recurrent() counts, for all layers and directions. The list after x has their weights
// and biases. Only the matrices in it count.
template <int N>
Amount recurrent_layers(const CallShapes& c) {
  double weights = 0;
  for (std::size_t i = 0; i < c.count(1); ++i) {
    const TensorShape& weight = c.inputs[c.first[1] + i];
    if (weight.sizes.size() == 2) weights += static_cast<double>(weight.numel);
  }
  return N * 2 * size_before_last(c.input(0)) * weights;
}

// Returns the number of elements in a list of tensors.
inline double list_numel(const CallShapes& c, std::size_t argument = 0) {
  double elements = 0;
  for (std::size_t i = 0; i < c.count(argument); ++i)
    elements += static_cast<double>(c.inputs[c.first[argument] + i].numel);
  return elements;
}
template <int N>
Amount per_list_element(const CallShapes& c) {
  return N * list_numel(c);
}

// Per element: mean (1), variance (3), difference times reciprocal deviation (2).
template <int Weight, int Bias>
Amount norm(const CallShapes& c) {
  return (6 + has(c, Weight) + has(c, Bias)) * numel(c, 0);
}
// With running statistics no mean or variance is computed. `Training` is the position of the flag;
// if it is negative, both are always computed.
template <int Training>
Amount batch_norm(const CallShapes& c) {
  const bool computes_statistics = Training < 0 || flag(c, static_cast<std::size_t>(Training));
  return (2 + 4 * computes_statistics + has(c, 1) + has(c, 2)) * numel(c, 0);
}
// Per element: the normalized number again (2), times dy and summed for the weight (2), dy summed
// for the bias (1). The input's gradient takes dy times the weight (1), two sums (3) and their
// subtraction from dy (4). Without statistics of the batch, it takes only dy times the weight and
// the reciprocal deviation.
inline double norm_gradient(const CallShapes& c, bool input, bool weight, bool bias,
                            bool has_weight, bool of_statistics = true) {
  const double for_input = input ? has_weight + (of_statistics ? 7 : 1) : 0;
  const bool normalizes = weight || (input && of_statistics);
  return (2 * normalizes + 2 * weight + bias + for_input) * numel(c, 0);
}
template <int Mask, int Weight>
Amount norm_backward(const CallShapes& c) {
  return norm_gradient(c, flag(c, Mask, 0), flag(c, Mask, 1), flag(c, Mask, 2), has(c, Weight));
}
inline Amount batch_norm_backward(const CallShapes& c) {
  return norm_gradient(c, flag(c, 9, 0), flag(c, 9, 1), flag(c, 9, 2), has(c, 2), flag(c, 7));
}
inline Amount full_norm_backward(const CallShapes& c) {
  return norm_gradient(c, true, true, true, true);
}

// Returns the size of a pooling window. A list with one number applies to all dimensions.
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
  return output_numel(c) * window<Dimensions>(c, 1);
}
template <int Dimensions>
Amount mean_pool_backward(const CallShapes& c) {
  return numel(c, 0) * window<Dimensions>(c, 2);
}
// Returns the total size of all windows. PyTorch's window i goes from floor(i * in / out) to
// ceil((i + 1) * in / out).
inline double adaptive_windows(const TensorShape& in, const TensorShape& out,
                               std::size_t dimensions) {
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

// Per target: the sign, the weight twice (for the loss and for the sum of weights), and the sum if
// the losses are reduced.
inline Amount nll_loss(const CallShapes& c) {
  return numel(c, 1) * (1 + 2 * has(c, 2) + is_not_zero(c, 3));
}
inline Amount nll_loss_backward(const CallShapes& c) { return numel(c, 2) * (1 + has(c, 3)); }
// Counts the targets, the weights, and only those input numbers that the targets select.
inline Amount nll_loss_reads(const CallShapes& c) {
  const double of_number = static_cast<double>(at::elementSize(c.input(0).type));
  return numel(c, 1) * of_number + bytes(c, 1) + bytes(c, 2);
}
inline Amount nll_loss_backward_reads(const CallShapes& c) {
  return bytes(c, 0) + bytes(c, 2) + bytes(c, 3) + bytes(c, 6);
}
inline double broadcast(const CallShapes& c) { return std::max(numel(c, 0), numel(c, 1)); }
// The difference, the square, and the sum if the losses are reduced.
inline Amount mse_loss(const CallShapes& c) { return broadcast(c) * (2 + is_not_zero(c, 2)); }
// -(t log x + (1 - t) log(1 - x))
inline Amount binary_cross_entropy(const CallShapes& c) {
  return numel(c, 0) * (8 + has(c, 2) + is_not_zero(c, 3));
}

// A sum, and one more operation if the second operand has a factor.
template <int Alpha>
Amount sum_with_factor(const CallShapes& c) {
  return (1 + is_factor(c, Alpha)) * output_numel(c);
}
template <int Alpha>
Amount sum_of_lists(const CallShapes& c) {
  return (1 + is_factor(c, Alpha)) * list_numel(c);
}
// self + value * a * b, or self + value * a / b.
inline Amount sum_with_product(const CallShapes& c) {
  return (2 + is_factor(c, 3)) * output_numel(c);
}
inline Amount sum_with_product_of_lists(const CallShapes& c) {
  return (2 + is_factor(c, 3)) * list_numel(c);
}

// A lookup reads the index and a part of the table that is as large as the result.
template <int Index>
Amount lookup_reads(const CallShapes& c) {
  return std::min(bytes(c, 0), result_bytes(c)) + bytes(c, Index);
}
// Returns the bytes that an index selects. An in-place operator writes only these bytes, and reads
// them only if it adds to them.
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
// Adds the source at an index. Only index_put may expand the source to the size of the selection.
template <int Source, int Alpha>
Amount index_add(const CallShapes& c) {
  return (1 + is_factor(c, Alpha)) * numel(c, Source);
}
// self, indices, values, accumulate: returns how many numbers the indices select. Shapes do not
// show how many numbers a mask selects. Other indices are broadcast and select rows of the
// dimensions after them.
inline Amount index_put_selection(const CallShapes& c) {
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
inline Amount index_put(const CallShapes& c) { return flag(c, 3) ? index_put_selection(c) : 0; }
inline Amount index_put_writes(const CallShapes& c) {
  const Amount selected = index_put_selection(c);
  return selected ? Amount(*selected * static_cast<double>(at::elementSize(c.input(0).type)))
                  : selected;
}
inline Amount index_put_reads(const CallShapes& c) {
  const Amount written_bytes = index_put_writes(c);
  return written_bytes ? Amount((flag(c, 3) ? *written_bytes : 0) + bytes(c, 1) + bytes(c, 2))
                       : written_bytes;
}
// self, dim, index: counts the slices that are written.
inline Amount index_fill_writes(const CallShapes& c) {
  const auto& sizes = c.input(0).sizes;
  if (!value(c, 1).isInt() || sizes.empty()) return {};
  std::int64_t dimension = value(c, 1).toInt();
  if (dimension < 0) dimension += static_cast<std::int64_t>(sizes.size());
  double selected = numel(c, 2);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    selected *= static_cast<std::int64_t>(d) == dimension ? 1 : size(c, 0, d);
  return selected * static_cast<double>(at::elementSize(c.input(0).type));
}

// One addition for each number that is merged into another number at the same position.
inline Amount coalesce(const CallShapes& c) {
  return c.outputs.empty() ? Amount() : numel(c, 0) - static_cast<double>(c.outputs[0].numel);
}

// Per element: decay (1, or 2 if it is added to the gradient), moments (3 and 4), denominator (3),
// update (3).
inline Amount fused_adamw(const CallShapes& c) {
  return (14 + flag(c, 11) + flag(c, 12)) * list_numel(c);
}
inline Amount fused_adam(const CallShapes& c) {
  return (13 + 2 * is_not_zero(c, 9) + flag(c, 11) + flag(c, 12)) * list_numel(c);
}
// self, grads, momentum: decay and momentum count only if they are used.
inline Amount fused_sgd(const CallShapes& c) {
  const bool momentum = is_not_zero(c, 4) && !flag(c, 9);
  return (2 + 2 * is_not_zero(c, 3) + 3 * momentum + 2 * flag(c, 7) + flag(c, 8)) * list_numel(c);
}
// All lists except the gradients, which are written only to divide them by a scale.
template <int Lists, int Scale>
Amount fused_writes(const CallShapes& c) {
  double all = bytes(c, 0) + (c.count(Scale) > 0 ? bytes(c, 1) : 0);
  for (std::size_t i = 2; i < Lists; ++i) all += bytes(c, i);
  return all;
}

}  // namespace hasten::anatomy::formulas
