// plain.cpp with hasten: four lines are new (+) and two are gone (-). The program also adds the
// schedule and the progress bar of the loop in Hugging Face's documentation. They need the length
// of the loader, which torch::data's loaders do not have.
#include <torch/torch.h>

#include <hasten/hasten.h>  // +
#include <cstdio>

#include "../common/spirals.h"

int main() {
  torch::manual_seed(42);
  hasten::Accelerator accelerator;  // +   (- torch::Device device(...);)
  Net net;
  // -   net->to(device);
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  auto batches = hasten::make_loader(spirals(4096), {.batch_size = 32});
  auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);  // +

  // The schedule uses the prepared optimizer, and counts optimizer steps.
  const std::int64_t num_epochs = 5, num_training_steps = num_epochs * train_loader.size();
  auto lr_scheduler =
      hasten::get_scheduler("linear", optimizer, /*num_warmup_steps=*/0, num_training_steps);
  hasten::ProgressBar progress_bar(num_training_steps);

  double last = 0;
  for (std::int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    for (auto& batch : train_loader) {
      optimizer.zero_grad();
      // Computes the loss in float with any mixed precision that hasten launch sets.
      auto loss =
          torch::nn::functional::cross_entropy(model(batch.data).to(torch::kFloat), batch.target);
      accelerator.backward(loss);  // +   (- loss.backward();)
      optimizer.step();
      lr_scheduler.step();
      last = loss.item<double>();
      progress_bar.set_postfix("loss " + hasten::fixed(last, 4));
      progress_bar.update(1);
    }
    accelerator.print("epoch " + std::to_string(epoch) + " loss " + hasten::fixed(last, 4));
  }
}
