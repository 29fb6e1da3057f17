#include "ops/adamw.h"

#include <cmath>
#include <map>
#include <vector>

#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using at::Tensor;

AdamW kernel_options(const AdamWStep& step_options, std::int64_t step) {
  return {.learning_rate = step_options.learning_rate,
          .beta1 = step_options.beta1,
          .beta2 = step_options.beta2,
          .epsilon = step_options.epsilon,
          .weight_decay = step_options.weight_decay,
          .bias_correction1 = 1.0 - std::pow(step_options.beta1, static_cast<double>(step)),
          .bias_correction2 = 1.0 - std::pow(step_options.beta2, static_cast<double>(step)),
          .gradient_scale = static_cast<float>(step_options.gradient_scale)};
}

// A range of one parameter for one call of the kernel.
struct ParameterRange {
  float *parameter, *exp_avg, *exp_avg_sq;  // Without moments only weight decay applies.
  const float* gradient;                    // Null if all zeros.
  std::int64_t count;
  const AdamW* options;

  ParameterRange part(std::int64_t at, std::int64_t length, const float* part_gradient) const {
    return {.parameter = parameter + at,
            .exp_avg = exp_avg + at,
            .exp_avg_sq = exp_avg_sq + at,
            .gradient = part_gradient,
            .count = length,
            .options = options};
  }
  ParameterRange decay_only(std::int64_t at, std::int64_t length) const {
    return {.parameter = parameter + at,
            .exp_avg = nullptr,
            .exp_avg_sq = nullptr,
            .gradient = nullptr,
            .count = length,
            .options = options};
  }
};

void decay(const ParameterRange& part) {
  const auto factor =
      static_cast<float>(1.0 - part.options->learning_rate * part.options->weight_decay);
  for (std::int64_t i = 0; i < part.count; ++i) part.parameter[i] *= factor;
}

void run_kernels(const std::vector<ParameterRange>& work) {
  const auto kernel = kernels().adamw;
  at::parallel_for(0, static_cast<std::int64_t>(work.size()), 1,
                   [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t i = first; i < last; ++i) {
                       const ParameterRange& part = work[i];
                       part.exp_avg ? kernel(part.parameter, part.gradient, part.exp_avg,
                                             part.exp_avg_sq, *part.options, part.count)
                                    : decay(part);
                     }
                   });
}

ParameterRange full_range(const Tensor& parameter, const Tensor& exp_avg, const Tensor& exp_avg_sq,
                          const AdamW& options) {
  return {.parameter = parameter.mutable_data_ptr<float>(),
          .exp_avg = exp_avg.mutable_data_ptr<float>(),
          .exp_avg_sq = exp_avg_sq.mutable_data_ptr<float>(),
          .gradient = nullptr,
          .count = parameter.numel(),
          .options = &options};
}

void adamw_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
               at::TensorList exp_avg_sqs, at::IntArrayRef steps, double learning_rate,
               double beta1, double beta2, double epsilon, double weight_decay,
               double gradient_scale) {
  constexpr std::int64_t kRangeElements = 1 << 16;
  const AdamWStep step_options{learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale};
  std::map<std::int64_t, AdamW> at_step;  // Parameters added later have taken fewer steps.
  std::vector<ParameterRange> work;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const AdamW& options =
        at_step.try_emplace(steps[i], kernel_options(step_options, steps[i])).first->second;
    const ParameterRange all = full_range(parameters[i], exp_avgs[i], exp_avg_sqs[i], options);
    const float* gradient = gradients[i].const_data_ptr<float>();
    for (std::int64_t at = 0; at < all.count; at += kRangeElements)
      work.push_back(all.part(at, std::min(kRangeElements, all.count - at), gradient + at));
  }
  run_kernels(work);
}

// LibTorch's in-place operators count writes to a tensor, so that a backward pass that has saved it
// throws. The kernels run below the code that counts.
void count_write(const Tensor& x) {
  if (!x.is_inference()) x.unsafeGetTensorImpl()->bump_version();
}
void count_writes(at::TensorList tensors) {
  for (const Tensor& x : tensors) count_write(x);
}

std::int64_t columns_of(const Tensor& table) {
  return table.numel() / std::max<std::int64_t>(table.size(0), 1);
}

std::int64_t rows_per_block(std::int64_t columns) {
  return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(columns, 1));
}

void adamw_rows_cpu(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                    const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& touched,
                    std::int64_t step, double learning_rate, double beta1, double beta2,
                    double epsilon, double weight_decay, double gradient_scale) {
  const AdamW options =
      kernel_options({learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale}, step);
  const ParameterRange table = full_range(parameter, exp_avg, exp_avg_sq, options);
  const std::int64_t columns = columns_of(parameter), block = rows_per_block(columns);
  const std::int64_t* row = rows.const_data_ptr<std::int64_t>();
  const float* value = values.const_data_ptr<float>();
  const std::int64_t used = rows.numel();
  auto* is_touched = touched.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < used; ++i) is_touched[row[i] / block] = 1;
  std::vector<ParameterRange> work;
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < touched.numel(); ++b) {
    const std::int64_t begin = b * block, end = std::min(begin + block, parameter.size(0));
    if (!is_touched[b]) {
      if (weight_decay != 0)
        work.push_back(table.decay_only(begin * columns, (end - begin) * columns));
      continue;
    }
    for (std::int64_t at = begin, stop; at < end; at = stop) {
      const bool has_gradient = next < used && row[next] == at;
      stop = has_gradient ? at + 1 : next < used ? std::min(row[next], end) : end;
      work.push_back(table.part(at * columns, (stop - at) * columns,
                                has_gradient ? value + next * columns : nullptr));
      next += has_gradient;
    }
  }
  run_kernels(work);
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "adamw(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] exp_avgs, "
               "Tensor(c!)[] exp_avg_sqs, int[] steps, float learning_rate, float beta1, "
               "float beta2, float epsilon, float weight_decay, float gradient_scale) -> ()",
               adamw_cpu);
  add_operator(library,
               "adamw_rows(Tensor(a!) parameter, Tensor rows, Tensor values, Tensor(b!) exp_avg, "
               "Tensor(c!) exp_avg_sq, Tensor(d!) touched, int step, float learning_rate, "
               "float beta1, float beta2, float epsilon, float weight_decay, "
               "float gradient_scale) -> ()",
               adamw_rows_cpu);
}

}  // namespace

void adamw(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
           at::TensorList exp_avg_sqs, at::IntArrayRef steps, const AdamWStep& step_options) {
  if (parameters.empty()) return;
  call_operator<adamw_cpu>("hasten::adamw", parameters, gradients, exp_avgs, exp_avg_sqs, steps,
                           step_options.learning_rate, step_options.beta1, step_options.beta2,
                           step_options.epsilon, step_options.weight_decay,
                           step_options.gradient_scale);
  count_writes(parameters);
  count_writes(exp_avgs);
  count_writes(exp_avg_sqs);
}

Tensor touched_blocks(const Tensor& exp_avg, const Tensor& exp_avg_sq, bool fresh) {
  const std::int64_t rows = exp_avg.size(0), columns = columns_of(exp_avg);
  const std::int64_t block = rows_per_block(columns);
  Tensor touched = at::zeros({(rows + block - 1) / block}, at::kByte);
  if (fresh) return touched;
  const float *first = exp_avg.const_data_ptr<float>(),
              *second = exp_avg_sq.const_data_ptr<float>();
  auto* is_touched = touched.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t b = 0; b < touched.numel(); ++b) {
    const std::int64_t begin = b * block * columns,
                       end = std::min(begin + block * columns, exp_avg.numel());
    for (std::int64_t at = begin; at < end && !is_touched[b]; ++at)
      is_touched[b] = first[at] != 0 || second[at] != 0;
  }
  return touched;
}

void adamw_rows(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& touched,
                std::int64_t step, const AdamWStep& step_options) {
  call_operator<adamw_rows_cpu>("hasten::adamw_rows", parameter, rows, values, exp_avg, exp_avg_sq,
                                touched, step, step_options.learning_rate, step_options.beta1,
                                step_options.beta2, step_options.epsilon, step_options.weight_decay,
                                step_options.gradient_scale);
  count_writes({parameter, exp_avg, exp_avg_sq});
}

}  // namespace hasten::ops
