// File: hasten/optim/stateful_optimizer.h
// The base of hasten's optimizers other than AdamW, and of your own. It checks options and
// gradients, and keeps, saves and loads a state for each parameter. A derived optimizer defines
// only its options and update(). A checkpoint has the options, as visit() names them, and the
// states (ParamState). A derived class must keep everything there that a later step depends on,
// because other members are not saved.
//
//   hasten::Lion lion(model->parameters(), hasten::LionOptions(1e-4).weight_decay(0.01));
//   loss.backward();
//   lion.step();
//   lion.zero_grad();
//
// Options belong to a group of parameters, as in LibTorch; lr, weight_decay and maximize are common
// to all optimizers. A parameter without a gradient is skipped, and a parameter that is listed
// twice (a tied weight) is stepped once. States are on the device of their parameter, and have its
// type unless the optimizer's header says otherwise. step() reads no number back from a device.
//
// Throws ConfigError "optim.out-of-range" (an option), UsageError "optim.options-kind" (the options
// of another optimizer), "optim.sparse-gradient", "optim.gradient-shape", DataError
// "optim.incomplete-state" (a loaded state lacks a tensor) and "optim.group-count". A load that
// throws changes nothing, and neither does a step that refuses options, gradients or states: they
// are all checked, and the new states are allocated, before the first group makes its step. If the
// memory for the step itself runs out in a group, the groups before it have made their step, that
// group may have made a part of it, and those after it have not; only the steps of the former are
// counted. Thread rule: one thread at a time.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

// Reads or writes the options of a group by their names.
class HASTEN_API OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  virtual void operator()(const char* name, double& value) = 0;
  virtual void operator()(const char* name, std::optional<double>& value) = 0;
  virtual void operator()(const char* name, std::int64_t& value) = 0;
  virtual void operator()(const char* name, bool& value) = 0;
  virtual void operator()(const char* name, std::string& value) = 0;
  virtual void operator()(const char* name, std::vector<double>& values) = 0;
  void operator()(const char* name, std::tuple<double, double>& pair);
};

// The options that every optimizer has.
class HASTEN_API ParamGroupOptions : public torch::optim::OptimizerOptions {
 public:
  explicit ParamGroupOptions(double lr, double weight_decay)
      : lr_(lr), weight_decay_(weight_decay) {}

  double lr() const { return lr_; }
  double weight_decay() const { return weight_decay_; }
  // True if the step increases the loss.
  bool maximize() const { return maximize_; }
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }

  // Throws ConfigError unless every option is in its range.
  virtual void check() const;
  // The mean number of floats that the optimizer keeps for each float of a large matrix.
  virtual int floats_per_parameter() const = 0;
  // The same in bytes, for optimizers whose states are not floats.
  virtual double bytes_per_parameter() const { return 4.0 * floats_per_parameter(); }
  // Passes every option to the visitor, which may change it.
  void visit_options(OptionVisitor& option);
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 protected:
  virtual void visit(OptionVisitor& option) = 0;

  double lr_, weight_decay_;
  bool maximize_ = false;
};

// Adds setters that return the derived class, and clone().
template <class Derived>
class CloneableParamGroupOptions : public ParamGroupOptions {
 public:
  using ParamGroupOptions::maximize;
  using ParamGroupOptions::ParamGroupOptions;
  using ParamGroupOptions::weight_decay;
  Derived& weight_decay(double value) {
    weight_decay_ = value;
    return static_cast<Derived&>(*this);
  }
  Derived& maximize(bool value) {
    maximize_ = value;
    return static_cast<Derived&>(*this);
  }
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

// The state of an optimizer for one parameter.
class HASTEN_API ParamState : public torch::optim::OptimizerCloneableParamState<ParamState> {
 public:
  std::int64_t step = 0;
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, double> numbers;

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

class HASTEN_API StatefulOptimizer : public torch::optim::Optimizer {
 public:
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  // The name in messages and checkpoints.
  const char* name() const { return name_; }
  // The shape of a tensor of a parameter's state.
  virtual std::vector<std::int64_t> state_shape(const std::string& tensor,
                                                const at::Tensor& parameter) const;
  // True if gradients may be sparse. A step then has the same result as with the equivalent dense
  // gradient.
  virtual bool takes_sparse_gradients() const { return false; }
  // True if the step of a parameter does not depend on other parameters, so that parameters may be
  // stepped one by one in any order. False for optimizers that count the steps of a group.
  virtual bool steps_parameters_independently() const { return true; }

 protected:
  // The parameters of a group that have gradients. Element i of each list belongs to parameter i.
  struct Entries {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;  // negated if the group maximizes
    std::vector<ParamState*> states;
    std::vector<bool> fresh;  // true for the first step of a parameter
    const StatefulOptimizer* optimizer;

    // The tensors with this name in all states, or in one state; zeros in the first step.
    std::vector<at::Tensor> state(const std::string& tensor) const;
    at::Tensor state(const std::string& tensor, std::size_t i) const;
    // The same, with a copy of the parameter in the first step.
    std::vector<at::Tensor> state_from_parameters(const std::string& tensor) const;
    // The gradients plus this multiple of the parameters (L2 regularization).
    std::vector<at::Tensor> gradients_with(double weight_decay) const;
    // Multiplies the parameters by 1 - lr * weight_decay (decoupled weight decay).
    void decay(const ParamGroupOptions& options) const;
    // Sets the step of all states to one more than the highest of them, for optimizers that count
    // the steps of a group. Returns it.
    std::int64_t synchronize_step_counts() const;
  };

  StatefulOptimizer(const char* name, const std::vector<torch::optim::OptimizerParamGroup>& groups,
                    std::unique_ptr<ParamGroupOptions> defaults);

  // Reads each tensor of the states that a step needs, with Entries::state(). A step calls it for
  // all groups before the first update_group(), so that a loaded state without such a tensor is
  // refused before anything changes. The entries have no gradients yet.
  virtual void read_states(const ParamGroupOptions&, const Entries&) const {}
  // Makes one step. The step counts of the states already include it.
  virtual void update_group(const ParamGroupOptions& options, const Entries& entries) = 0;
  // Checks the optimizer before a step.
  virtual void check_step() const {}
  virtual void check_parameter(const at::Tensor&) const {}

 private:
  void check_group(const torch::optim::OptimizerParamGroup& group) const;
  void check_gradients(const std::vector<at::Tensor>& parameters) const;
  Entries entries_of(const std::vector<at::Tensor>& parameters);

  const char* name_;
};

// An optimizer with these options. Its name is Options::kName.
template <class Options>
class TypedOptimizer : public StatefulOptimizer {
 public:
  explicit TypedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                          Options defaults = Options())
      : StatefulOptimizer(Options::kName, groups, std::make_unique<Options>(std::move(defaults))) {}
  explicit TypedOptimizer(std::vector<at::Tensor> parameters, Options defaults = Options())
      : TypedOptimizer(
            std::vector<torch::optim::OptimizerParamGroup>{
                torch::optim::OptimizerParamGroup(std::move(parameters))},
            std::move(defaults)) {}

 protected:
  virtual void update(const Options& options, const Entries& entries) = 0;
  // The same as read_states().
  virtual void read(const Options&, const Entries&) const {}

 private:
  void read_states(const ParamGroupOptions& options, const Entries& entries) const final {
    read(static_cast<const Options&>(options), entries);
  }
  void update_group(const ParamGroupOptions& options, const Entries& entries) final {
    update(static_cast<const Options&>(options), entries);
  }
};

}  // namespace hasten
