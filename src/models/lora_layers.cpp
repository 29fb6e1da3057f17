#include "models/lora_layers.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/ops/ops.h"
#include "ops/cpu.h"

namespace hasten {
namespace {

// Gives access to the registered parameters of a module, which has no function to replace them.
struct RegisteredTensors : torch::nn::Module {
  static auto parameters_of() { return &RegisteredTensors::parameters_; }
};

void replace_parameter(torch::nn::Module& module, const at::Tensor& weight) {
  (module.*RegisteredTensors::parameters_of())["weight"] = weight;
}

std::string join_paths(const std::string& outer, const std::string& inner) {
  return outer.empty() || inner.empty() ? outer + inner : outer + "." + inner;
}

// A factor is float even if the weight has 16 bits, as in PEFT.
at::TensorOptions factor_options(const at::Tensor& weight) {
  const bool is_reduced =
      weight.scalar_type() == at::kHalf || weight.scalar_type() == at::kBFloat16;
  return weight.options().dtype(is_reduced ? at::kFloat : weight.scalar_type());
}

std::shared_ptr<LoraFactor> make_factor(const at::Tensor& values) {
  return std::make_shared<LoraFactor>(values);
}

double scale_of(const LoraOptions& options) {
  const auto r = static_cast<double>(options.r);
  return options.alpha / (options.use_rslora ? std::sqrt(r) : r);
}

// Counts how many modules have registered each parameter.
std::map<const void*, int> registrations(const torch::nn::Module& root) {
  std::map<const void*, int> counts;
  std::set<const torch::nn::Module*> seen;
  for (const auto& module : root.modules()) {
    if (!seen.insert(module.get()).second) continue;
    for (const at::Tensor& tensor : module->parameters(/*recurse=*/false))
      ++counts[tensor.unsafeGetTensorImpl()];
  }
  return counts;
}

}  // namespace

LoraAdapter::LoraAdapter(const at::Tensor& weight, ops::WeightLayout layout,
                         std::shared_ptr<const LoraOptions> options)
    : layout_(layout), options_(std::move(options)), scale_(scale_of(*options_)) {
  const bool is_out_in = layout == ops::WeightLayout::out_in;
  const std::int64_t out = weight.size(is_out_in ? 0 : 1), in = weight.size(is_out_in ? 1 : 0);
  const torch::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(in));  // as torch.nn.Linear
  a_ = make_factor(at::empty({options_->r, in}, factor_options(weight)).uniform_(-bound, bound));
  b_ = make_factor(at::zeros({out, options_->r}, factor_options(weight)));
}

at::Tensor LoraAdapter::apply(const at::Tensor& x, const at::Tensor& y) const {
  if (is_merged_) return y;
  const at::Tensor &a = a_->weight, &b = b_->weight;
  const bool casts = at::autocast::is_autocast_enabled(x.device().type());
  const at::Tensor kept =
      ops::dropout(casts ? x : x.to(a.scalar_type()), options_->dropout, a_->is_training());
  const at::Tensor low = ops::linear(kept, a, {});
  // The sum is computed in float and is rounded once, as in PEFT.
  if (!casts && y.scalar_type() != b.scalar_type())
    return (y + ops::linear(low, b, {}) * scale_).to(y.scalar_type());
  return at::addmm(ops::as_rows(y), ops::as_rows(low), b.t(), 1, scale_).view(y.sizes());
}

at::Tensor LoraAdapter::delta() const {
  const at::Tensor product = at::mm(b_->weight, a_->weight) * scale_;
  return layout_ == ops::WeightLayout::out_in ? product : product.t();
}

std::vector<AdaptableLayer> adaptable_layers(torch::nn::Module& root) {
  const auto modules = root.named_modules();
  const std::map<const void*, int> counts = registrations(root);
  std::vector<AdaptableLayer> found;
  std::set<const torch::nn::Module*> seen;
  const auto add = [&](const std::string& path, const std::shared_ptr<torch::nn::Module>& owner,
                       bool is_transposed, std::function<void(const at::Tensor&)> set) {
    const auto own = owner->named_parameters(/*recurse=*/false);
    const at::Tensor* const weight = own.find("weight");
    if (weight == nullptr || weight->dim() != 2 || !seen.insert(owner.get()).second) return;
    found.push_back(
        {.path = path,
         .layout = is_transposed ? ops::WeightLayout::in_out : ops::WeightLayout::out_in,
         .owner = owner,
         .weight = *weight,
         .is_shared = counts.at(weight->unsafeGetTensorImpl()) > 1,
         .set_weight = [owner, set = std::move(set)](const at::Tensor& tensor) {
           set(tensor);
           replace_parameter(*owner, tensor);
         }});
  };
  for (const auto& item : modules) {
    const auto& module = item.value();
    if (auto* const linear = module->as<torch::nn::LinearImpl>()) {
      add(item.key(), module, false,
          [linear](const at::Tensor& tensor) { linear->weight = tensor; });
    } else if (auto* const host = dynamic_cast<LinearLayers*>(module.get())) {
      for (const LinearLayer& layer : host->linear_layers()) {
        const std::string path = join_paths(item.key(), layer.path);
        if (const auto* const owner = modules.find(path))
          add(path, *owner, layer.is_transposed,
              [host, inner = layer.path](const at::Tensor& tensor) {
                host->set_linear_weight(inner, tensor);
              });
      }
    }
  }
  return found;
}

std::vector<LoraLayer> lora_layers(const torch::nn::Module& module) {
  std::vector<LoraLayer> found;
  std::set<const torch::nn::Module*> seen;
  const auto add = [&](const std::string& path, const std::shared_ptr<torch::nn::Module>& owner,
                       const torch::nn::Module& each) {
    if (!seen.insert(&each).second) return;
    const auto own = each.named_parameters(/*recurse=*/false);
    const at::Tensor* const weight = own.find("weight");
    if (weight == nullptr) return;
    if (auto adapter = std::dynamic_pointer_cast<LoraAdapter>(ops::adapter_of(*weight)))
      found.push_back({path, owner, *weight, std::move(adapter)});
  };
  // The module itself may belong to no shared_ptr.
  add("", nullptr, module);
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    add(item.key(), item.value(), *item.value());
  return found;
}

LoraTensorKinds::LoraTensorKinds(const torch::nn::Module& module, const LoraOptions& options)
    : options_(options) {
  for (const LoraLayer& layer : lora_layers(module)) adapted_.insert(layer.path);
}

LoraTensorKind LoraTensorKinds::of(const std::string& name) const {
  const std::string owner = owner_of(name);
  if ((ends_with(owner, "lora_A") || ends_with(owner, "lora_B")) && is_adapted(owner_of(owner)))
    return LoraTensorKind::factor;
  if (contains_path(options_.modules_to_save, name)) return LoraTensorKind::saved_module;
  if (options_.bias == LoraBias::all && name.find("bias") != std::string::npos)
    return LoraTensorKind::bias;
  if (options_.bias == LoraBias::lora_only && is_adapted(owner) && ends_with(name, "bias"))
    return LoraTensorKind::bias;
  return LoraTensorKind::none;
}

std::set<const void*> adapter_parameters(const torch::nn::Module& module,
                                         const LoraOptions& options) {
  const LoraTensorKinds kinds(module, options);
  std::set<const void*> found;
  for (const auto& item : module.named_parameters()) {
    if (kinds.of(item.key()) != LoraTensorKind::none)
      found.insert(item.value().unsafeGetTensorImpl());
  }
  return found;
}

std::string owner_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool contains_path(const std::vector<std::string>& paths, const std::string& inner) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return inner == path || starts_with(inner, path + ".");
  });
}

bool matches_path(const std::string& entry, const std::string& path) {
  if (path == entry || ends_with(path, "." + entry)) return true;
  if (entry.find_first_of("*+?()[]{}|^$\\") == std::string::npos) return false;
  try {
    return std::regex_match(path, std::regex(entry));
  } catch (const std::regex_error& error) {
    throw UsageError("models.lora-options", {.what = "the pattern '" + entry + "' of an adapter",
                                             .got = error.what(),
                                             .expected = "an ECMAScript expression"});
  }
}

}  // namespace hasten
