#include "hasten/exported/exported_module.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <variant>

#include "autograd/execution_state.h"
#include "exported/exported_binding.h"
#include "exported/interpreter.h"
#include "exported/recomputed_graph.h"
#include "hasten/base/error.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"
#include "models/lora_layers.h"

namespace hasten {
namespace {

using c10::IValue;
using exported::StateInput;
using exported::UserInput;

// A module of the exported model, which only holds tensors.
struct ExportedLayer : torch::nn::Module {
  using Module::Module;
};

// Two payloads with the same key are one tensor with two names.
auto sharing_key(const exported::Payload& payload) {
  return std::tuple(payload.record, payload.offset, payload.sizes, payload.strides, payload.dtype);
}

// LibTorch visits modules recursively.
constexpr std::size_t kMaxModuleDepth = 100;

bool can_require_grad(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

// The operators were exported for the shapes in the program, so kernels may depend on them.
void check_shape(const StateInput& input, const at::Tensor& tensor, const std::string& file) {
  const auto fits = [&](std::int64_t i) {
    const exported::Size& size = input.meta.sizes[static_cast<std::size_t>(i)];
    return std::holds_alternative<std::int64_t>(size) &&
           std::get<std::int64_t>(size) == tensor.size(i);
  };
  bool same = tensor.scalar_type() == input.meta.dtype &&
              tensor.dim() == static_cast<std::int64_t>(input.meta.sizes.size());
  for (std::int64_t i = 0; same && i < tensor.dim(); ++i) same = fits(i);
  if (same) return;
  throw DataError("exported.payload", {.what = file + ": the tensor " + input.name,
                                       .got = "another shape or type than in the program",
                                       .expected = "the same"});
}

// Returns the value of an input that the caller gives.
IValue user_value(const UserInput& input, const at::Tensor& tensor, const std::string& file) {
  if (!tensor.defined())
    throw UsageError("exported.inputs",
                     {.what = file + ": the input " + input.name, .got = "an undefined tensor"});
  if (input.kind == UserInput::Kind::tensor) return tensor;
  return tensor.item<std::int64_t>();
}

// Adds the adapters of a module to its copy, which has none.
void copy_lora(const torch::nn::Module& from, torch::nn::Module& to) {
  const std::vector<LoraLayer> layers = lora_layers(from);
  if (layers.empty()) return;
  const LoraAdapter& adapter = *layers.front().adapter;
  // New factors draw random numbers. The program draws the same ones with and without a copy.
  const GeneratorStates generators = GeneratorStates::capture({to.parameters().front().device()});
  attach_lora(to, *adapter.options(), /*is_lenient=*/true);
  generators.restore();
  for (const LoraLayer& layer : lora_layers(to)) layer.adapter->set_merged(adapter.is_merged());
  const auto sources = from.named_parameters();
  for (const auto& item : to.named_parameters()) {
    at::Tensor parameter = item.value();
    const at::Tensor& source = sources[item.key()];
    if (ends_with(item.key(), ".lora_A.weight") || ends_with(item.key(), ".lora_B.weight"))
      parameter.set_data(
          source.detach().to(parameter.device(), /*non_blocking=*/false, /*copy=*/true));
    parameter.set_requires_grad(source.requires_grad());
  }
}

}  // namespace

ExportedModule::ExportedModule(std::shared_ptr<const Parts> parts)
    : Module("ExportedModule"), parts_(std::move(parts)) {
  const TensorDict weights =
      exported::load_payloads(parts_->archive, parts_->weights[0], parts_->device);
  const TensorDict constants =
      exported::load_payloads(parts_->archive, parts_->constants[0], parts_->device);
  std::map<std::string, const exported::Payload*> payloads;
  for (const exported::Payload& payload : parts_->weights[0]) payloads[payload.name] = &payload;
  using Key = decltype(sharing_key(parts_->weights[0].front()));
  std::map<Key, std::string> first_names;
  for (const StateInput& input : parts_->programs[0]->state) {
    if (input.kind == StateInput::Kind::constant || tensors_.contains(input.name)) continue;
    const auto payload = payloads.find(input.name);
    if (payload == payloads.end()) {
      register_tensor(input.name, tensor_at(constants, input.name), /*is_parameter=*/false);
      continue;
    }
    const auto [first, is_new] = first_names.emplace(sharing_key(*payload->second), input.name);
    if (!is_new && weights.at(input.name).numel() > 0) {
      tensors_[input.name] = tensors_.at(first->second);
      continue;
    }
    const bool is_parameter = input.kind == StateInput::Kind::parameter;
    at::Tensor tensor = weights.at(input.name);
    if (is_parameter)
      tensor.set_requires_grad(payload->second->requires_grad && can_require_grad(tensor));
    register_tensor(input.name, std::move(tensor), is_parameter);
  }
  bind();
}

ExportedModule::~ExportedModule() = default;

void ExportedModule::register_tensor(const std::string& name, at::Tensor tensor,
                                     bool is_parameter) {
  const std::vector<std::string> parts = split(name, '.');
  const bool has_empty = std::find(parts.begin(), parts.end(), "") != parts.end();
  if (has_empty || parts.size() > kMaxModuleDepth)
    throw DataError("exported.payload",
                    {.what = parts_->archive.file() + ": the name of a tensor",
                     .got = name.substr(0, 200),
                     .expected = str("at most ", kMaxModuleDepth, " names joined by dots")});
  torch::nn::Module* owner = this;
  std::string path;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    path += (i == 0 ? "" : ".") + parts[i];
    auto& layer = layers_[path];
    if (layer == nullptr)
      layer = owner->register_module(parts[i], std::make_shared<ExportedLayer>("ExportedLayer"));
    owner = layer.get();
  }
  const bool requires_grad = tensor.requires_grad();
  tensors_[name] = is_parameter
                       ? owner->register_parameter(parts.back(), std::move(tensor), requires_grad)
                       : owner->register_buffer(parts.back(), std::move(tensor));
}

void ExportedModule::bind() {
  for (std::size_t i = 0; i < parts_->programs.size(); ++i) {
    Binding binding{.program = parts_->programs[i]};
    const TensorDict constants =
        exported::load_payloads(parts_->archive, parts_->constants[i], parts_->device);
    for (const StateInput& input : binding.program->state) {
      const bool is_constant = input.kind == StateInput::Kind::constant;
      binding.state.push_back(tensor_at(is_constant ? constants : tensors_, input.name));
      binding.file_constants.push_back(is_constant ? binding.state.back() : at::Tensor());
      check_shape(input, binding.state.back(), parts_->archive.file());
    }
    binding.file_type = binding.current_type();
    bindings_.push_back(std::move(binding));
  }
}

ExportedModule::Binding& ExportedModule::active_binding() {
  return is_training() ? bindings_.front() : bindings_.back();
}

std::vector<IValue> ExportedModule::values_of(const TensorDict& inputs) {
  const exported::Program& program = *active_binding().program;
  std::vector<IValue> values;
  for (const UserInput& input : program.user_inputs.inputs()) {
    if (input.kind == UserInput::Kind::constant) {
      values.push_back(input.constant);
      continue;
    }
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) {
      std::vector<std::string> given;
      for (const auto& [name, tensor] : inputs) given.push_back(name);
      throw UsageError("exported.inputs", {.what = program.file + ": the inputs of forward()",
                                           .got = given.empty() ? "none" : join(given, ", "),
                                           .expected = join(program.user_inputs.names(), ", ")});
    }
    values.push_back(user_value(input, found->second, program.file));
  }
  return values;
}

TensorDict ExportedModule::forward(const TensorDict& inputs) { return call(values_of(inputs)); }

TensorDict ExportedModule::forward(const std::vector<at::Tensor>& inputs) {
  const exported::Program& program = *active_binding().program;
  const std::vector<std::string>& names = program.user_inputs.names();
  if (inputs.size() != names.size())
    throw UsageError("exported.inputs", {.what = program.file + ": the inputs of forward()",
                                         .got = str(inputs.size(), " tensors"),
                                         .expected = str(names.size(), ": ", join(names, ", "))});
  TensorDict by_name;
  for (std::size_t i = 0; i < names.size(); ++i) by_name[names[i]] = inputs[i];
  return forward(by_name);
}

at::Device ExportedModule::device_for(const std::vector<IValue>& inputs) const {
  if (!tensors_.empty()) return tensors_.begin()->second.device();
  for (const IValue& input : inputs)
    if (input.isTensor()) return input.toTensor().device();
  return at::kCPU;
}

void ExportedModule::check(const std::vector<IValue>& inputs) {
  const Binding& binding = active_binding();
  const bool is_converted = binding.current_type() != binding.file_type;
  const bool is_mixed = at::autocast::is_autocast_enabled(device_for(inputs).type());
  binding.program->user_inputs.check(inputs, is_converted || is_mixed);
}

void ExportedModule::check_inputs(const TensorDict& inputs) { check(values_of(inputs)); }

TensorDict ExportedModule::call(const std::vector<IValue>& inputs) {
  check(inputs);
  Binding& binding = active_binding();
  const exported::Program& program = *binding.program;
  const at::Device device = device_for(inputs);
  std::vector<at::Tensor> state = binding.state_on(device);
  std::vector<IValue> values(program.graph.inputs.size());
  for (std::size_t i = 0; i < state.size(); ++i)
    values[static_cast<std::size_t>(program.state_position[i])] = std::move(state[i]);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    values[static_cast<std::size_t>(program.user_position[i])] = inputs[i];
  // With two programs nothing is switched: the one for evaluation was exported in evaluation mode.
  const bool training = is_training() || bindings_.size() > 1;
  const exported::Interpreter interpreter({training, device});
  const bool recomputes = binding.recomputed != nullptr && at::GradMode::is_enabled();
  const std::vector<IValue> results =
      interpreter.run(recomputes ? *binding.recomputed : program.graph, std::move(values));
  TensorDict outputs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].isNone()) continue;
    outputs[program.output_names[i]] =
        results[i].isTensor() ? results[i].toTensor() : at::scalar_tensor(results[i].toScalar());
  }
  return outputs;
}

const std::vector<std::string>& ExportedModule::input_names() const {
  return parts_->programs.front()->user_inputs.names();
}

const std::vector<std::string>& ExportedModule::output_names() const {
  return parts_->programs.front()->output_names;
}

std::optional<std::vector<std::string>> ExportedModule::set_recomputation(
    const std::optional<Recomputation>& wanted) {
  std::vector<std::string> chosen;
  // If a program cannot be recomputed, all programs stay as they were.
  std::vector<std::shared_ptr<const exported::Graph>> recomputed(bindings_.size());
  for (std::size_t i = 0; wanted && i < bindings_.size(); ++i) {
    const Binding& binding = bindings_[i];
    const exported::Graph& graph = binding.program->graph;
    const std::vector<std::string> paths = wanted->modules.empty()
                                               ? exported::layer_paths(graph)
                                               : exported::matching_paths(graph, wanted->modules);
    if (paths.empty()) {
      throw UsageError(
          "models.no-recomputation",
          {.what = "recomputation (activation_checkpointing)",
           .got = binding.program->file + ", a program without numbered layers",
           .expected = "the paths of modules to recompute",
           .hint = "set activation_checkpointing_kwargs modules=PATH:PATH; the names of "
                   "parameters, which hasten inspect prints, begin with paths"});
    }
    Recomputation all = *wanted;
    all.modules.clear();
    chosen = select_layers(paths, all);
    recomputed[i] = std::make_shared<const exported::Graph>(
        exported::with_recomputation(graph, chosen,
                                     {.policy = wanted->policy,
                                      .preserve_rng_state = wanted->preserve_rng_state,
                                      .offload = wanted->offload}));
  }
  for (std::size_t i = 0; i < bindings_.size(); ++i)
    bindings_[i].recomputed = std::move(recomputed[i]);
  return chosen;
}

void ExportedModule::train(bool on) {
  const exported::Program& program = *parts_->programs.front();
  if (!on && bindings_.size() == 1 && !program.evaluation_problems.empty())
    throw UsageError("exported.evaluation",
                     {.what = program.file + ": the program cannot be switched to evaluation",
                      .got = join(program.evaluation_problems, "; "),
                      .expected = "",
                      .hint = "export two programs, \"train\" and \"eval\" (docs/exported.md)"});
  if (on && program.was_exported_for_evaluation && !warned_of_evaluation_export_) {
    warned_of_evaluation_export_ = true;
    log_line("hasten: warning: " + program.file +
             " was exported in evaluation mode, so dropout stays off in training. Call "
             "model.train() before torch.export.export.");
  }
  Module::train(on);
}

std::shared_ptr<torch::nn::Module> ExportedModule::clone(
    const std::optional<at::Device>& device) const {
  const torch::NoGradGuard no_grad;
  auto copy = std::make_shared<ExportedModule>(parts_);
  std::set<const void*> done;
  for (const auto& [name, tensor] : tensors_) {
    if (!done.insert(tensor.unsafeGetTensorImpl()).second) continue;
    at::Tensor& target = copy->tensors_.at(name);
    target.set_data(device ? tensor.detach().to(*device, /*non_blocking=*/false, /*copy=*/true)
                           : tensor.detach().clone());
    if (can_require_grad(tensor)) target.set_requires_grad(tensor.requires_grad());
  }
  copy_lora(*this, *copy);
  for (std::size_t i = 0; i < bindings_.size(); ++i)
    copy->bindings_[i].recomputed = bindings_[i].recomputed;
  copy->Module::train(is_training());
  return copy;
}

std::shared_ptr<ExportedModule> load_exported(const std::filesystem::path& path,
                                              const ExportedOptions& options) {
  return std::make_shared<ExportedModule>(
      std::make_shared<const ExportedModule::Parts>(path, options));
}

}  // namespace hasten
