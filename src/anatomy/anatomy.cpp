#include "hasten/anatomy/anatomy.h"

#include "anatomy/recorder.h"

namespace hasten {

Anatomy::Anatomy(AnatomyOptions options, std::shared_ptr<StepObservers> observers)
    : recorder_(std::make_shared<Recorder>(options)),
      observers_(observers ? std::move(observers) : std::make_shared<StepObservers>()) {
  recorder_->start();
  observers_->add(recorder_);
}

Anatomy::Anatomy(Anatomy&&) noexcept = default;

Anatomy::~Anatomy() {
  if (!recorder_) return;  // moved from
  recorder_->stop();
  observers_->remove(*recorder_);
}

void Anatomy::watch(torch::nn::Module& model) { recorder_->on_model(model); }
void Anatomy::watch(torch::optim::Optimizer& optimizer) {
  watched_.emplace_back(&optimizer, [](torch::optim::Optimizer*) {});
  recorder_->on_optimizer(watched_.back());
}
void Anatomy::watch_batch(const std::vector<at::Tensor>& tensors) { recorder_->on_batch(tensors); }

void Anatomy::watch_functionality(const std::vector<at::Tensor>& tensors) {
  recorder_->on_functionality(tensors);
}

void Anatomy::step() { recorder_->on_step(); }

std::string Anatomy::current_module() { return Recorder::current_module(); }

bool Anatomy::finished() const { return !recorder_->listening(); }
anatomy::Report Anatomy::report() { return recorder_->report(); }

}  // namespace hasten
