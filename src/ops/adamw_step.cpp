#include "ops/adamw_step.h"

#include <cmath>
#include <map>
#include <vector>

#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using at::Tensor;

// The types in which a parameter and its moments are stored.
struct Types {
  std::int64_t parameter, moment;  // bytes of a number: 4 in float, 2 in bfloat16
};

std::int64_t bytes_of_number(const Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "hasten's AdamW: got ", type,
              ", expected Float or BFloat16");
  return static_cast<std::int64_t>(x.element_size());
}

// A range of one parameter for one call of the kernel.
struct ParameterRange {
  char *parameter, *exp_avg, *exp_avg_sq;  // Without moments only weight decay applies.
  const char* gradient;                    // Null if all zeros.
  std::int64_t first, count;               // Its place in the parameter.
  Types types;
  const AdamW* options;
  Rounding rounding;

  ParameterRange part(std::int64_t at, std::int64_t length, const char* part_gradient) const {
    ParameterRange out = *this;
    out.parameter += at * types.parameter;
    out.exp_avg += at * types.moment;
    out.exp_avg_sq += at * types.moment;
    out.gradient = part_gradient;
    out.first += at;
    out.count = length;
    return out;
  }
  ParameterRange decay_only(std::int64_t at, std::int64_t length) const {
    ParameterRange out = part(at, length, nullptr);
    out.exp_avg = out.exp_avg_sq = nullptr;
    return out;
  }
};

void decay(const ParameterRange& part) {
  const auto factor =
      static_cast<float>(1.0 - part.options->learning_rate * part.options->weight_decay);
  if (part.types.parameter == sizeof(bf16))
    return kernels().decay_b16(reinterpret_cast<bf16*>(part.parameter), factor, part.rounding,
                               part.first, part.count);
  auto* const values = reinterpret_cast<float*>(part.parameter);
  for (std::int64_t i = 0; i < part.count; ++i) values[i] *= factor;
}

template <class Parameter, class Moment>
void run_rounded(RoundedAdamW<Parameter, Moment> kernel, const ParameterRange& part) {
  kernel(reinterpret_cast<Parameter*>(part.parameter),
         reinterpret_cast<const Parameter*>(part.gradient), reinterpret_cast<Moment*>(part.exp_avg),
         reinterpret_cast<Moment*>(part.exp_avg_sq), *part.options, part.rounding, part.first,
         part.count);
}

void update(const ParameterRange& part) {
  const bool has_half_parameter = part.types.parameter == sizeof(bf16),
             has_half_moments = part.types.moment == sizeof(bf16);
  if (has_half_parameter && has_half_moments) return run_rounded(kernels().adamw_b16_b16, part);
  if (has_half_parameter) return run_rounded(kernels().adamw_b16_f32, part);
  if (has_half_moments) return run_rounded(kernels().adamw_f32_b16, part);
  kernels().adamw(reinterpret_cast<float*>(part.parameter),
                  reinterpret_cast<const float*>(part.gradient),
                  reinterpret_cast<float*>(part.exp_avg), reinterpret_cast<float*>(part.exp_avg_sq),
                  *part.options, part.count);
}

void run_kernels(const std::vector<ParameterRange>& work) {
  at::parallel_for(0, static_cast<std::int64_t>(work.size()), 1,
                   [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t i = first; i < last; ++i) {
                       const auto run = work[i].exp_avg ? &update : &decay;
                       run(work[i]);
                     }
                   });
}

ParameterRange full_range(const Tensor& parameter, const Tensor& exp_avg, const Tensor& exp_avg_sq,
                          const AdamW& options, const Rounding& rounding) {
  return {.parameter = static_cast<char*>(parameter.mutable_data_ptr()),
          .exp_avg = static_cast<char*>(exp_avg.mutable_data_ptr()),
          .exp_avg_sq = static_cast<char*>(exp_avg_sq.mutable_data_ptr()),
          .gradient = nullptr,
          .first = 0,
          .count = parameter.numel(),
          .types = {.parameter = bytes_of_number(parameter), .moment = bytes_of_number(exp_avg)},
          .options = &options,
          .rounding = rounding};
}

Rounding rounding_of(bool stochastic, std::int64_t seed, std::int64_t step) {
  return {.stochastic = stochastic,
          .seed = static_cast<std::uint64_t>(seed),
          .step = static_cast<std::uint64_t>(step)};
}

const char* gradient_bytes(const Tensor& gradient, const Tensor& parameter) {
  TORCH_CHECK(gradient.scalar_type() == parameter.scalar_type(),
              "hasten's AdamW: got a gradient in ", gradient.scalar_type(), " of a parameter in ",
              parameter.scalar_type());
  return static_cast<const char*>(gradient.const_data_ptr());
}

void adamw_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
               at::TensorList exp_avg_sqs, at::IntArrayRef steps, at::IntArrayRef seeds,
               double learning_rate, double beta1, double beta2, double epsilon,
               double weight_decay, double gradient_scale, bool stochastic_rounding) {
  constexpr std::int64_t kRangeElements = 1 << 16;
  const AdamWStep step_options{
      learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale, stochastic_rounding};
  std::map<std::int64_t, AdamW> at_step;  // Parameters added later have taken fewer steps.
  std::vector<ParameterRange> work;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const AdamW& options =
        at_step.try_emplace(steps[i], kernel_options(step_options, steps[i])).first->second;
    const ParameterRange all = full_range(parameters[i], exp_avgs[i], exp_avg_sqs[i], options,
                                          rounding_of(stochastic_rounding, seeds[i], steps[i]));
    const char* gradient = gradient_bytes(gradients[i], parameters[i]);
    for (std::int64_t at = 0; at < all.count; at += kRangeElements)
      work.push_back(all.part(at, std::min(kRangeElements, all.count - at),
                              gradient + at * all.types.parameter));
  }
  run_kernels(work);
}

std::int64_t columns_of(const Tensor& table) {
  return table.numel() / std::max<std::int64_t>(table.size(0), 1);
}

std::int64_t rows_per_block(std::int64_t columns) {
  return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(columns, 1));
}

void adamw_rows_cpu(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                    const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& touched,
                    std::int64_t step, std::int64_t seed, double learning_rate, double beta1,
                    double beta2, double epsilon, double weight_decay, double gradient_scale,
                    bool stochastic_rounding) {
  const AdamW options =
      kernel_options({learning_rate, beta1, beta2, epsilon, weight_decay, gradient_scale}, step);
  const ParameterRange table = full_range(parameter, exp_avg, exp_avg_sq, options,
                                          rounding_of(stochastic_rounding, seed, step));
  const std::int64_t columns = columns_of(parameter), block = rows_per_block(columns);
  const std::int64_t* row = rows.const_data_ptr<std::int64_t>();
  const char* value = gradient_bytes(values, parameter);
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
      work.push_back(
          table.part(at * columns, (stop - at) * columns,
                     has_gradient ? value + next * columns * table.types.parameter : nullptr));
      next += has_gradient;
    }
  }
  run_kernels(work);
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "adamw(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] exp_avgs, "
               "Tensor(c!)[] exp_avg_sqs, int[] steps, int[] seeds, float learning_rate, "
               "float beta1, float beta2, float epsilon, float weight_decay, "
               "float gradient_scale, bool stochastic_rounding) -> ()",
               adamw_cpu);
  add_operator(library,
               "adamw_rows(Tensor(a!) parameter, Tensor rows, Tensor values, Tensor(b!) exp_avg, "
               "Tensor(c!) exp_avg_sq, Tensor(d!) touched, int step, int seed, "
               "float learning_rate, float beta1, float beta2, float epsilon, "
               "float weight_decay, float gradient_scale, bool stochastic_rounding) -> ()",
               adamw_rows_cpu);
}

}  // namespace

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

void adamw(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
           at::TensorList exp_avg_sqs, at::IntArrayRef steps, at::IntArrayRef seeds,
           const AdamWStep& step_options) {
  if (parameters.empty()) return;
  call_operator<adamw_cpu>("hasten::adamw", parameters, gradients, exp_avgs, exp_avg_sqs, steps,
                           seeds, step_options.learning_rate, step_options.beta1,
                           step_options.beta2, step_options.epsilon, step_options.weight_decay,
                           step_options.gradient_scale, step_options.stochastic_rounding);
  bump_versions(parameters);
  bump_versions(exp_avgs);
  bump_versions(exp_avg_sqs);
}

namespace {

template <class Moment>
void find_touched(const Tensor& exp_avg, const Tensor& exp_avg_sq, std::int64_t block_elements,
                  const Tensor& touched) {
  const Moment *first = exp_avg.const_data_ptr<Moment>(),
               *second = exp_avg_sq.const_data_ptr<Moment>();
  auto* is_touched = touched.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t b = 0; b < touched.numel(); ++b) {
    const std::int64_t begin = b * block_elements,
                       end = std::min(begin + block_elements, exp_avg.numel());
    for (std::int64_t at = begin; at < end && !is_touched[b]; ++at)
      is_touched[b] = first[at] != 0 || second[at] != 0;
  }
}

}  // namespace

Tensor touched_blocks(const Tensor& exp_avg, const Tensor& exp_avg_sq, bool is_new) {
  const std::int64_t rows = exp_avg.size(0), columns = columns_of(exp_avg);
  const std::int64_t block = rows_per_block(columns);
  Tensor touched = at::zeros({(rows + block - 1) / block}, at::kByte);
  if (is_new) return touched;
  const auto find =
      exp_avg.scalar_type() == at::kFloat ? &find_touched<float> : &find_touched<at::BFloat16>;
  find(exp_avg, exp_avg_sq, block * columns, touched);
  return touched;
}

void adamw_rows(const Tensor& parameter, const Tensor& rows, const Tensor& values,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& touched,
                std::int64_t step, std::int64_t seed, const AdamWStep& step_options) {
  call_operator<adamw_rows_cpu>("hasten::adamw_rows", parameter, rows, values, exp_avg, exp_avg_sq,
                                touched, step, seed, step_options.learning_rate, step_options.beta1,
                                step_options.beta2, step_options.epsilon, step_options.weight_decay,
                                step_options.gradient_scale, step_options.stochastic_rounding);
  bump_versions({parameter, exp_avg, exp_avg_sq});
}

}  // namespace hasten::ops
