#include <torch/torch.h>

#include <algorithm>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "ops/operator.h"
#include "optim/adamw_parts.h"

namespace hasten {
namespace {

[[noreturn]] void throw_not_repeatable(const std::string& got, const char* hint) {
  throw UsageError("optim.repeated-step",
                   {.what = "hasten::AdamW, a step in a graph",
                    .got = got,
                    .expected = "parameters on a GPU that had a gradient in an earlier step",
                    .hint = hint});
}

}  // namespace

AdamW::RepeatedAdamWStep::RepeatedAdamWStep(AdamW& optimizer) : optimizer_(optimizer) {
  TensorSet seen;
  std::int64_t index = 0;
  for (auto& group : optimizer_.param_groups()) {
    optimizer_.check_group(group);
    add_group(group, seen, index);
  }
}

AdamW::RepeatedAdamWStep::~RepeatedAdamWStep() {
  if (optimizer_.replayed_ == this) optimizer_.replayed_ = nullptr;
}

AdamW::RepeatedAdamWStep::FixedNumbers AdamW::RepeatedAdamWStep::fixed_numbers_of(
    const AdamWOptions& options) {
  return {options.betas(), options.eps(), options.weight_decay(), options.amsgrad(),
          options.state_dtype()};
}

bool AdamW::RepeatedAdamWStep::can_repeat() const {
  const auto& groups = optimizer_.param_groups();
  if (groups.size() != groups_.size()) return false;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups_[i].numbers !=
        fixed_numbers_of(static_cast<const AdamWOptions&>(groups[i].options())))
      return false;
    for (const Member& member : groups_[i].members) {
      if (member.is_stepped && !is_unchanged(member)) return false;
    }
    if (!steps_of(groups_[i])) return false;
  }
  return true;
}

void AdamW::RepeatedAdamWStep::write_numbers() {
  const torch::NoGradGuard no_grad;
  const auto& groups = optimizer_.param_groups();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].rate.fill_(static_cast<const AdamWOptions&>(groups[i].options()).lr());
    const auto steps = steps_of(groups_[i]);
    if (!steps)
      throw_not_repeatable("parameters whose numbers of steps differ since it was recorded",
                           "call can_repeat() first");
    for (const auto& [recorded, step] : *steps)
      groups_[i].counts.at(recorded).fill_(static_cast<double>(step + 1));
  }
}

void AdamW::RepeatedAdamWStep::run() {
  const torch::NoGradGuard no_grad;
  const GradientScale& scale = optimizer_.scale_of_next_step();
  if (!scale.on_device.defined() && scale.number != 1.0)
    throw_not_repeatable("a factor of the gradients that the host has computed",
                         "pass scale_next_step() a tensor");
  const auto& groups = optimizer_.param_groups();
  for (std::size_t i = 0; i < groups_.size(); ++i)
    run_group(groups_[i], static_cast<const AdamWOptions&>(groups[i].options()));
  optimizer_.scale_next_step(1.0);
}

void AdamW::RepeatedAdamWStep::count() {
  for (const Group& group : groups_) {
    for (const Member& member : group.members) {
      if (!member.is_stepped) continue;
      AdamWState& state = *state_of(member.parameter);
      state.step(state.step() + 1);
      ops::bump_versions({member.parameter, state.exp_avg(), state.exp_avg_sq()});
    }
  }
}

AdamWState* AdamW::RepeatedAdamWStep::state_of(const at::Tensor& parameter) const {
  const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer_.state().end() ? nullptr
                                           : static_cast<AdamWState*>(found->second.get());
}

void AdamW::RepeatedAdamWStep::add_group(const torch::optim::OptimizerParamGroup& group,
                                         TensorSet& seen, std::int64_t& index) {
  Group& made = groups_.emplace_back(
      Group{.numbers = fixed_numbers_of(static_cast<const AdamWOptions&>(group.options()))});
  made.parameters = distinct(group.params(), seen);
  for (const at::Tensor& parameter : made.parameters) {
    const at::Device device = parameter.device();
    if (device_of(device).traits().adamw != AdamWKernel::fused)
      throw_not_repeatable(str("a parameter on ", device.str()), "leave out the graph");
    const auto number = [&] { return at::zeros({}, at::TensorOptions(device).dtype(at::kFloat)); };
    if (!made.rate.defined()) made.rate = number();
    if (made.rate.device() != device)
      throw_not_repeatable("parameters on several devices", "leave out the graph");
    const at::ScalarType first = made.parameters.front().scalar_type();
    if ((parameter.scalar_type() == at::kDouble) != (first == at::kDouble))
      throw_not_repeatable("parameters in float and in double", "leave out the graph");
    if (const AdamWState* const state = state_of(parameter)) {
      at::Tensor& count = made.counts[state->step()];
      if (!count.defined()) count = number();
      made.members.push_back({.parameter = parameter,
                              .exp_avg = state->exp_avg(),
                              .exp_avg_sq = state->exp_avg_sq(),
                              .data = parameter.const_data_ptr(),
                              .index = index,
                              .step = state->step()});
    }
    ++index;
  }
  if (!made.rate.defined()) made.rate = at::zeros({});  // the group is empty
}

void AdamW::RepeatedAdamWStep::run_group(Group& group, const AdamWOptions& options) {
  std::vector<Entry> entries;
  std::vector<at::Tensor> counts;
  std::size_t with_gradient = 0;
  for (Member& member : group.members) {
    member.is_stepped = member.parameter.grad().defined();
    if (!member.is_stepped) continue;
    ++with_gradient;
    entries.push_back(optimizer_.entry_of(member.parameter, member.index, options));
    if (!is_unchanged(member))
      throw_not_repeatable("moments that this step converts",
                           "call step() once without a graph first");
    counts.push_back(group.counts.at(member.step));
  }
  const auto expected = std::count_if(group.parameters.begin(), group.parameters.end(),
                                      [](const at::Tensor& each) { return each.grad().defined(); });
  if (static_cast<std::size_t>(expected) != with_gradient)
    throw_not_repeatable("a parameter whose first gradient is that of this step",
                         "call step() once without a graph first");
  if (entries.empty()) return;
  optimizer_.run_fused(entries, counts, group.rate, options);
  for (const Entry& entry : entries) entry.write_back();
}

std::optional<std::map<std::int64_t, std::int64_t>> AdamW::RepeatedAdamWStep::steps_of(
    const Group& group) const {
  std::map<std::int64_t, std::int64_t> steps;
  for (const Member& member : group.members) {
    const AdamWState* const state = state_of(member.parameter);
    if (!member.is_stepped || state == nullptr) continue;
    const auto [found, is_new] = steps.emplace(member.step, state->step());
    if (found->second != state->step()) return std::nullopt;
  }
  return steps;
}

bool AdamW::RepeatedAdamWStep::is_unchanged(const Member& member) const {
  const AdamWState* const state = state_of(member.parameter);
  return state != nullptr && state->exp_avg().is_same(member.exp_avg) &&
         state->exp_avg_sq().is_same(member.exp_avg_sq) &&
         member.parameter.const_data_ptr() == member.data;
}

std::unique_ptr<RepeatedStep> AdamW::repeated_step() {
  return std::make_unique<RepeatedAdamWStep>(*this);
}

}  // namespace hasten
