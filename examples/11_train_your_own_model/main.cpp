// The Trainer with a network that does not use hasten, and with batches that are a struct.
#include <hasten/base/files.h>
#include <hasten/hasten.h>
#include <torch/torch.h>

#include <iostream>

#include "digits.h"

using namespace torch::nn;

struct Net : Module {
  Net() { register_module("layers", layers); }
  torch::Tensor forward(const torch::Tensor& images) { return layers->forward(images); }
  Sequential layers{Conv2d(1, 16, 3), ReLU(),    Conv2d(16, 16, 3), ReLU(),
                    MaxPool2d(2),     Flatten(), Linear(256, 10)};
};

static int train(int argc, char** argv) {
  hasten::TrainingArguments arguments{.output_dir = hasten::temporary_folder() / "hasten-digits",
                                      .per_device_train_batch_size = 32,
                                      .num_train_epochs = 4,
                                      .learning_rate = 3e-3,
                                      .logging_strategy = hasten::IntervalStrategy::epoch,
                                      .eval_strategy = hasten::IntervalStrategy::epoch,
                                      .save_strategy = hasten::SaveStrategy::no};
  hasten::ArgumentParser parser("Trains a network of your own on images of digits.");
  parser.add(arguments);
  if (const auto exit_code = parser.parse_or_report(argc, argv)) return *exit_code;

  torch::manual_seed(42);
  const auto net = std::make_shared<Net>();
  const auto compute_loss = [](Net& net, const Digit& batch) {
    const auto logits = net.forward(batch.image);
    const auto loss = functional::cross_entropy(logits, batch.label);
    return hasten::ModelOutput{.loss = loss, .logits = logits};
  };
  hasten::Trainer trainer(net, arguments,
                          {.train_dataset = hasten::TrainerDataset(Digits(4000, 1)),
                           .eval_dataset = hasten::TrainerDataset(Digits(1001, 2)),
                           .compute_loss = compute_loss,
                           .labels = [](const Digit& batch) { return batch.label; },
                           .compute_metrics = std::make_shared<hasten::Accuracy>()});
  trainer.train();
  trainer.save_model();  // model.safetensors, with the names of the network
  if (!trainer.is_world_process_zero()) return 0;
  for (const hasten::LogEntry& entry : trainer.state().log_history) {
    if (entry.contains("eval_accuracy"))
      std::cout << "epoch " << entry.at("epoch") << ": loss "
                << hasten::fixed(entry.at("eval_loss"), 4) << ", accuracy "
                << hasten::fixed(entry.at("eval_accuracy"), 4) << '\n';
  }
  return 0;
}

int main(int argc, char** argv) {
  return hasten::run_main([&] { return train(argc, argv); });
}
