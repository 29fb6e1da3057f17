// Two models that train each other, each with its own accumulation windows: a generator that turns
// noise into points of a ring, and a critic that distinguishes them from real ones.
//
//   $ hasten launch -n 2 example_08_several_models
#include <hasten/hasten.h>
#include <torch/torch.h>

#include <cmath>

namespace {

using torch::nn::LeakyReLU;
using torch::nn::Linear;
using torch::nn::Sequential;

constexpr std::int64_t kSteps = 1200, kRowsPerStep = 128;

// Returns points of a ring with radius 2.
at::Tensor ring(std::int64_t rows, at::Device device) {
  const at::Tensor angle = torch::rand({rows}, device) * 2 * M_PI;
  return (2 + 0.1 * torch::randn({rows, 1}, device)) * torch::stack({angle.cos(), angle.sin()}, 1);
}

Sequential layers(std::int64_t in, std::int64_t out) {
  return Sequential(Linear(in, 48), LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
                    Linear(48, 48), LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
                    Linear(48, out));
}

// Returns the mean distance of the points from the ring.
double distance_of(const at::Tensor& points) {
  return (points.norm(2, 1) - 2).abs().mean().item<double>();
}

at::Tensor loss_of(const at::Tensor& logits, double target) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits,
                                                                 torch::full_like(logits, target));
}

int train() {
  hasten::Accelerator accelerator({.gradient_accumulation_steps = 2});
  torch::manual_seed(1);
  Sequential raw_generator = layers(4, 2), raw_critic = layers(2, 1);
  const auto adam = [](Sequential& net) {
    return torch::optim::Adam(net->parameters(), torch::optim::AdamOptions(2e-3).betas({0.5, 0.9}));
  };
  auto generator_adam = adam(raw_generator), critic_adam = adam(raw_critic);
  auto [generator, critic, generator_optimizer, critic_optimizer] =
      accelerator.prepare(raw_generator, raw_critic, generator_adam, critic_adam);

  const auto& group = accelerator.group();
  const std::int64_t rows = kRowsPerStep / 2 / group.size();
  // A prepared loader moves its batches to the device. These tensors come from no loader.
  const at::Device device = accelerator.device();
  const auto noise = [&](std::int64_t count) { return torch::randn({count, 4}, device); };
  torch::manual_seed(100 + group.rank());  // different points in each process
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      // The critic's window. Both losses of a micro-batch share the micro-batch's weight.
      auto guard = accelerator.accumulate(critic);
      accelerator.backward(loss_of(critic(ring(rows, device)), 1));
      accelerator.backward(loss_of(critic(generator(noise(rows)).detach()), 0));
      critic_optimizer.step();
      critic_optimizer.zero_grad();
    }
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      // The generator's window. Its loss passes through the critic, whose gradients are not
      // exchanged.
      auto guard = accelerator.accumulate(generator);
      accelerator.backward(loss_of(critic(generator(noise(rows))), 1));
      generator_optimizer.step();
      generator_optimizer.zero_grad();
    }
    if ((step + 1) % (kSteps / 4) != 0) continue;
    const torch::NoGradGuard no_grad;
    const at::Tensor points = accelerator.gather(generator(noise(500)));
    accelerator.print(hasten::str("step ", step + 1, ": ", points.size(0),
                                  " points, mean distance from the ring ",
                                  hasten::fixed(distance_of(points), 3)));
  }
  return 0;
}

}  // namespace

int main() { return hasten::run_main(train); }
