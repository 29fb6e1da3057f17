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

// Each step has a slot. The slot of the open step is after those of the closed steps.
class IndexedStepSums : public StepSums {
 public:
  explicit IndexedStepSums(at::Device device) : slots_(zeros_on(device, {kCapacity + 1})) {}

  void add(const at::Tensor& loss, double items) override {
    const torch::NoGradGuard no_grad;
    open_slot().add_(loss.detach().reshape({}).to(slots_.device()), items);
  }
  void add(const at::Tensor& loss, const at::Tensor& items) override {
    const torch::NoGradGuard no_grad;
    open_slot().add_(loss.detach().reshape({}).to(slots_.options()) * items);
  }
  void close() override { ++closed_; }

  Result take(const DeferredScalar& extra) override {
    const torch::NoGradGuard no_grad;
    at::Tensor all = slots_;
    const bool adds = extra.on_device().defined() && extra.on_device().device() == slots_.device();
    if (adds) all = at::cat({slots_, extra.on_device().reshape({1}).to(slots_.scalar_type())});
    std::vector<double> numbers = numbers_of(all);
    const double other = adds ? numbers.back() : extra.value();
    const double open = numbers[static_cast<std::size_t>(closed_)];
    numbers.resize(static_cast<std::size_t>(closed_));
    slots_.zero_();
    closed_ = 0;
    if (open != 0) set_open(open);
    return {.sums = std::move(numbers), .extra = other};
  }

  double open() const override { return DeferredScalar(open_slot()); }
  void set_open(double sum) override {
    const torch::NoGradGuard no_grad;
    open_slot().fill_(sum);
  }
  std::vector<at::Tensor> tensors() const override { return {slots_}; }

 protected:
  virtual at::Tensor open_slot() const { return slots_.select(0, closed_); }

  at::Tensor slots_;
  std::int64_t closed_ = 0;
};

// A graph repeats an address, so the sum of the open step stays at one address. No graph repeats
// the end of a step, which moves the sum to a slot.
class GraphStepSums final : public IndexedStepSums {
 public:
  explicit GraphStepSums(at::Device device)
      : IndexedStepSums(device), open_(zeros_on(device, {})) {}

  void close() override {
    const torch::NoGradGuard no_grad;
    slots_.select(0, closed_).copy_(open_);
    open_.zero_();
    IndexedStepSums::close();
  }
  Result take(const DeferredScalar& extra) override {
    const torch::NoGradGuard no_grad;
    slots_.select(0, closed_).copy_(open_);
    open_.zero_();
    return IndexedStepSums::take(extra);
  }
  std::vector<at::Tensor> tensors() const override { return {slots_, open_}; }

 private:
  at::Tensor open_slot() const override { return open_; }

  at::Tensor open_;
};

// The index of a slot would be part of a compiled program, so each step shifts the closed sums by
// one.
class CompiledStepSums final : public StepSums {
 public:
  explicit CompiledStepSums(at::Device device)
      : open_(zeros_on(device, {})), closed_sums_(zeros_on(device, {kCapacity})) {}

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

  // Reads `extra` separately, because a program that combines both would have to be compiled.
  Result take(const DeferredScalar& extra) override {
    std::vector<double> numbers = numbers_of(closed_sums_);
    numbers.erase(numbers.begin(), numbers.end() - closed_);
    closed_ = 0;
    return {.sums = std::move(numbers), .extra = extra.value()};
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
  return std::make_unique<IndexedStepSums>(device);
}

std::unique_ptr<StepSums> make_graph_step_sums(at::Device device) {
  return std::make_unique<GraphStepSums>(device);
}

std::unique_ptr<StepSums> make_compiled_step_sums(at::Device device) {
  return std::make_unique<CompiledStepSums>(device);
}

}  // namespace hasten
