// A network of your own, trained by an installed hasten: it learns which points of a square lie
// inside a circle.
#include <torch/torch.h>

#include <hasten/hasten.h>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : layers(register_module("layers",
                               torch::nn::Sequential(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                                                     torch::nn::Linear(32, 2)))) {}
  torch::Tensor forward(const torch::Tensor& points) { return layers->forward(points); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Net);

hasten::ColumnDataset points_of_a_square(std::int64_t rows) {
  const torch::Tensor points = torch::rand({rows, 2}) * 2 - 1;
  const torch::Tensor is_inside = points.square().sum(1) < 0.6;
  return hasten::ColumnDataset({{"points", points}, {"labels", is_inside.to(torch::kLong)}});
}

int train() {
  torch::manual_seed(42);  // every process makes the same points
  hasten::Accelerator accelerator;
  Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
  auto batches = hasten::make_loader(points_of_a_square(4000), {.batch_size = 32, .shuffle = true});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);

  for (int epoch = 1; epoch <= 5; ++epoch) {
    std::int64_t right = 0, rows = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const torch::Tensor logits = model(batch.at("points")).to(torch::kFloat);
      accelerator.backward(torch::nn::functional::cross_entropy(logits, batch.at("labels")));
      optimizer.step();
      const torch::Tensor hits =
          accelerator.gather_for_metrics(logits.argmax(1) == batch.at("labels"));
      right += hits.sum().item<std::int64_t>();
      rows += hits.size(0);
    }
    accelerator.print(hasten::str("epoch ", epoch, ": accuracy ",
                                  hasten::fixed(static_cast<double>(right) / rows, 3), " of ", rows,
                                  " rows"));
  }
  return 0;
}

}  // namespace

int main() { return hasten::run_main(train); }
