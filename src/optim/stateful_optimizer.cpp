#include "hasten/optim/stateful_optimizer.h"

#include <torch/torch.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/closure.h"
#include "optim/distinct.h"
#include "optim/optimizer_archive.h"
#include "optim/option_range.h"

namespace hasten {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

class OptionWriter : public OptionVisitor {
 public:
  explicit OptionWriter(OutputArchive& archive) : archive_(archive) {}
  using OptionVisitor::operator();
  void operator()(const char* name, double& value) override { write(name, value); }
  void operator()(const char* name, std::optional<double>& value) override {
    archive_.write(name, value ? c10::IValue(*value) : c10::IValue());
  }
  void operator()(const char* name, std::int64_t& value) override { write(name, value); }
  void operator()(const char* name, bool& value) override { write(name, value); }
  void operator()(const char* name, std::string& value) override { write(name, value); }
  void operator()(const char* name, std::vector<double>& values) override { write(name, values); }

 private:
  template <class T>
  void write(const char* name, const T& value) {
    archive_.write(name, c10::IValue(value));
  }
  OutputArchive& archive_;
};

class OptionReader : public OptionVisitor {
 public:
  explicit OptionReader(InputArchive& archive) : archive_(archive) {}
  using OptionVisitor::operator();
  void operator()(const char* name, double& value) override { value = read(name).toDouble(); }
  void operator()(const char* name, std::optional<double>& value) override {
    value = read(name).toOptional<double>();
  }
  void operator()(const char* name, std::int64_t& value) override { value = read(name).toInt(); }
  void operator()(const char* name, bool& value) override { value = read(name).toBool(); }
  void operator()(const char* name, std::string& value) override {
    value = read(name).toStringRef();
  }
  void operator()(const char* name, std::vector<double>& values) override {
    values = read(name).toDoubleVector();
  }

 private:
  c10::IValue read(const char* name) {
    c10::IValue value;
    archive_.read(name, value);
    return value;
  }
  InputArchive& archive_;
};

}  // namespace

void OptionVisitor::operator()(const char* name, std::tuple<double, double>& pair) {
  (*this)((std::string(name) + "_1").c_str(), std::get<0>(pair));
  (*this)((std::string(name) + "_2").c_str(), std::get<1>(pair));
}

void ParamGroupOptions::check() const {
  require_at_least_0("an optimizer", "lr", lr_);
  require_at_least_0("an optimizer", "weight_decay", weight_decay_);
}

void ParamGroupOptions::visit_options(OptionVisitor& option) {
  option("lr", lr_);
  option("weight_decay", weight_decay_);
  option("maximize", maximize_);
  visit(option);
}

void ParamGroupOptions::serialize(InputArchive& archive) {
  OptionReader read(archive);
  visit_options(read);
}

void ParamGroupOptions::serialize(OutputArchive& archive) const {
  OptionWriter write(archive);
  const_cast<ParamGroupOptions&>(*this).visit_options(write);  // a writer changes nothing
}

void ParamState::serialize(InputArchive& archive) {
  c10::IValue value;
  archive.read("step", value);
  step = value.toInt();
  InputArchive saved_tensors, saved_numbers;
  archive.read("tensors", saved_tensors);
  for (const std::string& name : saved_tensors.keys()) {
    saved_tensors.read(name, value);
    tensors[name] = value.toTensor();
  }
  archive.read("numbers", saved_numbers);
  for (const std::string& name : saved_numbers.keys()) {
    saved_numbers.read(name, value);
    numbers[name] = value.toDouble();
  }
}

void ParamState::serialize(OutputArchive& archive) const {
  archive.write("step", c10::IValue(step));
  OutputArchive saved_tensors(archive.compilation_unit()),
      saved_numbers(archive.compilation_unit());
  for (const auto& [name, tensor] : tensors) saved_tensors.write(name, c10::IValue(tensor));
  for (const auto& [name, number] : numbers) saved_numbers.write(name, c10::IValue(number));
  archive.write("tensors", saved_tensors);
  archive.write("numbers", saved_numbers);
}

StatefulOptimizer::StatefulOptimizer(const char* name,
                                     const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                     std::unique_ptr<ParamGroupOptions> defaults)
    : torch::optim::Optimizer(groups, std::move(defaults)), name_(name) {
  for (const auto& group : param_groups()) check_group(group);
}

void StatefulOptimizer::check_group(const torch::optim::OptimizerParamGroup& group) const {
  const torch::optim::OptimizerOptions& options = group.options();
  if (typeid(options) != typeid(defaults())) {
    throw UsageError("optim.options-kind", {.what = str(name_, ", a group of parameters"),
                                            .got = "the options of another optimizer",
                                            .expected = str("hasten::", name_, "Options")});
  }
  static_cast<const ParamGroupOptions&>(options).check();
}

void StatefulOptimizer::check_gradients(const std::vector<at::Tensor>& parameters) const {
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    check_parameter(parameter);
    const std::string what = str("hasten::", name_, ", a gradient");
    if (gradient.sizes() != parameter.sizes()) {
      throw UsageError("optim.gradient-shape",
                       {.what = what,
                        .got = c10::str("shape ", gradient.sizes()),
                        .expected = c10::str("the parameter's shape, ", parameter.sizes())});
    }
    if (gradient.layout() != at::kStrided && !takes_sparse_gradients()) {
      throw UsageError("optim.sparse-gradient",
                       {.what = what,
                        .got = "a sparse tensor",
                        .expected = "a dense tensor",
                        .hint = "use hasten::AdamW, or make embeddings with sparse(false)"});
    }
  }
}

std::vector<std::int64_t> StatefulOptimizer::state_shape(const std::string&,
                                                         const at::Tensor& parameter) const {
  return parameter.sizes().vec();
}

at::Tensor StatefulOptimizer::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  check_step();
  at::Tensor loss = call_closure(closure);
  // Checks everything before any state changes, so that a refused step can be repeated.
  for (const auto& group : param_groups()) {
    check_group(group);
    check_gradients(group.params());
  }
  struct GroupStep {
    const ParamGroupOptions* options;
    Entries entries;
    std::vector<std::int64_t> counts;  // without this step
  };
  std::vector<GroupStep> steps;
  // A step that throws can be repeated: it is not counted, and a state that it made is made again.
  const auto undo_from = [&](std::size_t first) {
    for (std::size_t group = first; group < steps.size(); ++group) {
      const auto& [options, entries, counts] = steps[group];
      for (std::size_t i = 0; i < counts.size(); ++i) {
        entries.states[i]->step = counts[i];
        if (entries.fresh[i]) state().erase(entries.parameters[i].unsafeGetTensorImpl());
      }
    }
  };
  TensorSet seen;  // a tied parameter may appear more than once, also in two groups
  std::size_t stepped = 0;
  try {
    for (auto& group : param_groups()) {
      Entries entries = entries_of(distinct(group.params(), seen));
      if (entries.parameters.empty()) continue;
      std::vector<std::int64_t> counts;
      for (const ParamState* each : entries.states) counts.push_back(each->step - 1);
      steps.push_back({.options = static_cast<const ParamGroupOptions*>(&group.options()),
                       .entries = std::move(entries),
                       .counts = std::move(counts)});
      read_states(*steps.back().options, steps.back().entries);
    }
    for (; stepped < steps.size(); ++stepped) {
      const ParamGroupOptions& options = *steps[stepped].options;
      Entries& entries = steps[stepped].entries;
      for (const at::Tensor& parameter : entries.parameters) {
        const at::Tensor& gradient = parameter.grad();
        entries.gradients.push_back(options.maximize() ? gradient.neg() : gradient);
      }
      update_group(options, entries);
      entries.gradients.clear();  // frees negated ones
    }
  } catch (...) {
    undo_from(stepped);
    throw;
  }
  return loss;
}

StatefulOptimizer::Entries StatefulOptimizer::entries_of(
    const std::vector<at::Tensor>& parameters) {
  Entries entries;
  entries.optimizer = this;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) entries.parameters.push_back(parameter);
  }
  // Counts the steps after everything that may throw.
  for (const at::Tensor& parameter : entries.parameters) {
    auto& slot = state()[parameter.unsafeGetTensorImpl()];
    entries.fresh.push_back(slot == nullptr);
    if (!slot) slot = std::make_unique<ParamState>();
    auto& state = static_cast<ParamState&>(*slot);
    ++state.step;
    entries.states.push_back(&state);
  }
  return entries;
}

at::Tensor StatefulOptimizer::Entries::state(const std::string& tensor, std::size_t i) const {
  at::Tensor& value = states[i]->tensors[tensor];
  const at::Tensor& parameter = parameters[i];
  const std::vector<std::int64_t> shape = optimizer->state_shape(tensor, parameter);
  if (!value.defined() && fresh[i]) {
    value = shape == parameter.sizes() ? at::zeros_like(parameter)
                                       : at::zeros(shape, parameter.options());
  }
  if (!value.defined() || value.sizes() != shape) {
    const std::string got =
        value.defined() ? c10::str(tensor, " of shape ", value.sizes()) : "no " + tensor;
    if (!value.defined()) states[i]->tensors.erase(tensor);
    throw DataError("optim.incomplete-state",
                    {.what = str(optimizer->name(), ", the loaded state of a parameter"),
                     .got = got,
                     .expected = c10::str(tensor, " of shape ", c10::IntArrayRef(shape)),
                     .hint = "resume with the options that the state was made with"});
  }
  return value;
}

std::vector<at::Tensor> StatefulOptimizer::Entries::state(const std::string& tensor) const {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < states.size(); ++i) all.push_back(state(tensor, i));
  return all;
}

std::vector<at::Tensor> StatefulOptimizer::Entries::state_from_parameters(
    const std::string& tensor) const {
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (fresh[i] && !states[i]->tensors.contains(tensor))
      states[i]->tensors[tensor] = parameters[i].detach().clone();
  }
  return state(tensor);
}

std::vector<at::Tensor> StatefulOptimizer::Entries::gradients_with(double weight_decay) const {
  return weight_decay == 0 ? gradients : at::_foreach_add(gradients, parameters, weight_decay);
}

void StatefulOptimizer::Entries::decay(const ParamGroupOptions& options) const {
  if (options.weight_decay() != 0)
    at::_foreach_mul_(parameters, 1 - options.lr() * options.weight_decay());
}

std::int64_t StatefulOptimizer::Entries::synchronize_step_counts() const {
  std::int64_t highest = 1;
  for (const ParamState* each : states) highest = std::max(highest, each->step);
  for (ParamState* each : states) each->step = highest;
  return highest;
}

void StatefulOptimizer::save(OutputArchive& archive) const {
  archive.write("pytorch_version", c10::IValue("1.5.0"));  // LibTorch's layout of an optimizer
  OutputArchive states(archive.compilation_unit()), groups(archive.compilation_unit());
  torch::optim::detail::serialize<ParamState>(states, state());
  archive.write("state", states);
  torch::optim::detail::serialize<ParamGroupOptions>(groups, param_groups());
  archive.write("param_groups", groups);
}

void StatefulOptimizer::load(InputArchive& archive) {
  read_optimizer<ParamState>(archive, *this, name_,
                             [](const torch::optim::OptimizerOptions& options) {
                               static_cast<const ParamGroupOptions&>(options).check();
                             });
}

}  // namespace hasten
