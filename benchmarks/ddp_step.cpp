// Trains a BERT classifier with an Accelerator in any number of processes. Rank 0 prints one JSON
// line. Each process does the work of train_step and of benchmarks/python/train_step.py.
//
//   $ hasten launch -n 2 ddp_step --size small --steps 30 --batch 8 --seq 128
//
// Further options:
//
//   --exchange nothing   the processes run at the same time and do not communicate
//   --exchange barrier   they exchange no gradients, but wait for each other after each backward
//   --bucket_cap_mb N    the size of a bucket of gradients in MB (default 25)
//   --views 0            gradients are not views into buckets (gradient_as_bucket_view)
//   --sparse 0           the embeddings have dense gradients
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/hasten.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace hasten;

BertConfig config_of(const std::string& size) {
  BertConfig c;
  if (size == "tiny")
    c.hidden_size = 64, c.num_hidden_layers = 2, c.num_attention_heads = 2,
    c.intermediate_size = 256;
  if (size == "small")
    c.hidden_size = 256, c.num_hidden_layers = 4, c.num_attention_heads = 4,
    c.intermediate_size = 1024;
  return c;
}

struct Rows {
  std::int64_t count, length;
  at::Tensor ids = at::randint(100, 30000, {count, length}), labels = at::randint(0, 2, {count});
  std::int64_t size() const { return count; }
  TensorDict get(std::int64_t row) const {
    return {{"input_ids", ids[row]},
            {"attention_mask", at::ones({length}, at::kLong)},
            {"labels", labels[row]}};
  }
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> o = {
      {"--size", "small"},         {"--steps", "30"},         {"--batch", "8"}, {"--seq", "128"},
      {"--exchange", "gradients"}, {"--bucket_cap_mb", "25"}, {"--views", "1"}, {"--sparse", "1"}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  const std::string rank = std::getenv("RANK") ? std::getenv("RANK") : "0";
  if (o["--exchange"] == "nothing") {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
      unsetenv(name);
  }
  keep_freed_memory();
  torch::manual_seed(0);
  const std::int64_t steps = std::stoll(o["--steps"]), batch = std::stoll(o["--batch"]);
  Accelerator accelerator({.cpu = true,
                           .ddp = {.bucket_cap_mb = std::stoll(o["--bucket_cap_mb"]),
                                   .gradient_as_bucket_view = o["--views"] == "1"}});
  auto net = std::make_shared<BertForSequenceClassification>(config_of(o["--size"]));
  net->initialize();
  net->train();
  net->set_sparse_gradients(o["--sparse"] == "1");
  AdamW adamw(net->parameters(), torch::optim::AdamWOptions(5e-5).weight_decay(0));
  auto raw =
      make_loader(Rows{steps * batch * accelerator.process().num_processes, std::stoll(o["--seq"])},
                  {.batch_size = batch, .shuffle = true});
  auto [optimizer, loader] = accelerator.prepare(adamw, raw);
  std::optional<PreparedModel<BertForSequenceClassification>> model;
  if (o["--exchange"] != "barrier") model = std::get<0>(accelerator.prepare(net));
  auto scheduler = get_scheduler("linear", optimizer, 0, steps);
  std::vector<double> times;
  double sum = 0;
  auto before = Clock::now();
  for (auto& rows : loader) {
    const at::Tensor loss = model ? (*model)(rows).loss : net->forward(rows).loss;
    if (model) {
      accelerator.backward(loss);
    } else {
      loss.backward();
      accelerator.wait_for_everyone();
    }
    accelerator.clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    sum += loss.item<double>();
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double, std::milli>(now - before).count());
    before = now;
  }
  times.erase(times.begin(), times.begin() + std::max<std::ptrdiff_t>(2, steps / 10));
  std::sort(times.begin(), times.end());
  if (rank == "0") {
    std::printf(
        "{\"size\": \"%s\", \"processes\": %lld, \"median_ms\": %.3f, \"mean_loss\": %.6f, "
        "\"peak_rss_mib\": %lld}\n",
        o["--size"].c_str(), static_cast<long long>(accelerator.process().num_processes),
        times[times.size() / 2], sum / static_cast<double>(steps),
        static_cast<long long>(host_memory().peak_resident >> 20));
  }
}
