#include "hasten/prepare/detail/open_window.h"

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/window_state.h"

namespace hasten {
namespace {

constexpr const char *kScale = "loss_scale", *kGradient = "gradient.";
// The number of values in the tensor of a window.
constexpr std::int64_t kWindowFieldCount = 5;

std::string window_name(std::size_t number) { return str("window.", number); }
std::string models_name(std::size_t number) { return str("window.", number, ".models"); }

[[noreturn]] void throw_bad_state(const std::string& got) {
  throw DataError("checkpoint.window", {.what = "OpenWindows::load_state_dict()",
                                        .got = got,
                                        .expected = "the tensors of OpenWindows::state_dict()"});
}

// Returns a contiguous CPU tensor of one dimension and this type.
at::Tensor numbers_of(const TensorDict& state, const std::string& name, at::ScalarType type) {
  const auto found = state.find(name);
  if (found == state.end()) throw_bad_state("no tensor " + name);
  const at::Tensor& tensor = found->second;
  if (!tensor.defined() || tensor.dim() != 1 || tensor.scalar_type() != type)
    throw_bad_state(str("a wrong shape or type of ", name));
  return tensor.to(at::kCPU).contiguous();
}

double scale_of(const TensorDict& state) {
  const at::Tensor scale = numbers_of(state, kScale, at::kDouble);
  if (scale.numel() != 1) throw_bad_state(str("a wrong shape or type of ", kScale));
  return scale.item<double>();
}

// Returns the number as an integer. Throws unless it is whole, at least 0 and below 2^63.
std::int64_t count_of(double number) {
  if (number >= 0 && number < 0x1p63 && number == std::trunc(number))
    return static_cast<std::int64_t>(number);
  throw_bad_state(str("the number ", number, " instead of a count"));
}

OpenWindow window_of(const TensorDict& state, std::size_t number) {
  const at::Tensor numbers = numbers_of(state, window_name(number), at::kDouble),
                   models = numbers_of(state, models_name(number), at::kLong);
  if (numbers.numel() != kWindowFieldCount)
    throw_bad_state(str("a wrong shape or type of ", window_name(number)));
  const double* const value = numbers.const_data_ptr<double>();
  const auto* const model = models.const_data_ptr<std::int64_t>();
  return {.models = {model, model + models.numel()},
          .micro_batches = count_of(value[0]),
          .capacity = count_of(value[1]),
          .backward_passes = count_of(value[2]),
          .rows = count_of(value[3]),
          .weight = value[4]};
}

}  // namespace

TensorDict OpenWindows::state_dict() const {
  check_windows_resumable(*this, "OpenWindows::state_dict()");
  TensorDict state = {{kScale, at::full({1}, loss_scale, at::kDouble)}};
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const OpenWindow& window = windows[i];
    state[window_name(i)] =
        at::tensor({static_cast<double>(window.micro_batches), static_cast<double>(window.capacity),
                    static_cast<double>(window.backward_passes), static_cast<double>(window.rows),
                    window.weight},
                   at::kDouble);
    state[models_name(i)] = at::tensor(window.models, at::kLong);
  }
  for (const auto& [name, gradient] : gradients) state[kGradient + name] = gradient;
  return state;
}

void OpenWindows::load_state_dict(const TensorDict& state) {
  OpenWindows read;
  read.loss_scale = scale_of(state);
  while (state.contains(window_name(read.windows.size())))
    read.windows.push_back(window_of(state, read.windows.size()));
  for (const auto& [name, tensor] : state) {
    if (starts_with(name, kGradient))
      read.gradients[name.substr(std::string(kGradient).size())] = tensor;
  }
  if (state.size() != 1 + 2 * read.windows.size() + read.gradients.size())
    throw_bad_state("other tensors");
  *this = std::move(read);
}

}  // namespace hasten
