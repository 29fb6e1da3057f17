// The kernels of hasten's operators on a GPU, which device/cuda/row_kernel_library.h loads. The
// operators call them only if fits_row_kernels() says so (ops/cpu.h).
#include <torch/library.h>

#include <optional>

#include "device/cuda/row_kernel_library.h"
#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"
#include "ops/gpu_rows.h"

namespace hasten::ops {
namespace {

static_assert(kMaxDeviceColumns == gpu::kMaxRegisterColumns);

gpu::NumberType number_type(const Tensor& x) {
  TORCH_CHECK(has_row_kernel_type(x.scalar_type()), "hasten's GPU kernels: got ", x.scalar_type(),
              ", expected Float, BFloat16 or Half");
  if (x.scalar_type() == at::kFloat) return gpu::NumberType::f32;
  return x.scalar_type() == at::kHalf ? gpu::NumberType::fp16 : gpu::NumberType::bf16;
}

// Starts the call on the GPU of x.
template <class... Call>
void start_gpu(const Tensor& x, const Call&... call) {
  const char* const error = gpu_row_kernels().start(x.get_device(), call...);
  TORCH_CHECK(error == nullptr, "hasten's GPU kernels: ", error);
}

// Checks the type: a kernel that reads 16-bit numbers as float would read past the end.
template <class T>
T* numbers_of(const Tensor& x, const Tensor& like) {
  TORCH_CHECK(x.scalar_type() == like.scalar_type(), "hasten's GPU kernels: got ", x.scalar_type(),
              " mixed with ", like.scalar_type());
  return static_cast<T*>(x.data_ptr());
}
void* gpu_out(const Tensor& x, const Tensor& like) { return numbers_of<void>(x, like); }
const void* gpu_in(const Tensor& x, const Tensor& like) { return numbers_of<const void>(x, like); }
const float* floats(const Tensor& x) { return x.const_data_ptr<float>(); }
float* new_floats(const Tensor& x) { return x.mutable_data_ptr<float>(); }

gpu::DropoutDecisions gpu_decisions(std::int64_t seed, double p,
                                    const std::optional<Tensor>& seed_at) {
  const Dropout dropout = DropoutState{seed, p}.kernel_options();
  return {
      .seed = dropout.seed,
      .threshold = dropout.threshold,
      .scale = dropout.scale,
      .seed_at = seed_at ? static_cast<const std::uint64_t*>(seed_at->const_data_ptr()) : nullptr};
}

gpu::BiasGeluCall<> gelu_call(const Tensor& x, const Tensor& bias, const Tensor& y) {
  return {.x = gpu_in(x, x),
          .bias = floats(bias),
          .y = gpu_out(y, x),
          .rows = row_count(x),
          .columns = x.size(-1)};
}

gpu::BiasGeluBackwardCall<> gelu_backward_call(const Tensor& dy, const Tensor& x,
                                               const Tensor& bias, const Tensor& dx,
                                               const Tensor& sums) {
  return {.dy = gpu_in(dy, x),
          .x = gpu_in(x, x),
          .bias = floats(bias),
          .dx = gpu_out(dx, x),
          .sums = new_floats(sums),
          .parts = sums.size(0),
          .rows = row_count(x),
          .columns = x.size(-1)};
}

void bias_gelu_gpu(const Tensor& x, const Tensor& bias, const Tensor& y) {
  start_gpu(x, gelu_call(x, bias, y), number_type(x));
}

void bias_gelu_backward_gpu(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& dx,
                            const Tensor& sums) {
  start_gpu(x, gelu_backward_call(dy, x, bias, dx, sums), number_type(x));
}

}  // namespace

void bias_tanh_gelu_gpu(const Tensor& x, const Tensor& bias, const Tensor& y) {
  start_gpu(x, gpu::BiasTanhGeluCall{gelu_call(x, bias, y)}, number_type(x));
}

void bias_tanh_gelu_backward_gpu(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                 const Tensor& dx, const Tensor& sums) {
  start_gpu(x, gpu::BiasTanhGeluBackwardCall{gelu_backward_call(dy, x, bias, dx, sums)},
            number_type(x));
}

namespace {

void column_sum_gpu(const Tensor& x, const Tensor& sums) {
  start_gpu(x,
            gpu::ColumnSumCall<>{.x = gpu_in(x, x),
                                 .sums = new_floats(sums),
                                 .parts = sums.size(0),
                                 .rows = x.size(0),
                                 .columns = x.size(1)},
            number_type(x));
}

void dropout_gpu(const Tensor& x, std::int64_t seed, double p, const Tensor& y,
                 const std::optional<Tensor>& seed_at) {
  start_gpu(x,
            gpu::DropoutCall<>{.x = gpu_in(x, x),
                               .decisions = gpu_decisions(seed, p, seed_at),
                               .y = gpu_out(y, x),
                               .rows = row_count(x),
                               .columns = x.size(-1)},
            number_type(x));
}

void dropout_add_norm_gpu(const Tensor& x, const Tensor& bias, const Tensor& residual,
                          const Tensor& gamma, const Tensor& beta, double epsilon,
                          std::int64_t seed, double p, const Tensor& z, const Tensor& y,
                          const Tensor& moments, const std::optional<Tensor>& seed_at) {
  float* const mean = new_floats(moments);
  start_gpu(x,
            gpu::DropoutAddNormCall<>{.x = gpu_in(x, x),
                                      .bias = floats(bias),
                                      .residual = gpu_in(residual, x),
                                      .gamma = floats(gamma),
                                      .beta = floats(beta),
                                      .epsilon = static_cast<float>(epsilon),
                                      .decisions = gpu_decisions(seed, p, seed_at),
                                      .z = gpu_out(z, x),
                                      .y = gpu_out(y, x),
                                      .mean = mean,
                                      .rstd = mean + moments.size(1),
                                      .rows = row_count(x),
                                      .columns = x.size(-1)},
            number_type(x));
}

void dropout_add_norm_backward_gpu(const Tensor& dy, const Tensor& z, const Tensor& moments,
                                   const Tensor& gamma, std::int64_t seed, double p,
                                   const Tensor& dz, const Tensor& dx, const Tensor& sums,
                                   const std::optional<Tensor>& seed_at) {
  const float* const mean = floats(moments);
  start_gpu(z,
            gpu::DropoutAddNormBackwardCall<>{.dy = gpu_in(dy, z),
                                              .z = gpu_in(z, z),
                                              .mean = mean,
                                              .rstd = mean + moments.size(1),
                                              .gamma = floats(gamma),
                                              .decisions = gpu_decisions(seed, p, seed_at),
                                              .dz = gpu_out(dz, z),
                                              .dx = gpu_out(dx, z),
                                              .sums = new_floats(sums),
                                              .parts = sums.size(0),
                                              .rows = row_count(z),
                                              .columns = z.size(-1)},
            number_type(z));
}

const float* floats_or_null(const std::optional<Tensor>& x) { return x ? floats(*x) : nullptr; }

}  // namespace

void dropout_add_pre_norm_gpu(const Tensor& x, const std::optional<Tensor>& bias,
                              const Tensor& residual, const Tensor& gamma,
                              const std::optional<Tensor>& beta, double epsilon, std::int64_t seed,
                              double p, const Tensor& z, const Tensor& y, const Tensor& moments,
                              const std::optional<Tensor>& seed_at) {
  // Only a layer norm has means.
  float* const first = new_floats(moments);
  start_gpu(x,
            gpu::DropoutAddPreNormCall{{.x = gpu_in(x, x),
                                        .bias = floats_or_null(bias),
                                        .residual = floats(residual),
                                        .gamma = floats(gamma),
                                        .beta = floats_or_null(beta),
                                        .epsilon = static_cast<float>(epsilon),
                                        .decisions = gpu_decisions(seed, p, seed_at),
                                        .z = new_floats(z),
                                        .y = gpu_out(y, x),
                                        .mean = beta ? first : nullptr,
                                        .rstd = beta ? first + moments.size(1) : first,
                                        .rows = row_count(x),
                                        .columns = x.size(-1)}},
            number_type(x));
}

void dropout_add_pre_norm_backward_gpu(const Tensor& dy, const std::optional<Tensor>& of_stream,
                                       const Tensor& z, const Tensor& moments, const Tensor& gamma,
                                       std::int64_t seed, double p, const Tensor& dz,
                                       const Tensor& dx, const Tensor& sums,
                                       const std::optional<Tensor>& seed_at) {
  const float* const first = floats(moments);
  const bool has_means = moments.size(0) == 2;
  start_gpu(dy,
            gpu::DropoutAddPreNormBackwardCall{{.dy = gpu_in(dy, dy),
                                                .z = floats(z),
                                                .mean = has_means ? first : nullptr,
                                                .rstd = has_means ? first + moments.size(1) : first,
                                                .gamma = floats(gamma),
                                                .decisions = gpu_decisions(seed, p, seed_at),
                                                .dz = new_floats(dz),
                                                .dx = gpu_out(dx, dy),
                                                .sums = new_floats(sums),
                                                .parts = sums.size(0),
                                                .rows = row_count(z),
                                                .columns = z.size(-1),
                                                .of_stream = floats_or_null(of_stream)}},
            number_type(dy));
}

namespace {

gpu::Scores<> scores_of(const Tensor& products, const std::optional<Tensor>& mask, bool causal,
                        double scale) {
  return {.products = gpu_in(products, products),
          .scale = static_cast<float>(scale),
          .mask = floats_or_null(mask),
          .is_causal = causal,
          .heads = products.size(1),
          .queries = products.size(2),
          .keys = products.size(3)};
}

}  // namespace

void softmax_dropout_gpu(const Tensor& products, const std::optional<Tensor>& mask, bool causal,
                         double scale, std::int64_t seed, double p, const Tensor& out,
                         const Tensor& log_sum, const std::optional<Tensor>& seed_at) {
  start_gpu(products,
            gpu::SoftmaxDropoutCall<>{.scores = scores_of(products, mask, causal, scale),
                                      .decisions = gpu_decisions(seed, p, seed_at),
                                      .out = gpu_out(out, products),
                                      .log_sum = new_floats(log_sum),
                                      .rows = row_count(products)},
            number_type(products));
}

void softmax_dropout_backward_gpu(const Tensor& gradient, const Tensor& products,
                                  const std::optional<Tensor>& mask, bool causal, double scale,
                                  const Tensor& log_sum, std::int64_t seed, double p,
                                  const Tensor& of_products, const std::optional<Tensor>& seed_at) {
  start_gpu(products,
            gpu::SoftmaxDropoutBackwardCall<>{.scores = scores_of(products, mask, causal, scale),
                                              .decisions = gpu_decisions(seed, p, seed_at),
                                              .gradient = gpu_in(gradient, products),
                                              .log_sum = floats(log_sum),
                                              .of_products = gpu_out(of_products, products),
                                              .rows = row_count(products)},
            number_type(products));
}

std::int64_t chunks_of_embedding_gradient(std::int64_t tokens) { return gpu::chunks_of(tokens); }

void embedding_gradient_gpu(const Tensor& gradient, const Tensor& order, const Tensor& ids,
                            std::int64_t skipped, const Tensor& partial, const Tensor& table) {
  start_gpu(gradient, gpu::EmbeddingGradientCall{.gradient = floats(gradient),
                                                 .order = order.const_data_ptr<std::int64_t>(),
                                                 .ids = ids.const_data_ptr<std::int32_t>(),
                                                 .skipped = skipped,
                                                 .partial = new_floats(partial),
                                                 .table = new_floats(table),
                                                 .tokens = ids.numel(),
                                                 .rows = table.size(0),
                                                 .columns = table.size(1)});
}

namespace {

void cross_entropy_gpu(const Tensor& logits, const Tensor& labels, const Tensor& losses,
                       std::int64_t classes, std::int64_t ignore_index, double label_smoothing,
                       bool differentiates) {
  start_gpu(logits,
            gpu::CrossEntropyCall<>{.logits = gpu_out(logits, logits),
                                    .labels = labels.const_data_ptr<std::int64_t>(),
                                    .losses = new_floats(losses),
                                    .ignored = ignore_index,
                                    .smoothing = static_cast<float>(label_smoothing),
                                    .differentiates = differentiates,
                                    .rows = row_count(logits),
                                    .columns = classes,
                                    .stride = logits.size(-1)},
            number_type(logits));
}

gpu::EmbeddingSumKernel::Table table_of(const std::optional<Tensor>& table,
                                        const std::optional<Tensor>& ids) {
  if (!table) return {};
  return {.rows = floats(*table),
          .ids = ids ? ids->const_data_ptr<std::int64_t>() : nullptr,
          .size = table->size(0)};
}

void embedding_sum_gpu(const Tensor& word, const std::optional<Tensor>& position,
                       const std::optional<Tensor>& type, const Tensor& ids,
                       const std::optional<Tensor>& position_ids,
                       const std::optional<Tensor>& type_ids, const Tensor& sum) {
  start_gpu(word, gpu::EmbeddingSumKernel{.word = table_of(word, ids),
                                          .position = table_of(position, position_ids),
                                          .type = table_of(type, type_ids),
                                          .out = new_floats(sum),
                                          .rows = ids.numel(),
                                          .length = ids.size(1),
                                          .columns = word.size(1)});
}

TORCH_LIBRARY_IMPL(hasten, CUDA, library) {
  library.impl("bias_gelu", bias_gelu_gpu);
  library.impl("bias_gelu_backward", bias_gelu_backward_gpu);
  library.impl("bias_tanh_gelu", bias_tanh_gelu_gpu);
  library.impl("bias_tanh_gelu_backward", bias_tanh_gelu_backward_gpu);
  library.impl("column_sum", column_sum_gpu);
  library.impl("dropout", dropout_gpu);
  library.impl("dropout_add_norm", dropout_add_norm_gpu);
  library.impl("dropout_add_norm_backward", dropout_add_norm_backward_gpu);
  library.impl("dropout_add_pre_norm", dropout_add_pre_norm_gpu);
  library.impl("dropout_add_pre_norm_backward", dropout_add_pre_norm_backward_gpu);
  library.impl("softmax_dropout", softmax_dropout_gpu);
  library.impl("softmax_dropout_backward", softmax_dropout_backward_gpu);
  library.impl("embedding_sum", embedding_sum_gpu);
  library.impl("embedding_gradient", embedding_gradient_gpu);
  library.impl("cross_entropy", cross_entropy_gpu);
}

}  // namespace
}  // namespace hasten::ops
