#include "hasten/trainer/train_trial.h"

#include <memory>

#include "hasten/accelerator.h"
#include "options/training_rules.h"
#include "trainer/best_metric.h"
#include "trainer/restarted_job.h"

namespace hasten {
namespace {

double reported_value(const Metrics& metrics, const std::string& name) {
  return find_metric(metrics, name, "the metric of a trial");
}

// Reports each evaluation to the trial, and ends the run when the trial is to stop.
class TrialReporter : public TrainerCallback {
 public:
  TrialReporter(Trial& trial, std::string metric) : trial_(trial), metric_(std::move(metric)) {}

  void on_evaluate(const TrainerEvent& event, TrainerControl& control,
                   const Metrics& metrics) override {
    last_value_ = reported_value(metrics, metric_);
    last_step_ = event.state.global_step;
    trial_.report(last_step_, *last_value_);
    if (trial_.should_stop()) control.should_training_stop = true;
  }
  // An interrupted search does not wait for the next evaluation.
  void on_step_end(const TrainerEvent&, TrainerControl& control, double) override {
    if (trial_.should_stop()) control.should_training_stop = true;
  }
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }

  // Returns the value of the evaluation after this step, or nullopt if there was none.
  std::optional<double> value_at(std::int64_t step) const {
    return last_step_ == step ? last_value_ : std::nullopt;
  }

 private:
  Trial& trial_;
  std::string metric_;
  std::optional<double> last_value_;
  std::int64_t last_step_ = -1;
};

// Removes a callback when it is destroyed.
class CallbackRemover {
 public:
  CallbackRemover(Trainer& trainer, std::shared_ptr<TrainerCallback> callback)
      : trainer_(trainer), callback_(std::move(callback)) {}
  CallbackRemover(const CallbackRemover&) = delete;
  CallbackRemover& operator=(const CallbackRemover&) = delete;
  ~CallbackRemover() { trainer_.remove_callback(callback_); }

 private:
  Trainer& trainer_;
  std::shared_ptr<TrainerCallback> callback_;
};

std::string metric_of(const TrainingArguments& arguments) {
  const std::string& name = arguments.metric_for_best_model;
  return name.empty() ? "eval_loss" : config::eval_metric_name(name);
}

}  // namespace

std::optional<double> train_trial(Trainer& trainer, Trial& trial) {
  return train_trial(trainer, trial, metric_of(trainer.args()));
}

std::optional<double> train_trial(Trainer& trainer, Trial& trial, const std::string& metric) {
  const auto reports = std::make_shared<TrialReporter>(trial, metric);
  trainer.add_callback(reports);
  const CallbackRemover remover(trainer, reports);  // the trial may not outlive this call
  // A run that continues would not report the earlier evaluations.
  if (trainer.accelerator().is_main_process()) unmark_job(trainer.args().output_dir);
  trainer.train();
  if (trial.should_stop()) return std::nullopt;
  if (!trainer.args().load_best_model_at_end) {
    if (const auto last = reports->value_at(trainer.state().global_step)) return last;
  }
  return reported_value(trainer.evaluate(), metric);
}

}  // namespace hasten
