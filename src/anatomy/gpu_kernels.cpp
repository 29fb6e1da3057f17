#include "anatomy/gpu_kernels.h"

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/ceil_div.h>

#include <algorithm>
#include <map>
#include <set>

#include "anatomy/dry_gpu.h"
#include "anatomy/gpu_recurrent.h"
#include "anatomy/gpu_reduction.h"
#include "anatomy/shape_rule_helpers.h"

namespace hasten::anatomy {
namespace {

bool is_half(const Tensor& x) { return at::isReducedFloatingType(x.scalar_type()); }

// Attention: q is [batch, heads, length, size], and so are k and v.

struct Heads {
  Heads(const Tensor& q, const Tensor& k)
      : batch(q.size(0)), heads(q.size(1)), queries(q.size(2)), keys(k.size(2)), size(q.size(3)) {}
  std::int64_t rows() const { return batch * heads; }
  std::int64_t batch, heads, queries, keys, size;
};

// Determines whether each attention kernel can run. The can_use functions follow LibTorch's
// filters.
struct AttentionCall {
  const Tensor &q, &k, &v;
  const std::optional<Tensor>& mask;
  double dropout;
  bool causal, gqa;
  int capability;

  bool has_mask() const { return mask && mask->defined(); }
  bool needs_gradients() const {
    return at::GradMode::is_enabled() &&
           (q.requires_grad() || k.requires_grad() || v.requires_grad());
  }
  bool dense() const {
    return q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.stride(-1) == 1 && k.stride(-1) == 1 &&
           v.stride(-1) == 1 && q.size(2) > 0 && k.size(2) > 0;
  }
  bool one_size() const { return q.size(3) == k.size(3) && k.size(3) == v.size(3); }
  bool same_heads() const { return q.size(1) == k.size(1) && k.size(1) == v.size(1); }

  bool can_use_flash() const {
    const std::int64_t size = q.size(3);
    const bool narrow = capability == 86 || capability == 89 || capability >= 120;
    const bool refused = narrow && needs_gradients() && (size > 224 ? dropout > 0 : size > 192);
    return capability >= 80 && is_half(q) && !has_mask() && one_size() && size <= 256 &&
           (!causal || q.size(2) == k.size(2)) && (same_heads() || gqa) && !refused;
  }
  bool can_use_cudnn() const {
    const std::int64_t maximum = capability == 90 ? 256 : 128;
    return capability >= 80 && is_half(q) && std::max(q.size(3), v.size(3)) <= maximum &&
           q.size(3) % 8 == 0 && v.size(3) % 8 == 0 && k.size(2) > 1 &&
           !(has_mask() && mask->requires_grad()) && (same_heads() || gqa) &&
           !(dropout > 0 && q.size(2) == 1);
  }
  bool can_use_efficient() const {
    const std::int64_t alignment = is_half(q) ? 8 : capability >= 80 ? 4 : 1;
    const bool typed = q.scalar_type() == at::kFloat || q.scalar_type() == at::kHalf ||
                       (q.scalar_type() == at::kBFloat16 && capability >= 80);
    return typed && q.size(3) == k.size(3) && q.size(3) % alignment == 0 &&
           v.size(3) % alignment == 0 && same_heads();
  }
  // cuDNN is considered only on the GPUs that it was tuned for, and then before the other kernels.
  bool prefers_cudnn() const { return capability == 90 || capability == 100 || capability == 103; }
};

// Makes a tensor [batch, heads, length, size] that is stored as [batch, length, heads, size], as
// the kernels write it.
Tensor empty_attention_output(at::IntArrayRef sizes, const Tensor& like) {
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, like.options()).transpose(1, 2);
}
Tensor floats(at::IntArrayRef sizes, const Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}
Tensor numbers(at::IntArrayRef sizes, const Tensor& like, at::ScalarType type) {
  return at::empty(sizes, like.options().dtype(type));
}

Results flash_attention(Arguments a) {
  const Tensor q = tensor(a, 0), k = tensor(a, 1);
  const Heads n(q, k);
  return {empty_with_order_of(q),
          floats({n.batch, n.heads, n.queries}, q),
          Tensor(),
          Tensor(),
          n.queries,
          n.keys,
          numbers({2}, q, at::kUInt64),
          numbers({}, q, at::kUInt64),
          numbers({0}, q, q.scalar_type())};
}

Results efficient_attention(Arguments a) {
  const Tensor q = tensor(a, 0), k = tensor(a, 1), v = tensor(a, 2);
  const Heads n(q, k);
  const std::int64_t kept = a[4].toBool() ? at::round_up<std::int64_t>(n.queries, 32) : 0;
  const Tensor on_host = at::empty({}, at::TensorOptions().dtype(at::kLong));
  return {empty_attention_output({n.batch, n.heads, n.queries, v.size(3)}, q),
          floats({n.batch, n.heads, kept}, q), on_host, on_host};
}
Results efficient_attention_backward(Arguments a) {
  const auto wanted = a[10].toBoolList();
  const auto gradient = [&](std::size_t i) {
    return wanted[i - 1] ? empty_attention_output(tensor(a, i).sizes(), tensor(a, i)) : Tensor();
  };
  const Tensor bias = tensor(a, 4);
  return {gradient(1), gradient(2), gradient(3),
          wanted[3] && bias.defined() ? at::empty(bias.sizes(), bias.options()) : Tensor()};
}

// Attention of packed rows: q is [tokens, heads, size], and so are k and v. A bound [rows + 1] says
// where each row begins. The efficient operators take a batch of 1 before these dimensions.

struct PackedSizes {
  PackedSizes(const Tensor& q, const Tensor& bounds)
      : rows(bounds.defined() ? bounds.numel() - 1 : q.size(0)),
        tokens(q.numel() / std::max<std::int64_t>(1, q.size(-1) * q.size(-2))),
        heads(q.size(-2)),
        size(q.size(-1)) {}
  std::int64_t rows, tokens, heads, size;
};

// Returns max_q if the rows are packed, and otherwise the length of q [batch, length, heads, size].
std::int64_t longest_row(const Tensor& q, const Tensor& bounds, const c10::IValue& longest) {
  return bounds.defined() && longest.isInt() ? longest.toInt() : q.size(1);
}

Results packed_flash_attention(Arguments a) {
  const Tensor q = tensor(a, 0), bounds = tensor(a, 3);
  const PackedSizes n(q, bounds);
  const Tensor log_sum =
      bounds.defined() ? floats({n.heads, n.tokens}, q) : floats({n.rows, n.heads, q.size(1)}, q);
  return {at::empty_like(q), log_sum, numbers({2}, q, at::kUInt64), numbers({}, q, at::kUInt64),
          numbers({0}, q, q.scalar_type())};
}

Results packed_efficient_attention(Arguments a) {
  const Tensor q = tensor(a, 0), v = tensor(a, 2), bounds = tensor(a, 4);
  const PackedSizes n(q, bounds);
  const std::int64_t longest = longest_row(q, bounds, a[6]),
                     kept = a[10].toBool() ? at::round_up<std::int64_t>(longest, 32) : 0;
  const Tensor on_host = at::empty({}, at::TensorOptions().dtype(at::kLong));
  return {at::empty({q.size(0), q.size(1), n.heads, v.size(3)}, q.options()),
          floats({n.rows, n.heads, kept}, q),
          on_host,
          on_host,
          longest,
          a[7].isInt() ? a[7].toInt() : tensor(a, 1).size(1)};
}

Results packed_efficient_attention_backward(Arguments a) {
  const auto gradient = [&](std::size_t i) {
    return at::empty(tensor(a, i).sizes(), tensor(a, i).options());
  };
  return {gradient(1), gradient(2), gradient(3), Tensor()};
}

Results cudnn_attention(Arguments a) {
  const Tensor q = tensor(a, 0), k = tensor(a, 1), v = tensor(a, 2);
  const Heads n(q, k);
  const Tensor out = q.sizes() == v.sizes()
                         ? at::empty_like(q)
                         : at::empty({n.batch, n.heads, n.queries, v.size(3)}, q.options());
  return {out,
          a[4].toBool() ? floats({n.batch, n.heads, n.queries, 1}, q) : Tensor(),
          Tensor(),
          Tensor(),
          n.queries,
          n.keys,
          numbers({}, q, at::kLong),
          numbers({}, q, at::kLong),
          Tensor()};
}
Results like_q_k_v(Arguments a) {
  return {at::empty_like(tensor(a, 1)), at::empty_like(tensor(a, 2)), at::empty_like(tensor(a, 3))};
}

// The kernel allocates a separate block for the norm of each tensor, although each is a single
// number.
Results foreach_norm(Arguments a) {
  c10::List<Tensor> norms;
  for (const Tensor& x : a[0].toTensorVector())
    norms.push_back(numbers({}, x, a[2].isNone() ? x.scalar_type() : a[2].toScalarType()));
  return {norms};
}

// The statistics of the rows are float for every type but double.
Results gpu_layer_norm(Arguments a) {
  const Tensor x = tensor(a, 0);
  auto sizes = x.sizes().vec();
  const std::size_t normalized = a[1].toIntVector().size();
  for (std::size_t i = sizes.size() - normalized; i < sizes.size(); ++i) sizes[i] = 1;
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {at::empty(x.sizes(), x.options()), numbers(sizes, x, type), numbers(sizes, x, type)};
}

// The statistics of the channels have the same types as those of the rows.
Results gpu_batch_norm(Arguments a) {
  const Tensor x = tensor(a, 0);
  const std::int64_t channels = a[5].toBool() ? x.size(1) : 0;
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {at::empty_like(x), numbers({channels}, x, type), numbers({channels}, x, type)};
}

Results cudnn_grid_sampler(Arguments a) {
  const Tensor x = tensor(a, 0), grid = tensor(a, 1);
  return {at::empty({x.size(0), x.size(1), grid.size(1), grid.size(2)}, x.options())};
}
Results cudnn_grid_sampler_backward(Arguments a) {
  const auto contiguous = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
  return {contiguous(tensor(a, 0)), contiguous(tensor(a, 1))};
}

// cuDNN reserves no memory for the backward pass unless x has its channels last.
Results cudnn_batch_norm(Arguments a) {
  const Tensor x = tensor(a, 0), weight = tensor(a, 1);
  const std::int64_t channels = a[5].toBool() ? x.size(1) : 0;
  return {at::empty_like(x), at::empty({channels}, weight.options()),
          at::empty({channels}, weight.options()), numbers({0}, x, at::kByte)};
}
Results cudnn_batch_norm_backward(Arguments a) {
  const Tensor x = tensor(a, 0), weight = tensor(a, 2);
  return {at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
}

// Returns the bytes of the copy that a kernel makes of x, unless x is stored as [batch, length,
// heads, size].
std::int64_t copy_bytes(const Tensor& x) {
  const std::int64_t row = x.size(1) * x.size(3);
  const bool is_in_kernel_order = x.stride(3) == 1 && x.stride(1) == x.size(3) &&
                                  x.stride(2) == row && x.stride(0) == row * x.size(2);
  return is_in_kernel_order ? 0 : static_cast<std::int64_t>(x.nbytes());
}

std::int64_t padded_size(std::int64_t size) {
  return at::round_up<std::int64_t>(size, size <= 128 ? 32 : 64);
}

// Returns whether LibTorch must use deterministic kernels (TrainingArguments::full_determinism).
bool are_kernels_deterministic() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
}

// Returns how many sums of the gradient of q the backward pass of FlashAttention keeps. The
// deterministic kernel has one for each of the blocks that would add to the same sum at a time.
// `rows` counts the rows of all heads.
std::int64_t flash_gradient_sums(std::int64_t rows, const Gpu& gpu) {
  if (!are_kernels_deterministic()) return 1;
  return at::ceil_div<std::int64_t>(gpu.multiprocessors, std::max<std::int64_t>(1, rows));
}

WorkspaceStages flash_attention_backward_workspace(Arguments a, const Gpu& gpu) {
  const Heads n(tensor(a, 1), tensor(a, 2));
  const std::int64_t queries = at::round_up<std::int64_t>(n.queries, 128);
  return {{copy_bytes(tensor(a, 0)), copy_bytes(tensor(a, 4)), 4 * n.rows() * queries,
           flash_gradient_sums(n.rows(), gpu) * 4 * n.rows() * queries * padded_size(n.size)}};
}

// The sizes of a call of the memory-efficient kernel. `batch` counts the packed rows or the rows of
// the batch, `queries` and `keys` are those of the longest row, and `tokens` counts all queries.
struct EfficientCall {
  std::int64_t batch, heads, queries, keys, size, tokens;
  std::int64_t rows() const { return batch * heads; }
};

// The gradient of q is summed in float, in tiles of [rows, columns]. The gradients of k and v are
// summed in the same way for 16-bit types and a head size above 64. `copied` is the number of bytes
// of the copy of the gradient.
WorkspaceStages efficient_backward_stages(const EfficientCall& n, const Tensor& gradient,
                                          const Tensor& q, std::int64_t copied) {
  const std::int64_t rows = !is_half(q) && n.size > 64 ? 128 : 64, columns = 64;
  const std::int64_t of_q = at::ceil_div<std::int64_t>(n.queries, rows) *
                            at::ceil_div<std::int64_t>(n.size, columns) *
                            (16 + 4 * rows * columns) / 4;
  std::int64_t splits = 1, of_k_and_v = 0;
  if (is_half(q) && n.size > 64) {
    splits = at::ceil_div<std::int64_t>(n.keys, columns);
    if (n.rows() >= 256 && n.keys <= 2 * columns) splits = 1;
    splits = std::clamp<std::int64_t>(std::min(splits, 200 / n.rows()), 1, splits);
    if (are_kernels_deterministic()) splits = 1;
    of_k_and_v = 2 * splits * columns * at::round_up<std::int64_t>(n.size, rows);
  }
  const std::int64_t delta = 4 * n.heads * n.tokens,
                     tiles = 4 * n.rows() * at::round_up<std::int64_t>(of_q + of_k_and_v, 4);
  if (is_half(q)) return {{copied, delta, tiles}};
  return {{copied, static_cast<std::int64_t>(gradient.nbytes()), delta, delta},
          {copied, delta, tiles}};
}

WorkspaceStages efficient_attention_backward_workspace(Arguments a, const Gpu&) {
  const Tensor gradient = tensor(a, 0), q = tensor(a, 1);
  const Heads n(q, tensor(a, 2));
  return efficient_backward_stages(
      {n.batch, n.heads, n.queries, n.keys, n.size, n.batch * n.queries}, gradient, q,
      copy_bytes(gradient));
}

// Returns the bytes of the copy of x that a kernel needs unless x is contiguous.
std::int64_t contiguous_copy_bytes(const Tensor& x) {
  return x.is_contiguous() ? 0 : static_cast<std::int64_t>(x.nbytes());
}

// The rows of the sums are at least 128 apart, so each row adds 128 of them. If heads of q share a
// head of k and v, each of them first gets its own gradient.
WorkspaceStages packed_flash_attention_backward_workspace(Arguments a, const Gpu& gpu) {
  const Tensor gradient = tensor(a, 0), q = tensor(a, 1), k = tensor(a, 2), bounds = tensor(a, 6);
  const PackedSizes n(q, bounds);
  const std::int64_t queries = bounds.defined()
                                   ? n.tokens + 128 * n.rows
                                   : n.rows * at::round_up<std::int64_t>(q.size(1), 128);
  std::vector<std::int64_t> held = {
      contiguous_copy_bytes(gradient), contiguous_copy_bytes(tensor(a, 4)), 4 * n.heads * queries,
      flash_gradient_sums(n.rows * n.heads, gpu) * 4 * n.heads * queries * padded_size(n.size)};
  if (k.size(-2) != n.heads) {
    const std::int64_t repeated = static_cast<std::int64_t>(k.nbytes()) / k.size(-2) * n.heads;
    held.insert(held.end(), {repeated, repeated});
  }
  return {held};
}

WorkspaceStages packed_efficient_attention_backward_workspace(Arguments a, const Gpu&) {
  const Tensor gradient = tensor(a, 0), q = tensor(a, 1), bounds = tensor(a, 6);
  const PackedSizes n(q, bounds);
  return efficient_backward_stages(
      {n.rows, n.heads, longest_row(q, bounds, a[8]), longest_row(tensor(a, 2), tensor(a, 7), a[9]),
       n.size, n.tokens},
      gradient, q, contiguous_copy_bytes(gradient));
}

// Measured on an H200 with cuDNN 9: a plan without a mask takes one block of the smallest size.
WorkspaceStages cudnn_attention_workspace(Arguments, const Gpu&) { return {{1}}; }

WorkspaceStages cudnn_attention_backward_workspace(Arguments a, const Gpu&) {
  const Heads n(tensor(a, 1), tensor(a, 2));
  return {{4 * n.rows() * n.queries * n.size + 4 * n.rows() * n.queries}};
}

// Returns the bytes of a copy of x with the channels last, with channels rounded up to a multiple
// of 8.
std::int64_t channels_last_bytes(const Tensor& x, std::int64_t channels) {
  constexpr std::int64_t kChannels = 8;
  return static_cast<std::int64_t>(x.nbytes()) / std::max<std::int64_t>(1, channels) *
         at::round_up(channels, kChannels);
}

// Measured on an H200 with cuDNN 9: for the gradient of the input in 16-bit numbers, cuDNN copies
// all tensors to channels last, unless the convolution is a product of matrices (a kernel of size 1
// and a stride of 1).
WorkspaceStages convolution_backward_workspace(Arguments a, const Gpu& gpu) {
  const Tensor of_result = tensor(a, 0), x = tensor(a, 1), weight = tensor(a, 2);
  const auto all_one = [](at::IntArrayRef values) {
    return std::all_of(values.begin(), values.end(), [](std::int64_t each) { return each == 1; });
  };
  const bool is_product = all_one(weight.sizes().slice(2)) && all_one(a[4].toIntVector());
  if (!is_half(x) || !a[10].toBoolList()[0] || is_product || x.dim() != 4 || !x.is_contiguous() ||
      a[7].toBool() || a[9].toInt() != 1 || gpu.compute_capability < 70)
    return {};
  const std::int64_t outputs = at::round_up<std::int64_t>(weight.size(0), 8);
  return {{channels_last_bytes(of_result, of_result.size(1)) + channels_last_bytes(x, x.size(1)) +
           channels_last_bytes(weight, weight.size(1)) / weight.size(0) * outputs + 1}};
}

WorkspaceStages reduction_workspace(Arguments a, const Gpu& gpu) {
  const Tensor x = tensor(a, 0);
  std::vector<std::int64_t> dimensions;
  if (a.size() > 1 && a[1].isIntList()) dimensions = a[1].toIntVector();
  // sum(x, *, dtype), or sum(x, dim, keepdim, *, dtype). The kernel itself adds 16-bit numbers as
  // float. It copies an operand that has any other type than the sum.
  const c10::IValue& given = a[a.size() > 3 ? 3 : 1];
  const at::ScalarType type = given.isInt() ? given.toScalarType() : x.scalar_type();
  const bool copies = type != x.scalar_type() &&
                      !(type == at::kFloat && at::isReducedFloatingType(x.scalar_type()));
  const Tensor operand =
      copies ? at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta).dtype(type))
             : x;
  const ReductionBuffers buffers = reduction_buffers(operand, dimensions, gpu);
  std::vector<std::int64_t> workspaces;
  if (copies) workspaces.push_back(static_cast<std::int64_t>(operand.nbytes()));
  if (buffers.staging > 0)
    workspaces.insert(workspaces.end(), {buffers.staging, buffers.semaphores});
  if (workspaces.empty()) return {};
  return {workspaces};
}

// Up to kMaxInPlace rows are added in place. More rows, or rows scaled by frequency, are sorted
// first.
WorkspaceStages embedding_backward_workspace(Arguments a, const Gpu&) {
  constexpr std::int64_t kMaxInPlace = 3072;
  const Tensor gradient = tensor(a, 0), indices = tensor(a, 1);
  const std::int64_t n = indices.numel(), size = static_cast<std::int64_t>(indices.element_size());
  if (n <= kMaxInPlace && !a[4].toBool()) return {};
  const std::int64_t segments = std::min(n, a[2].toInt()), partial = n / 10 + segments;
  const std::int64_t list = n * size, parts = segments * size;
  return {{list, list, list, list},
          {list, list, list, 8, parts, parts, 8, partial * size, partial * gradient.size(-1) * 4}};
}

// Indices take 8 bytes. The workspace has the indices before the sort, and the indices and numbers
// of the passes of a radix sort. Up to kMaxInPlace numbers are sorted in place.
WorkspaceStages sort_workspace(Arguments a, const Gpu&) {
  constexpr std::int64_t kMaxInPlace = 4096, kIndex = 8;
  const Tensor x = tensor(a, 0);
  const std::int64_t n = x.numel(), size = static_cast<std::int64_t>(x.element_size());
  if (x.dim() != 1) return {};
  if (n <= kMaxInPlace) return {{kIndex * n}};
  return {{kIndex * n, (kIndex + size) * n}};
}

// The workspace holds the norms of chunks of 65,536 numbers.
WorkspaceStages foreach_norm_workspace(Arguments a, const Gpu&) {
  std::int64_t maximum = 0, tensors = 0;
  for (const Tensor& x : a[0].toTensorVector()) {
    maximum = std::max(maximum, x.numel());
    ++tensors;
  }
  return {{4 * tensors * at::ceil_div<std::int64_t>(maximum, 65536)}};
}

// Rows that are accumulated are sorted by their index first.
WorkspaceStages index_put_workspace(Arguments a, const Gpu&) {
  if (!a[3].toBool()) return {};
  std::int64_t n = 1;
  for (const std::optional<Tensor>& index : a[1].toOptionalTensorVector()) {
    if (index && index->defined()) n = std::max(n, index->numel());
  }
  return {{8 * n, 8 * n, 8 * n, 8 * n}};
}

// mm.dtype: a [m, k], b [k, n] and the type of the result.
Results product_of_type(Arguments a) {
  const Tensor first = tensor(a, 0), second = tensor(a, 1);
  return {at::empty({first.size(0), second.size(1)}, first.options().dtype(a[2].toScalarType()))};
}
// addmm.dtype_out: sum, a, b, the type, beta, alpha, and the result.
Results sum_of_product(Arguments a) { return {at::empty_like(tensor(a, 6))}; }

}  // namespace

std::int64_t choose_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const std::optional<Tensor>& mask, double dropout_p, bool is_causal,
                              std::optional<double>, bool enable_gqa) {
  const auto& context = at::globalContext();
  const AttentionCall call{.q = query,
                           .k = key,
                           .v = value,
                           .mask = mask,
                           .dropout = dropout_p,
                           .causal = is_causal,
                           .gqa = enable_gqa,
                           .capability = DryGpu::active()->gpu().compute_capability};
  at::SDPBackend chosen = at::SDPBackend::math;
  if (!call.dense()) return static_cast<std::int64_t>(chosen);
  if (context.userEnabledCuDNNSDP() && !are_kernels_deterministic() && call.prefers_cudnn() &&
      call.can_use_cudnn()) {
    chosen = at::SDPBackend::cudnn_attention;
  } else if (context.userEnabledFlashSDP() && call.can_use_flash()) {
    chosen = at::SDPBackend::flash_attention;
  } else if (context.userEnabledMemEfficientSDP() && call.can_use_efficient()) {
    chosen = at::SDPBackend::efficient_attention;
  }
  return static_cast<std::int64_t>(chosen);
}

ShapeRule find_gpu_shape_rule(std::string_view name, std::string_view overload) {
  if (overload == "dtype" && name == "aten::mm") return product_of_type;
  if (overload == "dtype_out" && name == "aten::addmm") return sum_of_product;
  static const std::map<std::string, ShapeRule, std::less<>> all = {
      {"aten::native_layer_norm", gpu_layer_norm},
      {"aten::native_batch_norm", gpu_batch_norm},
      {"aten::_scaled_dot_product_flash_attention", flash_attention},
      {"aten::_scaled_dot_product_flash_attention_backward", flash_attention_backward},
      {"aten::_scaled_dot_product_efficient_attention", efficient_attention},
      {"aten::_scaled_dot_product_efficient_attention_backward", efficient_attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention", cudnn_attention},
      {"aten::_scaled_dot_product_cudnn_attention_backward", like_q_k_v},
      {"aten::_flash_attention_forward", packed_flash_attention},
      {"aten::_flash_attention_backward", like_q_k_v},
      {"aten::_efficient_attention_forward", packed_efficient_attention},
      {"aten::_efficient_attention_backward", packed_efficient_attention_backward},
      {"aten::_foreach_norm", foreach_norm},
      {"aten::cudnn_batch_norm", cudnn_batch_norm},
      {"aten::cudnn_batch_norm_backward", cudnn_batch_norm_backward},
      {"aten::cudnn_grid_sampler", cudnn_grid_sampler},
      {"aten::cudnn_grid_sampler_backward", cudnn_grid_sampler_backward},
  };
  const auto found = all.find(name);
  return found == all.end() ? find_recurrent_rule(name) : found->second;
}

std::vector<std::size_t> find_gpu_result_order(std::string_view name) {
  if (name == "aten::native_dropout") return {1, 0};
  // The seed and the offset of dropout's random numbers are allocated first.
  if (name == "aten::_scaled_dot_product_cudnn_attention") return {6, 7, 0, 1};
  return {};
}

GpuWorkspace find_gpu_workspace(std::string_view name) {
  static const std::map<std::string, GpuWorkspace, std::less<>> all = {
      {"aten::_scaled_dot_product_flash_attention_backward", flash_attention_backward_workspace},
      {"aten::_scaled_dot_product_efficient_attention_backward",
       efficient_attention_backward_workspace},
      {"aten::_flash_attention_backward", packed_flash_attention_backward_workspace},
      {"aten::_efficient_attention_backward", packed_efficient_attention_backward_workspace},
      {"aten::_scaled_dot_product_cudnn_attention", cudnn_attention_workspace},
      {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_attention_backward_workspace},
      {"aten::sum", reduction_workspace},
      {"aten::mean", reduction_workspace},
      {"aten::embedding_dense_backward", embedding_backward_workspace},
      {"aten::_foreach_norm", foreach_norm_workspace},
      {"aten::sort", sort_workspace},
      {"aten::_index_put_impl_", index_put_workspace},
      {"aten::convolution_backward", convolution_backward_workspace},
  };
  const auto found = all.find(name);
  return found == all.end() ? find_recurrent_workspace(name) : found->second;
}

GpuComposite find_gpu_composite(std::string_view name) { return find_recurrent_composite(name); }

ProductLibrary product_library(std::string_view name, const std::vector<c10::IValue>& arguments) {
  static const std::set<std::string, std::less<>> products = {
      "aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm",
      "aten::mv", "aten::addmv", "aten::dot",    "aten::vdot"};
  if (!products.count(name)) return ProductLibrary::none;
  if (name != "aten::addmm") return ProductLibrary::cublas;
  // With a bias along the rows, one call computes the product and the sum.
  const Tensor bias = tensor(arguments, 0), a = tensor(arguments, 1), b = tensor(arguments, 2);
  const bool fits = bias.dim() == 1 && bias.is_contiguous() && bias.size(0) == b.size(1) &&
                    arguments[3].toScalar().toDouble() == 1 &&
                    std::min({a.size(0), a.size(1), b.size(0), b.size(1)}) > 1;
  return fits ? ProductLibrary::cublas_lt : ProductLibrary::cublas;
}

std::int64_t cublas_workspace(const Gpu& gpu) {
  return gpu.compute_capability == 90 ? std::int64_t{32} << 20 : 8519680;
}

}  // namespace hasten::anatomy
