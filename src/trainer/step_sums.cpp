#include "trainer/step_sums.h"

#include <torch/torch.h>

#include "device/device.h"

namespace hasten {
namespace {

at::Tensor zeros_on(at::Device device, at::IntArrayRef sizes) {
  const bool has_double = device_of(device).traits().has_double;
  return at::zeros(sizes, has_double ? at::kDouble : at::kFloat).to(device);
}

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU).to(at::kDouble).contiguous();
  const double* const first = host.const_data_ptr<double>();
  return {first, first + host.numel()};
}

// Each step has a place. The place of the open step is after those of the closed steps.
class PlacedSums : public StepSums {
 public:
  explicit PlacedSums(at::Device device) : places_(zeros_on(device, {kSteps + 1})) {}

  void add(const at::Tensor& loss, double items) override {
    const torch::NoGradGuard no_grad;
    open_place().add_(loss.detach().reshape({}).to(places_.device()), items);
  }
  void add(const at::Tensor& loss, const at::Tensor& items) override {
    const torch::NoGradGuard no_grad;
    open_place().add_(loss.detach().reshape({}).to(places_.options()) * items);
  }
  void close() override { ++closed_; }

  Taken take(const DeferredScalar& also) override {
    const torch::NoGradGuard no_grad;
    at::Tensor all = places_;
    const bool adds = also.on_device().defined() && also.on_device().device() == places_.device();
    if (adds) all = at::cat({places_, also.on_device().reshape({1}).to(places_.scalar_type())});
    std::vector<double> numbers = numbers_of(all);
    const double other = adds ? numbers.back() : also.value();
    const double open = numbers[static_cast<std::size_t>(closed_)];
    numbers.resize(static_cast<std::size_t>(closed_));
    places_.zero_();
    closed_ = 0;
    if (open != 0) set_open(open);
    return {.of_steps = std::move(numbers), .also = other};
  }

  double open() const override { return DeferredScalar(open_place()); }
  void set_open(double sum) override {
    const torch::NoGradGuard no_grad;
    open_place().fill_(sum);
  }
  std::vector<at::Tensor> tensors() const override { return {places_}; }

 protected:
  virtual at::Tensor open_place() const { return places_.select(0, closed_); }

  at::Tensor places_;
  std::int64_t closed_ = 0;
};

// A graph repeats an address, so the sum of the open step stays at one place. No graph repeats the
// end of a step, which moves the sum to another place.
class RepeatedSums final : public PlacedSums {
 public:
  explicit RepeatedSums(at::Device device) : PlacedSums(device), open_(zeros_on(device, {})) {}

  void close() override {
    const torch::NoGradGuard no_grad;
    places_.select(0, closed_).copy_(open_);
    open_.zero_();
    PlacedSums::close();
  }
  Taken take(const DeferredScalar& also) override {
    const torch::NoGradGuard no_grad;
    places_.select(0, closed_).copy_(open_);
    open_.zero_();
    return PlacedSums::take(also);
  }
  std::vector<at::Tensor> tensors() const override { return {places_, open_}; }

 private:
  at::Tensor open_place() const override { return open_; }

  at::Tensor open_;
};

// A place would be part of a compiled program, so each step shifts the closed sums by one.
class ShiftedSums final : public StepSums {
 public:
  explicit ShiftedSums(at::Device device)
      : open_(zeros_on(device, {})), closed_sums_(zeros_on(device, {kSteps})) {}

  void add(const at::Tensor& loss, double items) override {
    const torch::NoGradGuard no_grad;
    open_ = open_ + loss.detach().reshape({}).to(open_.scalar_type()) * items;
  }
  void add(const at::Tensor& loss, const at::Tensor& items) override {
    const torch::NoGradGuard no_grad;
    open_ = open_ + loss.detach().reshape({}).to(open_.scalar_type()) * items;
  }
  void close() override {
    const torch::NoGradGuard no_grad;
    closed_sums_ = at::cat({closed_sums_.slice(0, 1), open_.reshape({1})});
    open_ = at::zeros_like(open_);
    ++closed_;
  }

  // Reads `also` separately, because a program that combines both would have to be compiled.
  Taken take(const DeferredScalar& also) override {
    std::vector<double> numbers = numbers_of(closed_sums_);
    numbers.erase(numbers.begin(), numbers.end() - closed_);
    closed_ = 0;
    return {.of_steps = std::move(numbers), .also = also.value()};
  }

  double open() const override { return DeferredScalar(open_); }
  void set_open(double sum) override {
    open_ = at::full({}, sum, open_.scalar_type()).to(open_.device());
  }
  std::vector<at::Tensor> tensors() const override { return {open_, closed_sums_}; }

 private:
  at::Tensor open_, closed_sums_;  // the newest sum last
  std::int64_t closed_ = 0;
};

}  // namespace

std::unique_ptr<StepSums> make_step_sums(at::Device device) {
  if (device_of(device).traits().needs_static_shapes) return make_compiled_step_sums(device);
  return std::make_unique<PlacedSums>(device);
}

std::unique_ptr<StepSums> make_repeated_step_sums(at::Device device) {
  return std::make_unique<RepeatedSums>(device);
}

std::unique_ptr<StepSums> make_compiled_step_sums(at::Device device) {
  return std::make_unique<ShiftedSums>(device);
}

}  // namespace hasten
