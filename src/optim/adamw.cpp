#include "hasten/optim/adamw.h"

#include <c10/core/Allocator.h>
#include <sys/mman.h>
#include <torch/torch.h>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "ops/adamw.h"
#include "optim/coalesced.h"

namespace hasten {
namespace {

using State = torch::optim::AdamWParamState;
using Options = torch::optim::AdamWOptions;

// Zeros from the system: memory that nobody writes to is never given a page.
at::Tensor untouched_zeros(const at::Tensor& like) {
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * sizeof(float);
  if (!like.device().is_cpu() || bytes < (1 << 20))
    return at::zeros_like(like, at::MemoryFormat::Contiguous);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw MemoryError("optim.out-of-memory",
                      {.what = "the moments of AdamW",
                       .got = str("no room for ", human_bytes(static_cast<std::int64_t>(bytes)))});
  }
  const auto report = [bytes](void* at, int sign) {  // as LibTorch's allocator does
    c10::reportMemoryUsageToProfiler(at, sign * static_cast<std::int64_t>(bytes), 0, 0, at::kCPU);
  };
  report(memory, 1);
  return at::from_blob(
      memory, like.sizes(),
      [bytes, report](void* p) {
        report(p, -1);
        munmap(p, bytes);
      },
      like.options().requires_grad(false));
}

State& state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& slot = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!slot) {
    auto state = std::make_unique<State>();
    state->exp_avg(untouched_zeros(parameter));
    state->exp_avg_sq(untouched_zeros(parameter));
    slot = std::move(state);
  }
  return static_cast<State&>(*slot);
}

// The step counts of all parameters, which the kernel only reads: one tensor for each number there
// is, mostly one.
std::vector<at::Tensor> counts_on(at::Device device, const std::vector<float>& steps) {
  std::map<float, at::Tensor> of;
  std::vector<at::Tensor> counts;
  for (const float step : steps) {
    at::Tensor& count = of[step];
    if (!count.defined()) count = at::scalar_tensor(step, at::kFloat).to(device);
    counts.push_back(count);
  }
  return counts;
}

ops::AdamWStep step_of(const Options& options, double gradient_scale) {
  const auto [beta1, beta2] = options.betas();
  return {.learning_rate = options.lr(),
          .beta1 = beta1,
          .beta2 = beta2,
          .epsilon = options.eps(),
          .weight_decay = options.weight_decay(),
          .gradient_scale = gradient_scale};
}

}  // namespace

AdamW::AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, Options defaults)
    : torch::optim::Optimizer(groups, std::make_unique<Options>(defaults)) {
  for (const auto& group : param_groups()) {
    if (static_cast<const Options&>(group.options()).amsgrad()) {
      throw UsageError("optim.amsgrad", {.what = "hasten::AdamW",
                                         .got = "amsgrad(true)",
                                         .expected = "amsgrad(false)",
                                         .hint = "use torch::optim::AdamW"});
    }
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.scalar_type() != at::kFloat) {
        throw UsageError("optim.dtype",
                         {.what = "hasten::AdamW, a parameter",
                          .got = c10::toString(parameter.scalar_type()),
                          .expected = "Float",
                          .hint = "keep the weights in float and compute in bfloat16 by autocast"});
      }
    }
  }
}

AdamW::AdamW(std::vector<at::Tensor> parameters, Options defaults)
    : AdamW(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(
                std::move(parameters))},
            std::move(defaults)) {}

AdamW::~AdamW() = default;

at::Tensor AdamW::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  for (auto& group : param_groups()) {
    const bool cpu = std::all_of(group.params().begin(), group.params().end(),
                                 [](const at::Tensor& p) { return p.device().is_cpu(); });
    cpu ? step_cpu(group) : step_elsewhere(group);
  }
  gradient_scale_ = 1.0;
  scale_on_device_.reset();
  return loss;
}

void AdamW::step_cpu(torch::optim::OptimizerParamGroup& group) {
  const auto& options = static_cast<const Options&>(group.options());
  const ops::AdamWStep how = step_of(options, gradient_scale_);
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs;
  std::vector<std::int64_t> steps;
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    TORCH_CHECK(parameter.is_contiguous(), "hasten::AdamW: got a parameter that is not contiguous");
    State& state = state_of(*this, parameter);
    state.step(state.step() + 1);
    if (parameter.grad().is_sparse()) {
      step_rows(parameter, how);
      continue;
    }
    touched_.erase(parameter.unsafeGetTensorImpl());  // a dense gradient reaches every row
    parameters.push_back(parameter);
    gradients.push_back(parameter.grad().contiguous());
    exp_avgs.push_back(state.exp_avg());
    exp_avg_sqs.push_back(state.exp_avg_sq());
    steps.push_back(state.step());
  }
  ops::adamw(parameters, gradients, exp_avgs, exp_avg_sqs, steps, how);
}

void AdamW::step_rows(const at::Tensor& parameter, const ops::AdamWStep& how) {
  const State& state = state_of(*this, parameter);
  TouchedRows& touched = touched_[parameter.unsafeGetTensorImpl()];
  const void* moments = state.exp_avg().const_data_ptr();
  if (touched.moments != moments) {
    const bool fresh = state.step() == 1;
    touched = {moments, ops::touched_blocks(state.exp_avg(), state.exp_avg_sq(), fresh)};
  }
  const at::Tensor gradient = coalesced(parameter.grad());
  ops::adamw_rows(parameter, gradient.indices().contiguous(), gradient.values().contiguous(),
                  state.exp_avg(), state.exp_avg_sq(), touched.blocks, state.step(), how);
}

void AdamW::step_elsewhere(torch::optim::OptimizerParamGroup& group) {
  const auto& options = static_cast<const Options&>(group.options());
  const auto [beta1, beta2] = options.betas();
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs;
  std::vector<float> steps;
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    State& state = state_of(*this, parameter);
    state.step(state.step() + 1);
    parameters.push_back(parameter);
    gradients.push_back(parameter.grad().is_sparse() ? parameter.grad().to_dense()
                                                     : parameter.grad());
    exp_avgs.push_back(state.exp_avg());
    exp_avg_sqs.push_back(state.exp_avg_sq());
    steps.push_back(static_cast<float>(state.step()));
  }
  if (parameters.empty()) return;
  // torch_tpu keeps what its kernel divides until the next step: as much memory as the gradients.
  const bool apart = parameters[0].device().is_privateuseone();
  if (apart) scale(gradients);
  at::_fused_adamw_(
      parameters, gradients, exp_avgs, exp_avg_sqs, {}, counts_on(parameters[0].device(), steps),
      options.lr(), beta1, beta2, options.weight_decay(), options.eps(), /*amsgrad=*/false,
      /*maximize=*/false, apart ? std::nullopt : divisor_on(parameters[0]), std::nullopt);
}

void AdamW::scale(const std::vector<at::Tensor>& gradients) const {
  if (scale_on_device_.defined()) {
    at::_foreach_mul_(gradients, scale_on_device_);
  } else if (gradient_scale_ != 1.0) {
    at::_foreach_mul_(gradients, at::Scalar(gradient_scale_));
  }
}

std::optional<at::Tensor> AdamW::divisor_on(const at::Tensor& like) const {
  if (scale_on_device_.defined()) return scale_on_device_.reciprocal();
  if (gradient_scale_ == 1.0) return std::nullopt;
  return at::full({}, 1.0 / gradient_scale_, like.options().requires_grad(false));
}

void AdamW::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<State, Options>(archive, *this);
}

void AdamW::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<State, Options>(archive, *this);
  touched_.clear();
}

}  // namespace hasten
