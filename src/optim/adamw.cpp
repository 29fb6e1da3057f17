#include "hasten/optim/adamw.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <sys/mman.h>
#include <torch/torch.h>

#include <unordered_map>
#include <utility>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/mix_key.h"
#include "hasten/base/text.h"
#include "ops/adamw_step.h"
#include "ops/operator.h"
#include "optim/closure.h"
#include "optim/coalesced.h"
#include "optim/distinct.h"
#include "optim/optimizer_archive.h"

namespace hasten {
namespace {

using State = torch::optim::AdamWParamState;
using Options = AdamWOptions;

bool is_float_or_bfloat16(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16;
}

// Maps zeros from the system: pages that nobody writes to take no memory. Has the shape and strides
// of `like`, which has no gaps or overlaps.
at::Tensor lazily_mapped_zeros(const at::Tensor& like, at::ScalarType type) {
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * c10::elementSize(type);
  // A dry run's tensors have no pages anyway.
  const bool is_dry = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake);
  if (!like.device().is_cpu() || bytes < (1 << 20) || is_dry)
    return at::zeros_like(like, like.options().dtype(type), at::MemoryFormat::Preserve);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw MemoryError(
        "optim.out-of-memory",
        {.what = str("cannot allocate ", human_bytes(static_cast<std::int64_t>(bytes)),
                     " for the moments of AdamW")});
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

void check_parameter(const at::Tensor& parameter, const Options& options) {
  const auto refuse = [](const std::string& got, const char* expected, const char* hint) {
    throw UsageError(
        "optim.dtype",
        {.what = "hasten::AdamW, a parameter", .got = got, .expected = expected, .hint = hint});
  };
  const at::ScalarType type = parameter.scalar_type();
  if (!is_float_or_bfloat16(type))
    refuse(c10::toString(type), "Float or BFloat16",
           "keep the weights in float and compute in float16 by autocast");
  const bool has_own_kernel = device_of(parameter.device()).traits().adamw == AdamWKernel::hasten;
  if (has_own_kernel || (type == at::kFloat && options.state_dtype() == at::kFloat)) return;
  refuse(str(type == at::kFloat ? "moments in BFloat16" : "BFloat16", " on ",
             parameter.device().str()),
         "Float, because bfloat16 is rounded stochastically on the CPU only",
         "keep weights and moments in float and compute in bfloat16 by autocast");
}

// True if a sparse gradient consists of whole rows, which the kernel for tables requires.
bool is_of_rows(const at::Tensor& gradient, const at::Tensor& parameter) {
  return gradient.is_sparse() && gradient.sparse_dim() == 1 &&
         gradient.scalar_type() == parameter.scalar_type() && parameter.device().is_cpu() &&
         parameter.is_contiguous();
}

// Returns a number on a device. A GPU's is written by a kernel, because a copy would wait for the GPU.
// Elsewhere it is copied: a compiler would make a program of its own for each number.
at::Tensor number_on(at::Device device, float number) {
  if (device_of(device).traits().needs_static_shapes)
    return at::scalar_tensor(number, at::kFloat).to(device);
  return at::full({}, number, at::TensorOptions(device).dtype(at::kFloat));
}

// Returns the parameters' step counts, which the kernel only reads: one tensor for each different
// count, usually one.
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

// A parameter's four tensors. All but a sparse gradient's rows have the same strides, without
// gaps or overlaps.
struct AdamW::Entry {
  at::Tensor parameter;
  at::Tensor values;  // the parameter, or a contiguous copy if it has gaps or overlaps
  at::Tensor gradient;
  State* state;
  bool fresh;         // the moments are new: zero everywhere
  std::int64_t seed;  // for its random numbers, which round

  void write_back() const {
    if (!values.is_same(parameter)) parameter.copy_(values);
  }
};

// The rows of a table that have had a gradient. Valid until something else, such as a loaded
// checkpoint, writes to the moments.
struct AdamW::TouchedRows {
  // Recognizes whether a tensor is still the same one, with the same content.
  class Unchanged {
   public:
    explicit Unchanged(const at::Tensor& x)
        : tensor_(x.getIntrusivePtr()), data_(x.const_data_ptr()), version_(version_of(x)) {}
    bool describes(const at::Tensor& x) const {
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
  std::optional<Unchanged> exp_avg, exp_avg_sq;

  bool describes(const State& state) const {
    return exp_avg && exp_avg->describes(state.exp_avg()) &&
           exp_avg_sq->describes(state.exp_avg_sq());
  }
  void remember(const State& state) {
    exp_avg.emplace(state.exp_avg());
    exp_avg_sq.emplace(state.exp_avg_sq());
  }
};

AdamWOptions& AdamWOptions::lr(double value) {
  torch::optim::AdamWOptions::lr(value);
  return *this;
}
AdamWOptions& AdamWOptions::betas(std::tuple<double, double> values) {
  torch::optim::AdamWOptions::betas(values);
  return *this;
}
AdamWOptions& AdamWOptions::eps(double value) {
  torch::optim::AdamWOptions::eps(value);
  return *this;
}
AdamWOptions& AdamWOptions::weight_decay(double value) {
  torch::optim::AdamWOptions::weight_decay(value);
  return *this;
}
AdamWOptions& AdamWOptions::amsgrad(bool value) {
  torch::optim::AdamWOptions::amsgrad(value);
  return *this;
}

AdamWOptions& AdamWOptions::state_dtype(at::ScalarType type) {
  if (!is_float_or_bfloat16(type)) {
    throw UsageError("optim.dtype", {.what = "hasten::AdamWOptions::state_dtype",
                                     .got = c10::toString(type),
                                     .expected = "Float or BFloat16"});
  }
  state_dtype_ = type;
  return *this;
}
AdamWOptions& AdamWOptions::stochastic_rounding(bool value) {
  stochastic_rounding_ = value;
  return *this;
}
AdamWOptions& AdamWOptions::rounding_seed(std::int64_t seed) {
  rounding_seed_ = seed;
  return *this;
}

std::unique_ptr<torch::optim::OptimizerOptions> AdamWOptions::clone() const {
  return std::make_unique<AdamWOptions>(*this);
}

void AdamWOptions::serialize(torch::serialize::InputArchive& archive) {
  torch::optim::AdamWOptions::serialize(archive);
  c10::IValue value;  // earlier versions, and LibTorch, write none of these
  if (archive.try_read("state_dtype", value)) state_dtype(value.toScalarType());
  if (archive.try_read("stochastic_rounding", value)) stochastic_rounding(value.toBool());
  if (archive.try_read("rounding_seed", value)) rounding_seed(value.toInt());
}

void AdamWOptions::serialize(torch::serialize::OutputArchive& archive) const {
  torch::optim::AdamWOptions::serialize(archive);
  archive.write("state_dtype", c10::IValue(static_cast<std::int64_t>(state_dtype_)));
  archive.write("stochastic_rounding", c10::IValue(stochastic_rounding_));
  archive.write("rounding_seed", c10::IValue(rounding_seed_));
}

AdamW::AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, Options defaults)
    : torch::optim::Optimizer(groups, std::make_unique<Options>(defaults)) {
  for (auto& group : param_groups()) check_group(group);
}

// A group may have been added, and options or parameters changed, since the last step.
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

namespace {

[[noreturn]] void throw_not_repeatable(const std::string& got, const char* hint) {
  throw UsageError("optim.repeated-step",
                   {.what = "hasten::AdamW, a step in a graph",
                    .got = got,
                    .expected = "parameters on a GPU that had a gradient in an earlier step",
                    .hint = hint});
}

// The options that the kernel takes as numbers.
auto fixed_numbers_of(const Options& options) {
  return std::tuple(options.betas(), options.eps(), options.weight_decay(), options.amsgrad(),
                    options.state_dtype());
}

}  // namespace

class AdamW::Repeated final : public RepeatedStep {
 public:
  explicit Repeated(AdamW& optimizer) : optimizer_(optimizer) {
    TensorSet seen;
    std::int64_t place = 0;
    for (auto& group : optimizer_.param_groups()) {
      optimizer_.check_group(group);
      add_group(group, seen, place);
    }
  }
  ~Repeated() override {
    if (optimizer_.replayed_ == this) optimizer_.replayed_ = nullptr;
  }

  bool can_repeat() const override {
    const auto& groups = optimizer_.param_groups();
    if (groups.size() != groups_.size()) return false;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (!groups_[i].has_numbers_of(static_cast<const Options&>(groups[i].options())))
        return false;
      for (const Member& member : groups_[i].members) {
        if (member.is_stepped && !is_unchanged(member)) return false;
      }
      if (!steps_of(groups_[i])) return false;
    }
    return true;
  }

  void write_numbers() override {
    const torch::NoGradGuard no_grad;
    const auto& groups = optimizer_.param_groups();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      groups_[i].rate.fill_(static_cast<const Options&>(groups[i].options()).lr());
      const auto steps = steps_of(groups_[i]);
      if (!steps)
        throw_not_repeatable("parameters whose numbers of steps differ since it was recorded",
                             "ask can_repeat() before");
      for (const auto& [recorded, step] : *steps)
        groups_[i].counts.at(recorded).fill_(static_cast<double>(step + 1));
    }
  }

  void run() override {
    const torch::NoGradGuard no_grad;
    const GradientScale& scale = optimizer_.scale_of_next_step();
    if (!scale.on_device.defined() && scale.number != 1.0)
      throw_not_repeatable("a factor of the gradients that the host has computed",
                           "pass scale_next_step() a tensor");
    const auto& groups = optimizer_.param_groups();
    for (std::size_t i = 0; i < groups_.size(); ++i)
      run_group(groups_[i], groups[i], static_cast<const Options&>(groups[i].options()));
    optimizer_.scale_next_step(1.0);
  }

  void mark_replayed() override { optimizer_.replayed_ = this; }

  // Counts a step on the host.
  void count() {
    for (const Group& group : groups_) {
      for (const Member& member : group.members) {
        if (!member.is_stepped) continue;
        State& state = *state_of(member.parameter);
        state.step(state.step() + 1);
        ops::count_writes({member.parameter, state.exp_avg(), state.exp_avg_sq()});
      }
    }
  }

 private:
  struct Member {
    at::Tensor parameter, exp_avg, exp_avg_sq;
    const void* data;    // the parameter's address
    std::int64_t place;  // its number, counted over all groups
    std::int64_t step;   // its count when this object was made
    // False if it had no gradient in the step that was recorded.
    bool is_stepped = true;
  };
  struct Group {
    at::Tensor rate;
    decltype(fixed_numbers_of(Options())) numbers;
    std::map<std::int64_t, at::Tensor> counts;  // by the count when this object was made
    std::vector<Member> members;

    bool has_numbers_of(const Options& options) const {
      return numbers == fixed_numbers_of(options);
    }
  };

  State* state_of(const at::Tensor& parameter) const {
    const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
    return found == optimizer_.state().end() ? nullptr : static_cast<State*>(found->second.get());
  }

  void add_group(const torch::optim::OptimizerParamGroup& group, TensorSet& seen,
                 std::int64_t& place) {
    Group& made = groups_.emplace_back(
        Group{.numbers = fixed_numbers_of(static_cast<const Options&>(group.options()))});
    for (const at::Tensor& parameter : distinct(group.params(), seen)) {
      const at::Device device = parameter.device();
      if (device_of(device).traits().adamw != AdamWKernel::fused)
        throw_not_repeatable(str("a parameter on ", device.str()), "leave out the graph");
      const auto number = [&] {
        return at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
      };
      if (!made.rate.defined()) made.rate = number();
      if (made.rate.device() != device)
        throw_not_repeatable("parameters on several devices", "leave out the graph");
      if (const State* const state = state_of(parameter)) {
        at::Tensor& count = made.counts[state->step()];
        if (!count.defined()) count = number();
        made.members.push_back({.parameter = parameter,
                                .exp_avg = state->exp_avg(),
                                .exp_avg_sq = state->exp_avg_sq(),
                                .data = parameter.const_data_ptr(),
                                .place = place,
                                .step = state->step()});
      }
      ++place;
    }
    if (!made.rate.defined()) made.rate = at::zeros({});  // the group is empty
  }

  void run_group(Group& group, const torch::optim::OptimizerParamGroup& of,
                 const Options& options) {
    std::vector<Entry> entries;
    std::vector<at::Tensor> counts;
    std::size_t with_gradient = 0;
    for (Member& member : group.members) {
      member.is_stepped = member.parameter.grad().defined();
      if (!member.is_stepped) continue;
      ++with_gradient;
      entries.push_back(optimizer_.entry_of(member.parameter, member.place, options));
      if (!is_unchanged(member))
        throw_not_repeatable("moments that this step converts",
                             "make a step of the usual kind before");
      counts.push_back(group.counts.at(member.step));
    }
    const auto all = distinct(of.params());
    const auto expected = std::count_if(
        all.begin(), all.end(), [](const at::Tensor& each) { return each.grad().defined(); });
    if (static_cast<std::size_t>(expected) != with_gradient)
      throw_not_repeatable("a parameter whose first gradient is that of this step",
                           "make a step of the usual kind before");
    if (entries.empty()) return;
    optimizer_.run_fused(entries, counts, group.rate, options);
    for (const Entry& entry : entries) entry.write_back();
  }

  // Returns the counts of a group by those of its recording. Unset if parameters that share a tensor for
  // their count have different ones by now.
  std::optional<std::map<std::int64_t, std::int64_t>> steps_of(const Group& group) const {
    std::map<std::int64_t, std::int64_t> steps;
    for (const Member& member : group.members) {
      const State* const state = state_of(member.parameter);
      if (!member.is_stepped || state == nullptr) continue;
      const auto [found, is_new] = steps.emplace(member.step, state->step());
      if (found->second != state->step()) return std::nullopt;
    }
    return steps;
  }

  bool is_unchanged(const Member& member) const {
    const State* const state = state_of(member.parameter);
    return state != nullptr && state->exp_avg().is_same(member.exp_avg) &&
           state->exp_avg_sq().is_same(member.exp_avg_sq) &&
           member.parameter.const_data_ptr() == member.data;
  }

  AdamW& optimizer_;
  std::vector<Group> groups_;
};

at::Tensor AdamW::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  if (Repeated* const replayed = std::exchange(replayed_, nullptr)) {
    replayed->count();
    return {};
  }
  at::Tensor loss = call_closure(closure);
  TensorSet seen;  // a tied parameter may appear more than once, also in two groups
  std::int64_t place = 0;
  for (auto& group : param_groups()) {
    check_group(group);
    const auto& options = static_cast<const Options&>(group.options());
    std::unordered_map<at::Device, std::vector<Entry>> by_device;
    for (const at::Tensor& parameter : distinct(group.params(), seen)) {
      if (parameter.grad().defined())
        by_device[parameter.device()].push_back(entry_of(parameter, place, options));
      ++place;
    }
    for (auto& [device, entries] : by_device) {
      if (device_of(device).traits().adamw == AdamWKernel::hasten) {
        step_cpu(entries, options);
      } else {
        step_on_device(entries, options);
      }
      for (const Entry& entry : entries) entry.write_back();
    }
  }
  scale_next_step(1.0);
  return loss;
}

AdamW::Entry AdamW::entry_of(const at::Tensor& parameter, std::int64_t place,
                             const Options& options) {
  const at::Tensor values = parameter.is_non_overlapping_and_dense()
                                ? parameter
                                : parameter.clone(at::MemoryFormat::Contiguous);
  const at::Tensor& given = parameter.grad();
  check_shape("optim.gradient-shape", "a gradient", given, parameter);
  auto& slot = state()[parameter.unsafeGetTensorImpl()];
  const bool fresh = slot == nullptr;
  if (fresh) {
    auto state = std::make_unique<State>();
    state->exp_avg(lazily_mapped_zeros(values, options.state_dtype()));
    state->exp_avg_sq(lazily_mapped_zeros(values, options.state_dtype()));
    slot = std::move(state);
  }
  auto& state = static_cast<State&>(*slot);
  check_shape("optim.state-shape", "exp_avg", state.exp_avg(), parameter);
  check_shape("optim.state-shape", "exp_avg_sq", state.exp_avg_sq(), parameter);
  const auto fits = [&](const at::Tensor& moment) {
    return moment.scalar_type() == options.state_dtype() && have_same_layout(values, moment);
  };
  if (!fits(state.exp_avg()) || !fits(state.exp_avg_sq())) {  // a checkpoint's may differ
    state.exp_avg(with_layout_of(values, state.exp_avg(), options.state_dtype()));
    state.exp_avg_sq(with_layout_of(values, state.exp_avg_sq(), options.state_dtype()));
  }
  at::Tensor gradient = given;
  if (!is_of_rows(given, values)) {
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
                              static_cast<std::uint64_t>(place), 0))};
}

void AdamW::step_cpu(const std::vector<Entry>& entries, const Options& options) {
  const ops::AdamWStep how = step_of(options, scale_of_next_step().read());
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs;
  std::vector<std::int64_t> steps, seeds;
  for (const Entry& entry : entries) {
    entry.state->step(entry.state->step() + 1);
    if (entry.gradient.is_sparse()) {
      step_rows(entry, how);
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
  ops::adamw(parameters, gradients, exp_avgs, exp_avg_sqs, steps, seeds, how);
}

void AdamW::step_rows(const Entry& entry, const ops::AdamWStep& how) {
  const State& state = *entry.state;
  auto& touched = touched_[entry.parameter.unsafeGetTensorImpl()];
  if (!touched) touched = std::make_unique<TouchedRows>();
  if (!touched->describes(state))
    touched->blocks = ops::touched_blocks(state.exp_avg(), state.exp_avg_sq(), entry.fresh);
  const at::Tensor gradient = coalesced(entry.gradient);
  ops::adamw_rows(entry.values, gradient.indices().contiguous(), gradient.values().contiguous(),
                  state.exp_avg(), state.exp_avg_sq(), touched->blocks, state.step(), entry.seed,
                  how);
  touched->remember(state);
}

void AdamW::step_on_device(const std::vector<Entry>& entries, const Options& options) {
  std::vector<float> steps;
  for (const Entry& entry : entries) {
    entry.state->step(entry.state->step() + 1);
    steps.push_back(static_cast<float>(entry.state->step()));
  }
  // A rate in a tensor is in float, and a step has the same bits with both.
  const auto rate = static_cast<double>(static_cast<float>(options.lr()));
  run_fused(entries, counts_on(entries[0].parameter.device(), steps), rate, options);
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
  const bool scales_before =
      device_of(parameters[0].device()).traits().adamw == AdamWKernel::fused_without_gradscale;
  if (scales_before) scale(gradients);
  at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, {}, counts, rate, beta1, beta2,
                    options.weight_decay(), options.eps(), /*amsgrad=*/false,
                    /*maximize=*/false, scales_before ? std::nullopt : divisor_on(parameters[0]),
                    std::nullopt);
}

std::unique_ptr<RepeatedStep> AdamW::repeated_step() { return std::make_unique<Repeated>(*this); }

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
