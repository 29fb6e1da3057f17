#include "hasten/optim/detail/adamw_8bit.h"

#include <torch/torch.h>

#include <algorithm>

#include "optim/option_range.h"
#include "optim/quantized_moments.h"

namespace hasten {

void AdamW8bitOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  require_at_least_0(kName, "eps", eps_);
  check_quantization(kName, bits_, min_8bit_size_);
}

void AdamW8bitOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("eps", eps_);
  option("bits", bits_);
  option("min_8bit_size", min_8bit_size_);
}

void AdamW8bit::check_parameter(const at::Tensor& parameter) const {
  check_moment_type(AdamW8bitOptions::kName, parameter);
}

at::Tensor AdamW8bit::step(LossClosure closure) {
  const at::Tensor loss = TypedOptimizer::step(std::move(closure));
  scale_next_step(1.0);
  return loss;
}

void AdamW8bit::read(const AdamW8bitOptions& options, const Entries& entries) const {
  ops::Moments moments;
  for (std::size_t i = 0; i < entries.states.size(); ++i) {
    const at::Tensor& parameter = entries.parameters[i];
    const bool quantizes = is_quantized(parameter, options);
    for (const char* const moment : {"exp_avg", "exp_avg_sq"})
      add_moment(moments, name(), moment, parameter, *entries.states[i], quantizes);
  }
}

void AdamW8bit::update(const AdamW8bitOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const GradientScale& scale = scale_of_next_step();
  const bool has_cpu_parameters =
      std::any_of(entries.parameters.begin(), entries.parameters.end(),
                  [](const at::Tensor& each) { return each.device().is_cpu(); });
  // Steps on a device take the factor from there, because reading it would wait for the device.
  const ops::AdamWStep settings = {.learning_rate = options.lr(),
                                   .beta1 = beta1,
                                   .beta2 = beta2,
                                   .epsilon = options.eps(),
                                   .weight_decay = options.weight_decay(),
                                   .gradient_scale = has_cpu_parameters ? scale.read() : 1};
  MomentsOnDevice on_device;
  std::vector<MomentEntry> moment_entries;
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::int64_t> steps;
  ops::Moments means, squares;
  const std::size_t count = entries.states.size();
  std::vector<ops::Moments> mean_of(count), square_of(count);
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor& parameter = entries.parameters[i];
    ParamState& state = *entries.states[i];
    const bool quantizes = is_quantized(parameter, options);
    add_moment(mean_of[i], name(), "exp_avg", parameter, state, quantizes);
    add_moment(square_of[i], name(), "exp_avg_sq", parameter, state, quantizes);
    moment_entries.emplace_back(parameter, entries.gradients[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const MomentEntry& entry = moment_entries[i];
    const ParamState& state = *entries.states[i];
    const ops::Moments &mean = mean_of[i], &square = square_of[i];
    if (!entry.parameter.device().is_cpu()) {
      on_device.adamw(entry, mean, square, state.step, settings, scale);
    } else if (entry.has_rows()) {
      ops::adamw_moments_rows(entry.values, entry.gradient.indices()[0].contiguous(),
                              entry.gradient.values().contiguous(), mean, square, state.step,
                              settings);
    } else {
      parameters.push_back(entry.values);
      gradients.push_back(entry.gradient);
      means.add(mean);
      squares.add(square);
      steps.push_back(state.step);
    }
  }
  ops::adamw_moments(parameters, gradients, means, squares, steps, settings);
  for (const MomentEntry& entry : moment_entries) entry.write_back();
}

}  // namespace hasten
