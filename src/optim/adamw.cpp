#include "hasten/optim/adamw.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <torch/torch.h>

#include <cmath>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "ops/kernels/kernels.h"

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
  return at::from_blob(
      memory, like.sizes(), [bytes](void* p) { munmap(p, bytes); },
      like.options().requires_grad(false));
}

// A stretch of one parameter for one call of the kernel. gradient is null where it is all zeros.
struct Stretch {
  float *parameter, *exp_avg, *exp_avg_sq;
  const float* gradient;
  std::int64_t count;
  const ops::AdamW* options;
};

constexpr std::int64_t kStretch = 1 << 16;

// Rows that no gradient has reached: their moments stay untouched.
Stretch decay_only(const Stretch& table, std::int64_t at, std::int64_t count) {
  return {.parameter = table.parameter + at,
          .exp_avg = nullptr,
          .exp_avg_sq = nullptr,
          .gradient = nullptr,
          .count = count,
          .options = table.options};
}

void add_stretches(std::vector<Stretch>& out, Stretch whole) {
  for (std::int64_t at = 0; at < whole.count; at += kStretch) {
    Stretch part = whole;
    part.parameter += at;
    part.exp_avg += at;
    part.exp_avg_sq += at;
    if (part.gradient) part.gradient += at;
    part.count = std::min(kStretch, whole.count - at);
    out.push_back(part);
  }
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

ops::AdamW kernel_options(const Options& options, std::int64_t step, double scale) {
  const auto [beta1, beta2] = options.betas();
  return {.learning_rate = options.lr(),
          .beta1 = beta1,
          .beta2 = beta2,
          .epsilon = options.eps(),
          .weight_decay = options.weight_decay(),
          .bias_correction1 = 1.0 - std::pow(beta1, static_cast<double>(step)),
          .bias_correction2 = 1.0 - std::pow(beta2, static_cast<double>(step)),
          .gradient_scale = static_cast<float>(scale)};
}

}  // namespace

// Which rows of a table have ever had a gradient, in blocks of some 16 KiB: a block is worked on as
// a whole.
struct AdamW::TouchedRows {
  const void* moments;  // whose rows these are: others came from a checkpoint
  std::int64_t rows, columns, block;
  std::vector<char> touched;  // a block each

  TouchedRows(const at::Tensor& parameter, const State& state)
      : moments(state.exp_avg().const_data_ptr()),
        rows(parameter.size(0)),
        columns(parameter.numel() / std::max<std::int64_t>(rows, 1)),
        block(std::max<std::int64_t>(1, 4096 / columns)) {
    touched.assign((rows + block - 1) / block, 0);
    if (state.step() == 0) return;
    // Moments from a checkpoint or from earlier dense gradients: a block counts if it holds any
    // number but 0.
    const float *first = state.exp_avg().const_data_ptr<float>(),
                *second = state.exp_avg_sq().const_data_ptr<float>();
    for (std::size_t i = 0; i < touched.size(); ++i) {
      const std::int64_t begin = static_cast<std::int64_t>(i) * block * columns,
                         end = std::min(begin + block * columns, rows * columns);
      for (std::int64_t at = begin; at < end && !touched[i]; ++at)
        touched[i] = first[at] != 0 || second[at] != 0;
    }
  }

  void add(std::vector<Stretch>& out, const Stretch& table, const at::Tensor& gradient) {
    const at::Tensor indices = gradient.indices().contiguous(),
                     values = gradient.values().contiguous();
    const std::int64_t* row = indices.const_data_ptr<std::int64_t>();
    const float* value = values.const_data_ptr<float>();
    const std::int64_t used = values.size(0);
    for (std::int64_t i = 0; i < used; ++i) touched[row[i] / block] = 1;
    const bool decays = table.options->weight_decay != 0;
    std::int64_t next = 0;
    for (std::size_t b = 0; b < touched.size(); ++b) {
      const std::int64_t begin = static_cast<std::int64_t>(b) * block,
                         end = std::min(begin + block, rows);
      if (!touched[b]) {
        if (decays) out.push_back(decay_only(table, begin * columns, (end - begin) * columns));
        continue;
      }
      std::int64_t at = begin;
      while (at < end) {
        const bool has_gradient = next < used && row[next] == at;
        const std::int64_t stop =
            has_gradient ? at + 1 : (next < used ? std::min(row[next], end) : end);
        Stretch part = table;
        part.parameter += at * columns;
        part.exp_avg += at * columns;
        part.exp_avg_sq += at * columns;
        part.gradient = has_gradient ? value + next * columns : nullptr;
        part.count = (stop - at) * columns;
        out.push_back(part);
        if (has_gradient) ++next;
        at = stop;
      }
    }
  }
};

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
  return loss;
}

void AdamW::step_cpu(torch::optim::OptimizerParamGroup& group) {
  const auto& options = static_cast<const Options&>(group.options());
  std::map<std::int64_t, ops::AdamW>
      by_step;  // parameters that joined later have other bias corrections
  std::vector<Stretch> work;
  std::vector<at::Tensor>
      alive;  // contiguous or coalesced forms of gradients, until the work is done
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    TORCH_CHECK(parameter.is_contiguous(), "hasten::AdamW: got a parameter that is not contiguous");
    State& state = state_of(*this, parameter);
    const bool sparse = parameter.grad().is_sparse();
    auto& rows = touched_[parameter.unsafeGetTensorImpl()];
    if (sparse && (!rows || rows->moments != state.exp_avg().const_data_ptr()))
      rows = std::make_unique<TouchedRows>(parameter, state);
    if (!sparse && rows) rows.reset();  // a dense gradient reaches every row
    state.step(state.step() + 1);
    const auto at_step =
        by_step.try_emplace(state.step(), kernel_options(options, state.step(), gradient_scale_))
            .first;
    alive.push_back(sparse ? parameter.grad().coalesce() : parameter.grad().contiguous());
    const at::Tensor& gradient = alive.back();
    const Stretch whole{.parameter = parameter.mutable_data_ptr<float>(),
                        .exp_avg = state.exp_avg().mutable_data_ptr<float>(),
                        .exp_avg_sq = state.exp_avg_sq().mutable_data_ptr<float>(),
                        .gradient = sparse ? nullptr : gradient.const_data_ptr<float>(),
                        .count = parameter.numel(),
                        .options = &at_step->second};
    sparse ? rows->add(work, whole, gradient) : add_stretches(work, whole);
  }
  const auto kernel = ops::kernels().adamw;
  at::parallel_for(
      0, static_cast<std::int64_t>(work.size()), 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const Stretch& part = work[i];
          if (part.exp_avg == nullptr) {
            const auto decay =
                static_cast<float>(1.0 - part.options->learning_rate * part.options->weight_decay);
            for (std::int64_t at = 0; at < part.count; ++at) part.parameter[at] *= decay;
            continue;
          }
          kernel(part.parameter, part.gradient, part.exp_avg, part.exp_avg_sq, *part.options,
                 part.count);
        }
      });
}

void AdamW::step_elsewhere(torch::optim::OptimizerParamGroup& group) {
  const auto& options = static_cast<const Options&>(group.options());
  const auto [beta1, beta2] = options.betas();
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, steps;
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    State& state = state_of(*this, parameter);
    state.step(state.step() + 1);
    parameters.push_back(parameter);
    gradients.push_back(parameter.grad().is_sparse() ? parameter.grad().to_dense()
                                                     : parameter.grad());
    exp_avgs.push_back(state.exp_avg());
    exp_avg_sqs.push_back(state.exp_avg_sq());
    steps.push_back(at::full({}, static_cast<double>(state.step()),
                             parameter.options().dtype(at::kFloat).requires_grad(false)));
  }
  if (parameters.empty()) return;
  std::optional<at::Tensor> scale;  // the kernel divides by it
  if (gradient_scale_ != 1.0)
    scale = at::full({}, 1.0 / gradient_scale_, parameters[0].options().requires_grad(false));
  at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, {}, steps, options.lr(), beta1,
                    beta2, options.weight_decay(), options.eps(), /*amsgrad=*/false,
                    /*maximize=*/false, scale, std::nullopt);
}

void AdamW::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<State, Options>(archive, *this);
}

void AdamW::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<State, Options>(archive, *this);
  touched_.clear();
}

}  // namespace hasten
