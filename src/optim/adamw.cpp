#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <sys/mman.h>
#include <torch/torch.h>

#include <cerrno>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "device/device.h"
#include "hasten/base/detail/mix_key.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "ops/adamw_step.h"
#include "ops/operator.h"
#include "optim/adamw_parts.h"
#include "optim/closure.h"
#include "optim/coalesced.h"
#include "optim/optimizer_archive.h"

namespace hasten {
namespace {

using State = AdamWState;
using Options = AdamWOptions;

// Returns zeros that are mapped from the system: pages that nobody writes to take no memory. The
// tensor has the shape and strides of `like`, which must have no gaps or overlaps.
at::Tensor lazily_mapped_zeros(const at::Tensor& like, at::ScalarType type) {
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * c10::elementSize(type);
  // A dry run's tensors have no pages anyway.
  const bool is_dry = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake);
  if (!like.device().is_cpu() || bytes < (1 << 20) || is_dry)
    return at::zeros_like(like, like.options().dtype(type), at::MemoryFormat::Preserve);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw MemoryError("optim.out-of-memory",
                      {.what = "memory for the moments of AdamW",
                       .got = std::generic_category().message(errno),
                       .expected = human_bytes(static_cast<std::int64_t>(bytes)),
                       .hint = "train fewer parameters, or use an optimizer with fewer moments"});
  }
  const auto report = [bytes](void* at, int sign) {  // as LibTorch's allocator does
    c10::reportMemoryUsageToProfiler(at, sign * static_cast<std::int64_t>(bytes), 0, 0, at::kCPU);
  };
  report(memory, 1);
  return at::from_blob(
      memory, like.sizes(), like.strides(),
      [bytes, report](void* p) {
        report(p, -1);
        munmap(p, bytes);
      },
      like.options().dtype(type).requires_grad(false));
}

// True if element i of a's memory is element i of b's, for tensors of one shape without gaps or
// overlaps. Dimensions of size 1 may have any stride.
bool have_same_layout(const at::Tensor& a, const at::Tensor& b) {
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

// Returns x in the layout of `like` and in a type.
at::Tensor with_layout_of(const at::Tensor& like, const at::Tensor& x, at::ScalarType type) {
  if (have_same_layout(like, x)) return x.to(type);
  return at::empty_like(like, like.options().dtype(type)).copy_(x);
}

void check_shape(const char* code, const char* what, const at::Tensor& x,
                 const at::Tensor& parameter) {
  if (x.defined() && x.sizes() == parameter.sizes()) return;
  throw UsageError(code, {.what = str("hasten::AdamW, ", what),
                          .got = x.defined() ? c10::str("shape ", x.sizes()) : "no tensor",
                          .expected = c10::str("the parameter's shape, ", parameter.sizes())});
}

// Parameters in double have moments in double, whatever state_dtype says, and LibTorch's kernel
// steps them on every device.
bool is_double(const at::Tensor& parameter) { return parameter.scalar_type() == at::kDouble; }

void check_parameter(const at::Tensor& parameter, const Options& options) {
  const auto throw_parameter = [](const std::string& got, const char* expected, const char* hint) {
    throw UsageError(
        "optim.dtype",
        {.what = "hasten::AdamW, a parameter", .got = got, .expected = expected, .hint = hint});
  };
  const at::ScalarType type = parameter.scalar_type();
  const AdamWKernel kernel = device_of(parameter.device()).traits().adamw;
  if (is_double(parameter)) {
    if (kernel != AdamWKernel::fused_without_gradscale) return;
    throw_parameter(str("Double on ", parameter.device().str()), "Float",
                    "convert the weights to float");
  }
  if (!is_float_or_bfloat16(type))
    throw_parameter(c10::toString(type), "Float, Double or BFloat16",
                    "keep the weights in float and compute in float16 by autocast");
  const bool has_own_kernel = kernel == AdamWKernel::hasten;
  if (has_own_kernel || (type == at::kFloat && options.state_dtype() == at::kFloat)) return;
  throw_parameter(str(type == at::kFloat ? "moments in BFloat16" : "BFloat16", " on ",
                      parameter.device().str()),
                  "Float, because bfloat16 is rounded stochastically on the CPU only",
                  "keep weights and moments in float and compute in bfloat16 by autocast");
}

// Returns true if the kernel for tables accepts the gradient: it is sparse and has whole rows, and
// the parameter is a contiguous CPU tensor of the same type.
bool fits_table_kernel(const at::Tensor& gradient, const at::Tensor& parameter) {
  return gradient.is_sparse() && gradient.sparse_dim() == 1 &&
         gradient.scalar_type() == parameter.scalar_type() && parameter.device().is_cpu() &&
         parameter.is_contiguous();
}

// Returns a number on a device. On a GPU a kernel writes it, because a copy would wait for the GPU.
// On a device that compiles its programs it is copied, because each number in a program would need
// a new one.
at::Tensor number_on(at::Device device, float number) {
  if (device_of(device).traits().needs_static_shapes)
    return at::scalar_tensor(number, at::kFloat).to(device);
  return at::full({}, number, at::TensorOptions(device).dtype(at::kFloat));
}

// Returns the step counts of the parameters, which the kernel only reads. Equal counts share one
// tensor, so there is usually only one.
std::vector<at::Tensor> counts_on(at::Device device, const std::vector<float>& steps) {
  std::map<float, at::Tensor> of;
  std::vector<at::Tensor> counts;
  for (const float step : steps) {
    at::Tensor& count = of[step];
    if (!count.defined()) count = number_on(device, step);
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
          .gradient_scale = gradient_scale,
          .stochastic_rounding = options.stochastic_rounding()};
}

}  // namespace

// The rows of a table that have had a gradient. The list is valid until something else, such as a
// loaded checkpoint, writes to the moments.
struct AdamW::TouchedRows {
  // Records a tensor and its version, to check later whether both are still the same.
  class TensorSnapshot {
   public:
    explicit TensorSnapshot(const at::Tensor& x)
        : tensor_(x.getIntrusivePtr()), data_(x.const_data_ptr()), version_(version_of(x)) {}
    bool matches(const at::Tensor& x) const {
      // The weak pointer keeps the address from being reused.
      return version_ >= 0 && tensor_._unsafe_get_target() == x.unsafeGetTensorImpl() &&
             data_ == x.const_data_ptr() && version_ == version_of(x);
    }

   private:
    // Inference tensors have no version counter.
    static std::int64_t version_of(const at::Tensor& x) {
      return x.is_inference() ? -1 : static_cast<std::int64_t>(x._version());
    }
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
    const void* data_;
    std::int64_t version_;
  };

  at::Tensor blocks;  // see ops/adamw_step.h
  std::optional<TensorSnapshot> exp_avg, exp_avg_sq;

  bool matches(const State& state) const {
    return exp_avg && exp_avg->matches(state.exp_avg()) && exp_avg_sq->matches(state.exp_avg_sq());
  }
  void remember(const State& state) {
    exp_avg.emplace(state.exp_avg());
    exp_avg_sq.emplace(state.exp_avg_sq());
  }
};

AdamW::AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, Options defaults)
    : torch::optim::Optimizer(groups, std::make_unique<Options>(defaults)) {
  for (auto& group : param_groups()) check_group(group);
}

// Checks a group before each step: since the last step it may have been added, or its options or
// parameters may have changed.
void AdamW::check_group(torch::optim::OptimizerParamGroup& group) {
  if (dynamic_cast<const Options*>(&group.options()) == nullptr) {
    Options own = static_cast<const Options&>(defaults());
    static_cast<torch::optim::AdamWOptions&>(own) =
        static_cast<const torch::optim::AdamWOptions&>(group.options());
    group.set_options(own.clone());
  }
  const auto& options = static_cast<const Options&>(group.options());
  if (options.amsgrad()) {
    throw UsageError("optim.amsgrad", {.what = "hasten::AdamW",
                                       .got = "amsgrad(true)",
                                       .expected = "amsgrad(false)",
                                       .hint = "use torch::optim::AdamW"});
  }
  for (const at::Tensor& parameter : group.params()) check_parameter(parameter, options);
}

AdamW::AdamW(std::vector<at::Tensor> parameters, Options defaults)
    : AdamW(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(
                std::move(parameters))},
            std::move(defaults)) {}

AdamW::~AdamW() = default;

at::Tensor AdamW::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  if (RepeatedAdamWStep* const replayed = std::exchange(replayed_, nullptr)) {
    replayed->count();
    return {};
  }
  at::Tensor loss = call_closure(closure);
  TensorSet seen;  // a tied parameter may appear more than once, also in two groups
  std::int64_t index = 0;
  for (auto& group : param_groups()) {
    check_group(group);
    const auto& options = static_cast<const Options&>(group.options());
    std::unordered_map<at::Device, std::vector<Entry>> by_device, doubles_by_device;
    for (const at::Tensor& parameter : distinct(group.params(), seen)) {
      auto& entries = is_double(parameter) ? doubles_by_device : by_device;
      if (parameter.grad().defined())
        entries[parameter.device()].push_back(entry_of(parameter, index, options));
      ++index;
    }
    for (auto& [device, entries] : by_device) {
      if (device_of(device).traits().adamw == AdamWKernel::hasten) {
        step_cpu(entries, options);
      } else {
        step_on_device(entries, options);
      }
      for (const Entry& entry : entries) entry.write_back();
    }
    for (auto& [device, entries] : doubles_by_device) {
      step_on_device(entries, options);
      for (const Entry& entry : entries) entry.write_back();
    }
  }
  scale_next_step(1.0);
  return loss;
}

AdamW::Entry AdamW::entry_of(const at::Tensor& parameter, std::int64_t index,
                             const Options& options) {
  const at::Tensor values = parameter.is_non_overlapping_and_dense()
                                ? parameter
                                : parameter.clone(at::MemoryFormat::Contiguous);
  const at::Tensor& given = parameter.grad();
  check_shape("optim.gradient-shape", "a gradient", given, parameter);
  const at::ScalarType moments = is_double(parameter) ? at::kDouble : options.state_dtype();
  auto& slot = state()[parameter.unsafeGetTensorImpl()];
  const bool fresh = slot == nullptr;
  if (fresh) {
    auto state = std::make_unique<State>();
    state->exp_avg(lazily_mapped_zeros(values, moments));
    state->exp_avg_sq(lazily_mapped_zeros(values, moments));
    slot = std::move(state);
  }
  auto& state = static_cast<State&>(*slot);
  check_shape("optim.state-shape", "exp_avg", state.exp_avg(), parameter);
  check_shape("optim.state-shape", "exp_avg_sq", state.exp_avg_sq(), parameter);
  const auto fits = [&](const at::Tensor& moment) {
    return moment.scalar_type() == moments && have_same_layout(values, moment);
  };
  if (!fits(state.exp_avg()) || !fits(state.exp_avg_sq())) {  // as after loading a checkpoint
    state.exp_avg(with_layout_of(values, state.exp_avg(), moments));
    state.exp_avg_sq(with_layout_of(values, state.exp_avg_sq(), moments));
  }
  at::Tensor gradient = given;
  if (is_double(parameter) || !fits_table_kernel(given, values)) {
    const at::Tensor dense = given.layout() == at::kStrided ? given : given.to_dense();
    gradient = with_layout_of(values, dense, values.scalar_type());
  }
  return {.parameter = parameter,
          .values = values,
          .gradient = gradient,
          .state = &state,
          .fresh = fresh,
          .seed = static_cast<std::int64_t>(
              detail::mix_key(static_cast<std::uint64_t>(options.rounding_seed()),
                              static_cast<std::uint64_t>(index), 0))};
}

void AdamW::step_cpu(const std::vector<Entry>& entries, const Options& options) {
  const ops::AdamWStep settings = step_of(options, scale_of_next_step().read());
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs;
  std::vector<std::int64_t> steps, seeds;
  for (const Entry& entry : entries) {
    entry.state->step(entry.state->step() + 1);
    if (entry.gradient.is_sparse()) {
      step_rows(entry, settings);
      continue;
    }
    // A dense gradient reaches every row.
    touched_.erase(entry.parameter.unsafeGetTensorImpl());
    parameters.push_back(entry.values);
    gradients.push_back(entry.gradient);
    exp_avgs.push_back(entry.state->exp_avg());
    exp_avg_sqs.push_back(entry.state->exp_avg_sq());
    steps.push_back(entry.state->step());
    seeds.push_back(entry.seed);
  }
  ops::adamw(parameters, gradients, exp_avgs, exp_avg_sqs, steps, seeds, settings);
}

void AdamW::step_rows(const Entry& entry, const ops::AdamWStep& settings) {
  const State& state = *entry.state;
  auto& touched = touched_[entry.parameter.unsafeGetTensorImpl()];
  if (!touched) touched = std::make_unique<TouchedRows>();
  if (!touched->matches(state))
    touched->blocks = ops::touched_blocks(state.exp_avg(), state.exp_avg_sq(), entry.fresh);
  const at::Tensor gradient = coalesced(entry.gradient);
  ops::adamw_rows(entry.values, gradient.indices().contiguous(), gradient.values().contiguous(),
                  state.exp_avg(), state.exp_avg_sq(), touched->blocks, state.step(), entry.seed,
                  settings);
  touched->remember(state);
}

void AdamW::step_on_device(const std::vector<Entry>& entries, const Options& options) {
  std::vector<float> steps;
  for (const Entry& entry : entries) {
    entry.state->step(entry.state->step() + 1);
    steps.push_back(static_cast<float>(entry.state->step()));
  }
  // Rounds the rate to float, as a rate in a tensor is, so that a step has the same bits with both.
  // No graph repeats a step on the CPU, which only has parameters in double here.
  const at::Device device = entries[0].parameter.device();
  const bool is_exact = device_of(device).traits().adamw == AdamWKernel::hasten;
  const double rate =
      is_exact ? options.lr() : static_cast<double>(static_cast<float>(options.lr()));
  run_fused(entries, counts_on(device, steps), rate, options);
  // LibTorch's kernel leaves this to its caller.
  for (const Entry& entry : entries)
    ops::bump_versions({entry.values, entry.state->exp_avg(), entry.state->exp_avg_sq()});
}

template <class Rate>
void AdamW::run_fused(const std::vector<Entry>& entries, const std::vector<at::Tensor>& counts,
                      const Rate& rate, const Options& options) {
  const auto [beta1, beta2] = options.betas();
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs;
  for (const Entry& entry : entries) {
    parameters.push_back(entry.values);
    gradients.push_back(entry.gradient);
    exp_avgs.push_back(entry.state->exp_avg());
    exp_avg_sqs.push_back(entry.state->exp_avg_sq());
  }
  // The kernel reads a divisor in float, which is too coarse for gradients in double.
  const bool scales_before =
      is_double(parameters[0]) ||
      device_of(parameters[0].device()).traits().adamw == AdamWKernel::fused_without_gradscale;
  if (scales_before) scale(gradients);
  at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, {}, counts, rate, beta1, beta2,
                    options.weight_decay(), options.eps(), /*amsgrad=*/false,
                    /*maximize=*/false, scales_before ? std::nullopt : divisor_on(parameters[0]),
                    std::nullopt);
}

template void AdamW::run_fused(const std::vector<Entry>&, const std::vector<at::Tensor>&,
                               const at::Tensor&, const Options&);

void AdamW::scale(const std::vector<at::Tensor>& gradients) const {
  const GradientScale& scale = scale_of_next_step();
  if (scale.on_device.defined()) {
    at::_foreach_mul_(gradients, scale.on_device);
  } else if (scale.number != 1.0) {
    at::_foreach_mul_(gradients, at::Scalar(scale.number));
  }
}

std::optional<at::Tensor> AdamW::divisor_on(const at::Tensor& like) const {
  const GradientScale& scale = scale_of_next_step();
  // The kernel reads a float, whatever the type of the factor.
  const at::TensorOptions options = like.options().dtype(at::kFloat).requires_grad(false);
  if (scale.on_device.defined()) return scale.on_device.to(options).reciprocal();
  if (scale.number == 1.0) return std::nullopt;
  return at::full({}, 1.0 / scale.number, options);
}

void AdamW::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<State, Options>(archive, *this);
}

void AdamW::load(torch::serialize::InputArchive& archive) {
  for (auto& group : param_groups()) check_group(group);  // with hasten's options from now on
  read_optimizer<State>(archive, *this, "AdamW", [](const torch::optim::OptimizerOptions&) {});
  touched_.clear();
}

}  // namespace hasten
