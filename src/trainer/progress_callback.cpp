#include "hasten/trainer/progress_callback.h"

#include <cmath>

#include "device/device.h"
#include "hasten/base/text.h"
#include "trainer/loss_reading.h"

namespace hasten {
namespace {

constexpr std::int64_t kCompilingSteps = 2;  // the first steps, which compile

// Returns the Hugging Face Trainer's line: the metrics with four digits, without the FLOP.
std::string log_line(const Metrics& logs) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : logs) {
    if (key != "total_flos") parts.push_back(str('\'', key, "': ", significant(value, 4)));
  }
  return "{" + join(parts, ", ") + "}";
}

}  // namespace

void ProgressCallback::on_train_begin(const TrainerEvent& event, TrainerControl&) {
  if (!event.state.is_world_process_zero) return;
  training_ = std::make_unique<ProgressBar>(
      event.state.max_steps,
      ProgressBarOptions{.description = "Training", .unit = "step", .enabled = options_.bar});
  training_->start_at(event.state.global_step);
  average_ = 0;
  steps_ = 0;
  compiles_ = device_of(device_of_model(event.model)).traits().needs_static_shapes;
  shows_logs_ = shows_logged_losses(event.model, event.args);
  if (compiles_) training_->show("compiling");
}

void ProgressCallback::on_step_end(const TrainerEvent&, TrainerControl&, double loss) {
  if (!training_) return;
  ++steps_;
  if (compiles_ && steps_ == kCompilingSteps) training_->set_postfix("");
  if (shows_logs_) return training_->update(1);
  if (std::isfinite(loss)) average_ = average_ == 0 ? loss : 0.95 * average_ + 0.05 * loss;
  training_->set_postfix(std::isfinite(loss) ? "loss " + fixed(average_, 4) : "loss not finite");
  training_->update(1);
}

void ProgressCallback::on_log(const TrainerEvent& event, TrainerControl&, const Metrics& logs) {
  if (!options_.lines || !event.state.is_world_process_zero) return;
  if (evaluation_) evaluation_->close();
  const auto loss = logs.find("loss");
  if (training_ && shows_logs_ && loss != logs.end())
    training_->set_postfix("loss " + fixed(loss->second, 4));
  if (training_) {
    training_->write(log_line(logs));
  } else {
    std::fprintf(stderr, "%s\n", log_line(logs).c_str());
  }
}

void ProgressCallback::on_evaluate_begin(const TrainerEvent& event, std::int64_t batches) {
  if (!event.state.is_world_process_zero) return;
  evaluation_ = std::make_unique<ProgressBar>(
      batches,
      ProgressBarOptions{
          .description = "Evaluating", .unit = "batch", .enabled = options_.bar, .leave = false});
}

void ProgressCallback::on_prediction_step(const TrainerEvent&, TrainerControl&) {
  if (evaluation_) evaluation_->update(1);
}

void ProgressCallback::on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) {
  evaluation_.reset();
}
void ProgressCallback::on_predict(const TrainerEvent&, TrainerControl&, const Metrics&) {
  evaluation_.reset();
}

void ProgressCallback::on_train_end(const TrainerEvent&, TrainerControl&) {
  evaluation_.reset();  // a signal may have stopped the evaluation
  training_.reset();
}

}  // namespace hasten
