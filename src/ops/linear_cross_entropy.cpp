#include <algorithm>
#include <limits>
#include <utility>

#include "hasten/ops/ops.h"
#include "ops/adapted_weight.h"
#include "ops/cpu.h"
#include "ops/float_product.h"
#include "ops/product.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kMinRows = 32, kRowsOfTile = 64;
// The gradient of the weight is a sum over rows. As a product in float16 it must stay below 65504
// in each part. The scale of the loss does not change it, because it is computed in the forward
// pass.
constexpr std::int64_t kMaxHalfRows = 512;

struct LossOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  bool mean = true;
};

// The CPU uses no padding, so all columns are classes.
void cross_entropy_cpu(const Tensor& logits, const Tensor& labels, const Tensor& losses,
                       std::int64_t columns, std::int64_t ignore_index, double label_smoothing,
                       bool differentiates) {
  dispatch_type(logits, [&]<class T>(const RowKernels<T>& kernel, T*) {
    TORCH_CHECK(columns == logits.size(-1), "cross_entropy: got ", logits.size(-1),
                " columns, expected ", columns);
    const std::int64_t* const label = labels.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < labels.numel(); ++i) {
      TORCH_CHECK(label[i] == ignore_index || (label[i] >= 0 && label[i] < columns),
                  "linear_cross_entropy: got label ", label[i], ", expected 0 to ", columns - 1,
                  " or ", ignore_index);
    }
    for_rows(logits, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.cross_entropy(rows_of<T>(logits) + at, label + first, ignore_index,
                           static_cast<float>(label_smoothing), differentiates,
                           losses.mutable_data_ptr<float>() + first, last - first, columns);
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "cross_entropy(Tensor(a!) logits, Tensor labels, Tensor(b!) losses, int classes, "
               "int ignore_index, float label_smoothing, bool differentiates) -> ()",
               cross_entropy_cpu);
}

// Returns the type of sums, which is float for types of 16 bits.
at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

// Does the work of the kernel with LibTorch's operators, and returns the gradient of the logits.
Tensor composed_cross_entropy(const Tensor& given, const Tensor& labels, const Tensor& losses,
                              const LossOptions& options, bool differentiates) {
  const Tensor logits = given.to(losses.scalar_type());
  const Tensor log_probabilities = at::log_softmax(logits, -1);
  const Tensor counts = labels.ne(options.ignore_index).unsqueeze(1);
  const Tensor index = labels.unsqueeze(1).masked_fill(counts.logical_not(), 0);
  const double share = options.label_smoothing;
  Tensor loss = log_probabilities.gather(1, index) * -(1 - share);
  if (share > 0) loss = loss - log_probabilities.mean(1, /*keepdim=*/true) * share;
  losses.copy_(at::where(counts, loss, 0).squeeze(1));
  if (!differentiates) return {};
  const Tensor gradient =
      log_probabilities.exp_().sub_(share / static_cast<double>(logits.size(1)));
  gradient.scatter_add_(1, index, at::full_like(index, -(1 - share), gradient.options()));
  return gradient.mul_(counts).to(given.scalar_type());
}

// Sets the losses of the rows and returns the gradient of the logits. The gradient may overwrite
// the logits. The columns beyond the classes are padding; their gradient is 0.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& losses,
                     std::int64_t classes, const LossOptions& options, bool differentiates) {
  if (!has_row_kernels(logits, logits.scalar_type())) {
    const std::int64_t padding = logits.size(1) - classes;
    const Tensor gradient = composed_cross_entropy(logits.narrow(1, 0, classes), labels, losses,
                                                   options, differentiates);
    return padding == 0 || !differentiates ? gradient : at::constant_pad_nd(gradient, {0, padding});
  }
  call_operator<cross_entropy_cpu>("hasten::cross_entropy", logits, labels, losses, classes,
                                   options.ignore_index, options.label_smoothing, differentiates);
  return logits;
}

// The gradients of the sum of the losses; undefined if not requested.
struct LossGradients {
  Tensor hidden, weight, bias;
};

struct Requested {
  bool hidden = false, weight = false, bias = false;
  bool any() const { return hidden || weight || bias; }
};

Tensor bias_gradient(const Tensor& logits) {
  return is_kernel_input(logits) ? column_sum(logits)
                                 : logits.sum(0, /*keepdim=*/false, sum_type(logits.scalar_type()));
}

// Adds `part` to the sum, which may not exist yet.
void add_to(Tensor& sum, const Tensor& part) {
  if (sum.defined()) {
    sum.add_(part);
  } else {
    sum = part.to(sum_type(part.scalar_type()));
  }
}

// Returns whether products of x add to the gradient of the weight in float themselves.
bool adds_in_products(const Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) && has_device_kernels(x, x.scalar_type());
}

// Adds logits^T hidden, the gradient of the weight from some rows, to the sum, which may not exist
// yet.
void add_weight_gradient(Tensor& sum, const Tensor& logits, const Tensor& hidden) {
  if (!adds_in_products(logits)) {
    add_to(sum, product(logits.t(), hidden.t()));
  } else if (sum.defined()) {
    add_float_product(sum, logits.t(), hidden);
  } else {
    sum = float_product(logits.t(), hidden);
  }
}

// Returns x [classes] or [classes, in] in the type of products, padded with zeros to a size for
// which the device has its fastest kernels.
Tensor padded(const Tensor& x, at::ScalarType type) {
  const std::int64_t unit = device_of(x.device()).traits().product_alignment /
                            static_cast<std::int64_t>(c10::elementSize(type)),
                     classes = x.size(0), more = unit > 1 ? (unit - classes % unit) % unit : 0;
  if (more == 0) return x.to(type);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape[0] += more;
  Tensor out = at::empty(shape, x.options().dtype(type));
  out.narrow(0, 0, classes).copy_(x);
  out.narrow(0, classes, more).zero_();
  return out;
}

// Returns the number of rows that have their logits in memory at the same time. Larger parts make
// the products faster, and need fewer additions of weight gradients.
std::int64_t rows_at_once(const Tensor& hidden, const Tensor& weight) {
  const DeviceTraits& traits = device_of(hidden.device()).traits();
  const std::int64_t bytes_of_row =
      std::max<std::int64_t>(1, weight.size(0)) * static_cast<std::int64_t>(hidden.element_size());
  const std::int64_t max_rows = hidden.scalar_type() == at::kHalf && !adds_in_products(hidden)
                                    ? kMaxHalfRows
                                    : std::numeric_limits<std::int64_t>::max();
  const std::int64_t fitting =
      std::min(max_rows, std::max(kMinRows, traits.bytes_of_logits / bytes_of_row));
  // The parts have equal sizes. They are whole tiles if the device computes products in tiles.
  const std::int64_t rows = std::max<std::int64_t>(1, hidden.size(0));
  const std::int64_t parts = (rows + fitting - 1) / fitting, even = (rows + parts - 1) / parts;
  if (traits.product_alignment == 1 || fitting < kRowsOfTile) return even;
  const auto tiles = [](std::int64_t count) { return count / kRowsOfTile * kRowsOfTile; };
  return std::min(tiles(even + kRowsOfTile - 1), tiles(fitting));
}

// hidden [rows, in], weight and bias have the type of products. weight and bias have padding beyond
// the classes. Sets `losses` [rows].
LossGradients run_rows(const Tensor& hidden, const Tensor& weight,
                       const std::optional<Tensor>& bias, std::int64_t classes,
                       const Tensor& labels, const Tensor& losses, const LossOptions& options,
                       const Requested& requested) {
  const std::int64_t rows = hidden.size(0), step = rows_at_once(hidden, weight);
  LossGradients gradients;
  if (requested.hidden) gradients.hidden = at::empty_like(hidden, at::MemoryFormat::Contiguous);
  for (std::int64_t first = 0; first < rows || first == 0; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    const Tensor part = hidden.narrow(0, first, count);
    const Tensor logits =
        cross_entropy(product(part, weight, bias), labels.narrow(0, first, count),
                      losses.narrow(0, first, count), classes, options, requested.any());
    if (requested.hidden)
      gradients.hidden.narrow(0, first, count).copy_(product(logits, weight.t()));
    if (requested.weight) add_weight_gradient(gradients.weight, logits, part);
    if (requested.bias) add_to(gradients.bias, bias_gradient(logits));
  }
  for (Tensor* const each : {&gradients.weight, &gradients.bias})
    if (each->defined()) *each = each->narrow(0, 0, classes);
  return gradients;
}

// Computes the loss from all logits at once with LibTorch's operators.
Tensor whole_loss(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                  const Tensor& labels, const LossOptions& options) {
  const Tensor logits = linear(hidden, weight, bias);
  return at::cross_entropy_loss(logits.to(sum_type(logits.scalar_type())), labels, {},
                                options.mean ? at::Reduction::Mean : at::Reduction::Sum,
                                options.ignore_index, options.label_smoothing);
}

// The number by which the sum of the losses is divided.
Tensor divisor_of(const Tensor& labels, const LossOptions& options, at::ScalarType type) {
  if (!options.mean) return at::ones({}, labels.options().dtype(type));
  return labels.ne(options.ignore_index).sum().to(type);
}

// The gradients that a forward pass computed. The first backward pass takes them.
struct KeptGradients : torch::CustomClassHolder {
  LossGradients gradients;
};

// hidden is [rows, in]; the products have the type `type`.
struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                        const std::optional<Tensor>& bias, const Tensor& labels,
                        at::ScalarType type, std::int64_t ignore_index, double label_smoothing,
                        bool mean, bool records_gradients) {
    const NoAutocastGuard without_autocast;
    const LossOptions options{ignore_index, label_smoothing, mean};
    const Requested requested{records_gradients && hidden.requires_grad(),
                              records_gradients && weight.requires_grad(),
                              records_gradients && bias.has_value() && bias->requires_grad()};
    context->save_for_backward({hidden, weight, bias.value_or(Tensor()), labels});
    auto& data = context->saved_data;
    data["type"] = static_cast<std::int64_t>(type);
    data["ignore_index"] = ignore_index;
    data["label_smoothing"] = label_smoothing;
    data["mean"] = mean;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [losses, gradients] = compute(hidden, weight, bias, labels, type, options, requested);
    auto kept = c10::make_intrusive<KeptGradients>();
    kept->gradients = std::move(gradients);
    data["kept"] = c10::IValue::make_capsule(std::move(kept));
    return losses.sum().div_(divisor_of(labels, options, losses.scalar_type()));
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto saved = context->get_saved_variables();
    const Tensor &hidden = saved[0], &weight = saved[1], &bias = saved[2], &labels = saved[3];
    auto& data = context->saved_data;
    const LossOptions options{data["ignore_index"].toInt(), data["label_smoothing"].toDouble(),
                              data["mean"].toBool()};
    const Requested requested{context->needs_input_grad(0), context->needs_input_grad(1),
                              bias.defined() && context->needs_input_grad(2)};
    const auto results = [](const LossGradients& gradients) -> variable_list {
      return {gradients.hidden, gradients.weight, gradients.bias, {}, {}, {}, {}, {}, {}};
    };
    if (needs_second_derivative())
      return results(differentiable(hidden, weight, bias, labels, options, grads[0], requested));
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto kept = c10::static_intrusive_pointer_cast<KeptGradients>(data["kept"].toCapsule());
    LossGradients gradients = std::exchange(kept->gradients, {});
    const bool was_taken =
        !gradients.hidden.defined() && !gradients.weight.defined() && !gradients.bias.defined();
    // A graph that is kept may run backward twice.
    if (was_taken) {
      gradients = compute(hidden, weight, optional_if_defined(bias), labels,
                          static_cast<at::ScalarType>(data["type"].toInt()), options, requested)
                      .second;
    }
    const Tensor divisor = divisor_of(labels, options, grads[0].scalar_type());
    // If no label counts, the loss is NaN and its gradient is 0, as in PyTorch.
    const Tensor factor = at::where(divisor.eq(0), at::zeros_like(divisor), grads[0] / divisor);
    for (Tensor* const each : {&gradients.hidden, &gradients.weight, &gradients.bias})
      if (each->defined()) each->mul_(factor);
    return results(gradients);
  }

 private:
  static std::pair<Tensor, LossGradients> compute(const Tensor& hidden, const Tensor& weight,
                                                  const std::optional<Tensor>& bias,
                                                  const Tensor& labels, at::ScalarType type,
                                                  const LossOptions& options,
                                                  const Requested& requested) {
    const Tensor losses = at::empty({hidden.size(0)}, hidden.options().dtype(sum_type(type)));
    const auto padded_bias = bias ? std::make_optional(padded(*bias, type)) : std::nullopt;
    LossGradients gradients = run_rows(hidden.to(type), padded(weight, type), padded_bias,
                                       weight.size(0), labels, losses, options, requested);
    return {losses, std::move(gradients)};
  }

  static LossGradients differentiable(const Tensor& hidden, const Tensor& weight,
                                      const Tensor& bias, const Tensor& labels,
                                      const LossOptions& options, const Tensor& grad,
                                      const Requested& requested) {
    const Tensor loss = whole_loss(hidden, weight, bias, labels, options);
    LossGradients gradients;
    variable_list inputs;
    std::vector<Tensor*> results;
    const auto request = [&](bool is_requested, const Tensor& input, Tensor& result) {
      if (!is_requested) return;
      inputs.push_back(input);
      results.push_back(&result);
    };
    request(requested.hidden, hidden, gradients.hidden);
    request(requested.weight, weight, gradients.weight);
    request(requested.bias, bias, gradients.bias);
    const variable_list found =
        torch::autograd::grad({loss}, inputs, {grad}, /*retain_graph=*/true, /*create_graph=*/true);
    for (std::size_t i = 0; i < results.size(); ++i) *results[i] = found[i];
    return gradients;
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                            const Tensor& labels, std::int64_t ignore_index, double label_smoothing,
                            bool mean) {
  TORCH_CHECK(hidden.dim() >= 1 && weight.dim() == 2 && hidden.size(-1) == weight.size(1),
              "linear_cross_entropy: got hidden ", hidden.sizes(), " and weight ", weight.sizes(),
              ", expected hidden [..., ", weight.dim() == 2 ? weight.size(1) : 0, "]");
  TORCH_CHECK(labels.scalar_type() == at::kLong &&
                  labels.sizes() == hidden.sizes().slice(0, hidden.dim() - 1),
              "linear_cross_entropy: got labels ", labels.sizes(), " of ", labels.scalar_type(),
              ", expected a Long for each row of hidden ", hidden.sizes());
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
              "linear_cross_entropy: got a bias of another size than the ", weight.size(0),
              " classes");
  TORCH_CHECK(label_smoothing >= 0 && label_smoothing <= 1,
              "linear_cross_entropy: got label_smoothing ", label_smoothing, ", expected 0 to 1");
  const Tensor rows = as_rows(hidden), targets = labels.reshape({-1}).contiguous();
  if (adapter_of(weight, WeightLayout::out_in))
    return whole_loss(rows, weight, bias, targets, {ignore_index, label_smoothing, mean});
  return LinearCrossEntropy::apply(rows, weight, optional_if_defined(bias), targets,
                                   product_type(weight), ignore_index, label_smoothing, mean,
                                   at::GradMode::is_enabled());
}

}  // namespace hasten::ops
