// plain.cpp with hasten: four more lines (+) and two fewer (-), and the schedule and progress bar
// of the loop in Hugging Face's documentation, which need a loader that, unlike torch::data's, has
// a length.
#include <torch/torch.h>

#include <hasten/hasten.h>  // +
#include <cstdio>

#include "spirals.h"

int main() {
  torch::manual_seed(42);
  hasten::Accelerator accelerator;  // +   (- torch::Device device(...);)
  Net net;
  // -   net->to(device);
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  auto batches = hasten::make_loader(spirals(4096).map(torch::data::transforms::Stack<>()),
                                     {.batch_size = 32});
  auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);  // +

  // Made with what prepare returned, as in the documentation. It counts optimizer steps.
  const std::int64_t num_epochs = 5, num_training_steps = num_epochs * train_loader.size();
  auto lr_scheduler =
      hasten::get_scheduler("linear", optimizer, /*num_warmup_steps=*/0, num_training_steps);
  hasten::ProgressBar progress_bar(num_training_steps);

  double last = 0;
  for (std::int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    for (auto& batch : train_loader) {
      optimizer.zero_grad();
      // The loss is computed in float, whatever mixed precision hasten launch asks for.
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
