// Compares local SGD, in which processes exchange weights every few steps, with the same training
// with an exchange of gradients in every step: the accuracy of both, and the bytes exchanged.
//
//   $ hasten launch -n 2 example_07_local_sgd
#include <torch/torch.h>

#include <hasten/hasten.h>

#include "../01_accelerate_a_loop/spirals.h"

namespace {

constexpr std::int64_t kEpochs = 12, kRowsPerStep = 60;

struct Result {
  double accuracy = 0;
  std::int64_t exchanges = 0;  // of the whole model's gradients or weights
};

double accuracy_of(hasten::Accelerator& accelerator, auto& model, auto& loader) {
  const torch::NoGradGuard no_grad;
  double right = 0, rows = 0;
  for (auto& batch : loader) {
    const at::Tensor hits =
        accelerator.gather_for_metrics(model(batch.data).argmax(1) == batch.target);
    right += hits.sum().template item<double>();
    rows += static_cast<double>(hits.size(0));
  }
  return right / rows;
}

Result train(hasten::Accelerator& accelerator, std::int64_t local_sgd_steps) {
  torch::manual_seed(42);
  Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  const auto stacked = [](std::int64_t rows) {
    return spirals(rows).map(torch::data::transforms::Stack<>());
  };
  auto train_rows =
      hasten::make_loader(stacked(3000), {.batch_size = kRowsPerStep, .shuffle = true});
  auto test_rows = hasten::make_loader(stacked(1001), {.batch_size = kRowsPerStep});
  auto [model, optimizer, loader, test_loader] =
      accelerator.prepare(net, adamw, train_rows, test_rows);
  Result result;
  {
    // With 0 gradients are exchanged in every step, as without this scope.
    const bool enabled = local_sgd_steps > 0;
    hasten::LocalSGD local_sgd(
        accelerator, model,
        {.local_sgd_steps = std::max<std::int64_t>(1, local_sgd_steps), .enabled = enabled});
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (auto& batch : loader) {
        auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        local_sgd.step();
        if (!enabled) ++result.exchanges;
      }
    }
    result.exchanges += local_sgd.averages();
  }
  // Steps after the last mean are averaged at the end of the scope.
  if (local_sgd_steps > 0 && optimizer.steps() % local_sgd_steps != 0) ++result.exchanges;
  result.accuracy = accuracy_of(accelerator, model, test_loader);
  return result;
}

}  // namespace

int main() {
  hasten::Accelerator accelerator({.dataloader_config = {.split_batches = true}});
  Net net;
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : net->parameters())
    bytes += static_cast<std::int64_t>(parameter.nbytes());
  for (const std::int64_t every : {0, 4, 16}) {
    const Result result = train(accelerator, every);
    // One process exchanges nothing.
    const std::int64_t exchanges = accelerator.group().size() > 1 ? result.exchanges : 0;
    accelerator.print(hasten::str(every == 0 ? std::string("gradients in every step")
                                             : hasten::str("weights after ", every, " steps"),
                                  ": accuracy ", hasten::fixed(result.accuracy, 3), ", ", exchanges,
                                  " exchanges, ", hasten::human_bytes(exchanges * bytes)));
  }
}
