// Compares local SGD, in which processes exchange weights every few steps, with an exchange of
// gradients in every step. Prints the accuracy of both, and the bytes exchanged.
//
//   $ hasten launch -n 2 example_07_local_sgd
#include <hasten/hasten.h>
#include <torch/torch.h>

#include "../common/accuracy.h"
#include "../common/spirals.h"

namespace {

constexpr std::int64_t kEpochs = 12, kRowsPerStep = 60;

struct Result {
  double accuracy = 0;
  std::int64_t exchanges = 0;  // each covers all gradients or weights of the model
};

Result train(hasten::Accelerator& accelerator, std::int64_t local_sgd_steps) {
  torch::manual_seed(42);
  Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  auto train_rows =
      hasten::make_loader(spirals(3000), {.batch_size = kRowsPerStep, .shuffle = true});
  auto test_rows = hasten::make_loader(spirals(1001), {.batch_size = kRowsPerStep});
  auto [model, optimizer, loader, test_loader] =
      accelerator.prepare(net, adamw, train_rows, test_rows);
  Result result;
  {
    // If it is not enabled, gradients are exchanged in every step, as without this scope.
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
  // The end of the scope averages the weights again if steps follow the last average.
  if (local_sgd_steps > 0 && optimizer.steps() % local_sgd_steps != 0) ++result.exchanges;
  result.accuracy = measure_accuracy(accelerator, model, test_loader).value;
  return result;
}

int compare() {
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
  return 0;
}

}  // namespace

int main() { return hasten::run_main(compare); }
