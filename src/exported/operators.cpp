#include "exported/operators.h"

#include <algorithm>
#include <map>
#include <set>

#include "hasten/base/text.h"

namespace hasten::exported {
namespace {

constexpr std::string_view kOperatorPrefix = "torch.ops.";

// Public operators that open files, print, replace the memory of a tensor, trust shapes and numbers
// that a kernel does not check, or belong to autograd.
const std::set<std::string>& refused_operators() {
  static const std::set<std::string> names = {"from_file",
                                              "set_",
                                              "set_data",
                                              "set",
                                              "resize_",
                                              "resize",
                                              "resize_as_",
                                              "resize_as_sparse_",
                                              "as_strided_",
                                              "save",
                                              "data",
                                              "record_stream",
                                              "rename_",
                                              "to_mkldnn",
                                              "retain_grad",
                                              "requires_grad_",
                                              "backward",
                                              "storage_offset",
                                              "is_leaf",
                                              "output_nr",
                                              "unsafe_chunk",
                                              "unsafe_split",
                                              "unsafe_split_with_sizes",
                                              "native_batch_norm",
                                              "native_group_norm",
                                              "rrelu_with_noise",
                                              "rrelu_with_noise_",
                                              "rrelu_with_noise_functional",
                                              "segment_reduce",
                                              "linalg_lu_solve",
                                              "linalg_ldl_solve",
                                              "lu_solve",
                                              "convolution_overrideable",
                                              "nested_to_padded_tensor",
                                              "to_padded_tensor",
                                              "hspmm",
                                              "smm",
                                              "sspaddmm"};
  return names;
}

// The prefixes of the names of kernels that public operators select, or that take tensors in a form
// that training does not use. These kernels trust the operator that calls them.
constexpr std::string_view kRefusedPrefixes[] = {
    "mkldnn_", "cudnn_", "miopen_",   "fbgemm_",     "quantized_", "quantize_",
    "sparse_", "q_per_", "to_sparse", "batch_norm_", "slow_conv",  "thnn_"};

// Autograd computes derivatives, so no program for training calls them.
bool is_derivative(const std::string& base) {
  return base.find("_backward") != std::string::npos || ends_with(base, "_jvp");
}

bool is_refused(const std::string& base) {
  return refused_operators().contains(base) || is_derivative(base) ||
         std::any_of(std::begin(kRefusedPrefixes), std::end(kRefusedPrefixes),
                     [&](std::string_view beginning) { return starts_with(base, beginning); });
}

// Private operators that exports of training programs contain.
const std::set<std::string>& allowed_private_operators() {
  static const std::set<std::string> names = {"__and__",
                                              "__iand__",
                                              "__ior__",
                                              "__ixor__",
                                              "__lshift__",
                                              "__or__",
                                              "__rshift__",
                                              "__xor__",
                                              "_adaptive_avg_pool2d",
                                              "_adaptive_avg_pool3d",
                                              "_assert_async",
                                              "_assert_scalar",
                                              "_assert_tensor_metadata",
                                              "_cdist_forward",
                                              "_conj",
                                              "_convolution",
                                              "_euclidean_dist",
                                              "_log_softmax",
                                              "_neg_view",
                                              "_pack_padded_sequence",
                                              "_pad_packed_sequence",
                                              "_scaled_dot_product_attention_math",
                                              "_shape_as_tensor",
                                              "_softmax",
                                              "_to_copy",
                                              "_unique2",
                                              "_unsafe_index",
                                              "_unsafe_view",
                                              "_weight_norm"};
  return names;
}

const std::map<std::string, std::string>& training_arguments() {
  static const std::map<std::string, std::string> names = {
      {"dropout", "train"},
      {"dropout_", "train"},
      {"feature_dropout", "train"},
      {"feature_dropout_", "train"},
      {"alpha_dropout", "train"},
      {"alpha_dropout_", "train"},
      {"native_dropout", "train"},
      {"feature_alpha_dropout", "train"},
      {"feature_alpha_dropout_", "train"},
      {"batch_norm", "training"},
      {"instance_norm", "use_input_stats"},
      {"rrelu", "training"},
      {"rrelu_", "training"},
      {"lstm", "train"},
      {"gru", "train"},
      {"rnn_tanh", "train"},
      {"rnn_relu", "train"},
      {"scaled_dot_product_attention", "dropout_p"}};
  return names;
}

}  // namespace

std::optional<OperatorName> OperatorName::parse(const std::string& target) {
  if (!starts_with(target, kOperatorPrefix)) return std::nullopt;
  const std::vector<std::string> parts = split(target.substr(kOperatorPrefix.size()), '.');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  for (const std::string& part : parts)
    if (part.empty()) return std::nullopt;
  OperatorName name{parts[0], parts[1], parts.size() == 3 ? parts[2] : ""};
  if (name.overload == "default") name.overload.clear();
  return name;
}

std::optional<std::string> reason_for_refusal(const OperatorName& name,
                                              const std::vector<std::string>& namespaces) {
  if (name.space == "higher_order") return "this kind of control flow is not supported";
  const bool is_allowed =
      std::find(namespaces.begin(), namespaces.end(), name.space) != namespaces.end();
  if (name.space != "aten" && !is_allowed)
    return "its namespace " + name.space + " is not among the allowed ones";
  const auto op = find_operator(name);
  if (!op && is_allowed) return "no library that the program has loaded registers it";
  if (!op) return "this LibTorch does not have it";
  if (is_allowed) return std::nullopt;
  if (is_refused(name.base)) return "a file may not call it";
  if (starts_with(name.base, "_") && !allowed_private_operators().contains(name.base))
    return "it is private to LibTorch";
  for (const c10::Argument& argument : op->schema().arguments())
    if (argument.is_out()) return "it writes into given tensors";
  return std::nullopt;
}

std::optional<c10::OperatorHandle> find_operator(const OperatorName& name) {
  return c10::Dispatcher::singleton().findSchema({name.space + "::" + name.base, name.overload});
}

std::string training_argument(const std::string& base) {
  const auto found = training_arguments().find(base);
  return found == training_arguments().end() ? "" : found->second;
}

}  // namespace hasten::exported
