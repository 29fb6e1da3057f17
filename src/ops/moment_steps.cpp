#include "ops/moment_steps.h"

#include <algorithm>
#include <cstring>

#include "ops/codebook.h"
#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using at::Tensor;

Moment moment_of(const Tensor& numbers, const Tensor& scales, const Codebook& book) {
  if (numbers.scalar_type() == at::kFloat)
    return {.numbers = numbers.mutable_data_ptr<float>(),
            .codes = nullptr,
            .scales = nullptr,
            .book = nullptr};
  return {.numbers = nullptr,
          .codes = numbers.mutable_data_ptr<std::uint8_t>(),
          .scales = scales.mutable_data_ptr<float>(),
          .book = &book};
}

// Returns the part of the moment that starts at element `at`, which must begin a block.
Moment moment_from(const Moment& moment, Index at) {
  if (moment.numbers != nullptr)
    return {.numbers = moment.numbers + at, .codes = nullptr, .scales = nullptr, .book = nullptr};
  return {.numbers = nullptr,
          .codes = moment.codes + at,
          .scales = moment.scales + at / kMomentBlock,
          .book = moment.book};
}

// Splits the elements of x into parts and calls step(kernels of the type, parameter, gradient or
// null, first element, count) for each of them in LibTorch's threads. A part begins at a block.
template <class Step>
void for_parts_of(const Tensor& x, const Tensor& gradient, Step step) {
  constexpr Index kBlocksPerPart = 64;
  const Index count = x.numel();
  const auto run = [&]<class T>(const MomentKernels<T>& kernel, T* parameter, const T* values) {
    at::parallel_for(0, scale_count(count), kBlocksPerPart, [&](Index begin, Index end) {
      const Index first = begin * kMomentBlock, last = std::min(end * kMomentBlock, count);
      step(kernel, parameter + first, values + first, first, last - first);
    });
  };
  TORCH_CHECK(gradient.scalar_type() == x.scalar_type(), "a gradient has another type than ",
              x.scalar_type());
  if (x.scalar_type() == at::kFloat) {
    run(kernels().f32_moments, rows_of<float>(x), rows_of<float>(gradient));
  } else {
    run(kernels().b16_moments, rows_of<bf16>(x), rows_of<bf16>(gradient));
  }
}

// A gradient that consists of some rows of a table.
template <class T>
struct RowGradient {
  const std::int64_t* rows;
  const T* values;
  Index used, columns;

  // Writes the gradient of some elements to `block`. Returns null if none of their rows has one.
  const T* of_elements(Index first, Index count, T* block) const {
    const std::int64_t* const end = rows + used;
    const std::int64_t* row = std::lower_bound(rows, end, first / columns);
    const Index last = first + count;
    if (row == end || *row * columns >= last) return nullptr;
    std::memset(block, 0, static_cast<std::size_t>(count) * sizeof(T));
    for (; row != end && *row * columns < last; ++row) {
      const Index begin = std::max(*row * columns, first),
                  stop = std::min((*row + 1) * columns, last);
      std::memcpy(block + (begin - first), values + (row - rows) * columns + begin - *row * columns,
                  static_cast<std::size_t>(stop - begin) * sizeof(T));
    }
    return block;
  }
};

// Calls step() as above for each block of a table whose gradient has some rows.
template <class Step>
void for_blocks_of_rows(const Tensor& table, const Tensor& rows, const Tensor& values, Step step) {
  constexpr Index kBlocksPerPart = 64;
  const Index count = table.numel();
  const auto run = [&]<class T>(const MomentKernels<T>& kernel, T* parameter, const T* given) {
    const RowGradient<T> gradient = {.rows = rows.const_data_ptr<std::int64_t>(),
                                     .values = given,
                                     .used = rows.numel(),
                                     .columns = count / std::max<Index>(table.size(0), 1)};
    at::parallel_for(0, scale_count(count), kBlocksPerPart, [&](Index begin, Index end) {
      T block[kMomentBlock];
      for (Index b = begin; b < end; ++b) {
        const Index first = b * kMomentBlock, size = std::min(kMomentBlock, count - first);
        step(kernel, parameter + first, gradient.of_elements(first, size, block), first, size);
      }
    });
  };
  TORCH_CHECK(values.scalar_type() == table.scalar_type(), "a gradient has another type than ",
              table.scalar_type());
  if (table.scalar_type() == at::kFloat) {
    run(kernels().f32_moments, rows_of<float>(table), rows_of<float>(values));
  } else {
    run(kernels().b16_moments, rows_of<bf16>(table), rows_of<bf16>(values));
  }
}

// Returns a function that steps a part of the elements of one parameter.
auto adamw_part(const Moment& mean, const Moment& square, const AdamW& options) {
  return [=](const auto& kernel, auto* parameter, const auto* gradient, Index first, Index count) {
    kernel.adamw(parameter, gradient, moment_from(mean, first), moment_from(square, first), options,
                 count);
  };
}

auto lion_part(const Moment& mean, const Lion& options) {
  return [=](const auto& kernel, auto* parameter, const auto* gradient, Index first, Index count) {
    kernel.lion(parameter, gradient, moment_from(mean, first), options, count);
  };
}

void adamw_moments_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                       at::TensorList exp_avg_sqs, at::TensorList scales, at::TensorList sq_scales,
                       at::IntArrayRef steps, double learning_rate, double beta1, double beta2,
                       double epsilon, double weight_decay, double gradient_scale) {
  const AdamWStep step_options{learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for_parts_of(parameters[i], gradients[i],
                 adamw_part(moment_of(exp_avgs[i], scales[i], signed_codebook()),
                            moment_of(exp_avg_sqs[i], sq_scales[i], unsigned_codebook()),
                            kernel_options(step_options, steps[i])));
  }
}

void adamw_moments_rows_cpu(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                            const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& scale,
                            const Tensor& sq_scale, std::int64_t step, double learning_rate,
                            double beta1, double beta2, double epsilon, double weight_decay,
                            double gradient_scale) {
  const AdamWStep step_options{learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale};
  for_blocks_of_rows(parameter, rows, values,
                     adamw_part(moment_of(exp_avg, scale, signed_codebook()),
                                moment_of(exp_avg_sq, sq_scale, unsigned_codebook()),
                                kernel_options(step_options, step)));
}

void lion_moments_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                      at::TensorList scales, double learning_rate, double beta1, double beta2,
                      double weight_decay) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for_parts_of(parameters[i], gradients[i],
                 lion_part(moment_of(exp_avgs[i], scales[i], signed_codebook()),
                           {learning_rate, beta1, beta2, weight_decay}));
  }
}

void lion_moments_rows_cpu(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                           const Tensor& exp_avg, const Tensor& scale, double learning_rate,
                           double beta1, double beta2, double weight_decay) {
  for_blocks_of_rows(parameter, rows, values,
                     lion_part(moment_of(exp_avg, scale, signed_codebook()),
                               {learning_rate, beta1, beta2, weight_decay}));
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "adamw_moments(Tensor(a!)[] parameters, Tensor[] gradients, "
               "Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] scales, "
               "Tensor(e!)[] sq_scales, int[] steps, float learning_rate, float beta1, "
               "float beta2, float epsilon, float weight_decay, float gradient_scale) -> ()",
               adamw_moments_cpu);
  add_operator(library,
               "adamw_moments_rows(Tensor(a!) parameter, Tensor rows, Tensor values, "
               "Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor(d!) scale, "
               "Tensor(e!) sq_scale, int step, float learning_rate, float beta1, float beta2, "
               "float epsilon, float weight_decay, float gradient_scale) -> ()",
               adamw_moments_rows_cpu);
  add_operator(library,
               "lion_moments(Tensor(a!)[] parameters, Tensor[] gradients, "
               "Tensor(b!)[] exp_avgs, Tensor(c!)[] scales, float learning_rate, float beta1, "
               "float beta2, float weight_decay) -> ()",
               lion_moments_cpu);
  add_operator(library,
               "lion_moments_rows(Tensor(a!) parameter, Tensor rows, Tensor values, "
               "Tensor(b!) exp_avg, Tensor(c!) scale, float learning_rate, float beta1, "
               "float beta2, float weight_decay) -> ()",
               lion_moments_rows_cpu);
}

}  // namespace

std::int64_t scale_count(std::int64_t elements) {
  return (elements + kMomentBlock - 1) / kMomentBlock;
}

void adamw_moments(at::TensorList parameters, at::TensorList gradients, const Moments& exp_avgs,
                   const Moments& exp_avg_sqs, at::IntArrayRef steps,
                   const AdamWStep& step_options) {
  if (parameters.empty()) return;
  call_operator<adamw_moments_cpu>("hasten::adamw_moments", parameters, gradients, exp_avgs.numbers,
                                   exp_avg_sqs.numbers, exp_avgs.scales, exp_avg_sqs.scales, steps,
                                   step_options.learning_rate, step_options.beta1,
                                   step_options.beta2, step_options.epsilon,
                                   step_options.weight_decay, step_options.gradient_scale);
  bump_versions(parameters);
  for (const Moments* each : {&exp_avgs, &exp_avg_sqs}) {
    bump_versions(each->numbers);
    bump_versions(each->scales);
  }
}

void adamw_moments_rows(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                        const Moments& exp_avg, const Moments& exp_avg_sq, std::int64_t step,
                        const AdamWStep& step_options) {
  call_operator<adamw_moments_rows_cpu>(
      "hasten::adamw_moments_rows", parameter, rows, values, exp_avg.numbers[0],
      exp_avg_sq.numbers[0], exp_avg.scales[0], exp_avg_sq.scales[0], step,
      step_options.learning_rate, step_options.beta1, step_options.beta2, step_options.epsilon,
      step_options.weight_decay, step_options.gradient_scale);
  bump_versions({parameter, exp_avg.numbers[0], exp_avg_sq.numbers[0], exp_avg.scales[0],
                 exp_avg_sq.scales[0]});
}

void lion_moments(at::TensorList parameters, at::TensorList gradients, const Moments& exp_avgs,
                  const LionStep& step_options) {
  if (parameters.empty()) return;
  call_operator<lion_moments_cpu>("hasten::lion_moments", parameters, gradients, exp_avgs.numbers,
                                  exp_avgs.scales, step_options.learning_rate, step_options.beta1,
                                  step_options.beta2, step_options.weight_decay);
  bump_versions(parameters);
  bump_versions(exp_avgs.numbers);
  bump_versions(exp_avgs.scales);
}

void lion_moments_rows(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                       const Moments& exp_avg, const LionStep& step_options) {
  call_operator<lion_moments_rows_cpu>("hasten::lion_moments_rows", parameter, rows, values,
                                       exp_avg.numbers[0], exp_avg.scales[0],
                                       step_options.learning_rate, step_options.beta1,
                                       step_options.beta2, step_options.weight_decay);
  bump_versions({parameter, exp_avg.numbers[0], exp_avg.scales[0]});
}

}  // namespace hasten::ops
