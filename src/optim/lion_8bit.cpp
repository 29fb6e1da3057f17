#include "hasten/optim/detail/lion_8bit.h"

#include <torch/torch.h>

#include "optim/option_range.h"
#include "optim/quantized_moments.h"

namespace hasten {

void Lion8bitOptions::check() const {
  ParamGroupOptions::check();
  require_betas(kName, betas_);
  check_quantization(kName, bits_, min_8bit_size_);
}

void Lion8bitOptions::visit(OptionVisitor& option) {
  option("betas", betas_);
  option("bits", bits_);
  option("min_8bit_size", min_8bit_size_);
}

void Lion8bit::check_parameter(const at::Tensor& parameter) const {
  check_moment_type(Lion8bitOptions::kName, parameter);
}

void Lion8bit::read(const Lion8bitOptions& options, const Entries& entries) const {
  ops::Moments moments;
  for (std::size_t i = 0; i < entries.states.size(); ++i) {
    const at::Tensor& parameter = entries.parameters[i];
    add_moment(moments, name(), "exp_avg", parameter, *entries.states[i],
               is_quantized(parameter, options));
  }
}

void Lion8bit::update(const Lion8bitOptions& options, const Entries& entries) {
  const auto [beta1, beta2] = options.betas();
  const ops::LionStep settings = {.learning_rate = options.lr(),
                                  .beta1 = beta1,
                                  .beta2 = beta2,
                                  .weight_decay = options.weight_decay()};
  MomentsOnDevice on_device;
  std::vector<MomentEntry> moment_entries;
  std::vector<at::Tensor> parameters, gradients;
  ops::Moments momenta;
  const std::size_t count = entries.states.size();
  std::vector<ops::Moments> momentum_of(count);
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor& parameter = entries.parameters[i];
    add_moment(momentum_of[i], name(), "exp_avg", parameter, *entries.states[i],
               is_quantized(parameter, options));
    moment_entries.emplace_back(parameter, entries.gradients[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const MomentEntry& entry = moment_entries[i];
    const ops::Moments& momentum = momentum_of[i];
    if (!entry.parameter.device().is_cpu()) {
      on_device.lion(entry, momentum, settings);
    } else if (entry.has_rows()) {
      ops::lion_moments_rows(entry.values, entry.gradient.indices()[0].contiguous(),
                             entry.gradient.values().contiguous(), momentum, settings);
    } else {
      parameters.push_back(entry.values);
      gradients.push_back(entry.gradient);
      momenta.add(momentum);
    }
  }
  ops::lion_moments(parameters, gradients, momenta, settings);
  for (const MomentEntry& entry : moment_entries) entry.write_back();
}

}  // namespace hasten
