// A rank that trains on device tpu and checks every number against one process on the CPU that has
// all of the data. Prints one line, and exits with 1 if a number is wrong.
//
//   hasten launch -n 2 tpu_multi_process [--short]
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/loader.h"
#include "tiny_bert.h"

namespace {

using namespace hasten;

constexpr double kTolerance = 1e-5;
constexpr std::int64_t kRowsPerStep = 16, kRows = 120;  // the last step has 8 rows

int failures = 0;
double largest_difference = 0;

void check(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("wrong: %s\n", what.c_str());
}

void check_close(const at::Tensor& tensor, const at::Tensor& expected, const std::string& what,
                 double tolerance = kTolerance) {
  const double difference =
      (tensor.detach().cpu().to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  if (tolerance == kTolerance) largest_difference = std::max(largest_difference, difference);
  check(difference <= tolerance, str(what, " is off by ", difference));
}

// Returns the tensor of a rank.
at::Tensor tensor_of(std::int64_t rank, at::ScalarType type) {
  return (at::arange(12).view({3, 4}) + 100 * rank).to(type);
}

// Checks that collectives give the right values on the device.
void check_collectives(const Group& group, at::Device device) {
  const std::int64_t size = group.size(), rank = group.rank();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kInt, at::kLong, at::kBool}) {
    std::vector<at::Tensor> parts;
    for (std::int64_t each = 0; each < size; ++each) parts.push_back(tensor_of(each, type));
    const at::Tensor own = tensor_of(rank, type).to(device), all = group.gather(own);
    check(all.device() == device, "the device of a gathered tensor");
    check(at::equal(all.cpu(), at::cat(parts)), str("gather of ", at::toString(type)));
    check(at::equal(group.gather(own.t()).cpu(),
                    at::cat(parts).view({size, 3, 4}).transpose(1, 2).reshape({size * 4, 3})),
          str("gather of transposed ", at::toString(type)));
    check(at::equal(group.broadcast(own, size - 1).cpu(), parts.back()),
          str("broadcast ", at::toString(type)));
    check(at::equal(own.cpu(), parts[static_cast<std::size_t>(rank)]), "the input of a collective");
  }
  at::Tensor sum = at::zeros({3, 4});
  for (std::int64_t each = 0; each < size; ++each) sum += tensor_of(each, at::kFloat);
  const at::Tensor own = tensor_of(rank, at::kFloat).to(device);
  check(at::equal(group.reduce(own).cpu(), sum), "sum");
  check_close(group.reduce(own, Reduction::mean), sum / size, "mean");
  check_close(group.reduce(own, Reduction::sum, 0.5), sum * 0.5, "half of the sum");
  check(at::equal(group.reduce(own, Reduction::max).cpu(), tensor_of(size - 1, at::kFloat)), "max");
  // Each rank has a different view; all views have one length.
  at::Tensor places = at::zeros({size, 1}, at::kLong);
  for (std::int64_t each = 0; each < size; ++each) places[each] = each;
  const at::Tensor table = at::arange(size, at::kLong).unsqueeze(1).to(device);
  check(at::equal(group.gather(table.narrow(0, rank, 1)).cpu(), places), "gather of views");
  check(at::equal(group.broadcast(table.narrow(0, rank, 1), 0).cpu(), places.narrow(0, 0, 1)),
        "broadcast of views");
  check(at::equal(group.reduce(table.narrow(0, rank, 1), Reduction::max).cpu(),
                  places.narrow(0, size - 1, 1)),
        "maximum of views");
  const at::Tensor uneven = at::full({rank + 1, 2}, 7.0).to(device);
  const at::Tensor padded = group.pad_across_processes(uneven, 0, -1);
  check(padded.device() == device && padded.size(0) == size, "padding to the longest");
  check(at::equal(padded.cpu().narrow(0, 0, rank + 1), uneven.cpu()), "padding at the end");
  group.barrier();
}

struct Rows : torch::data::datasets::Dataset<Rows> {
  torch::data::Example<> get(std::size_t row) override {
    return {data[static_cast<std::int64_t>(row)], labels[static_cast<std::int64_t>(row)]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(kRows); }
  at::Tensor data = (torch::manual_seed(11), at::randn({kRows, 32}));
  at::Tensor labels = data.slice(1, 0, 10).argmax(1);
};
auto make_row_loader(bool shuffle) {
  return make_loader(Rows().map(torch::data::transforms::Stack<>()),
                     {.batch_size = kRowsPerStep, .shuffle = shuffle, .drop_last = shuffle});
}

struct ClassifierImpl : torch::nn::Module {
  ClassifierImpl()
      : first(register_module("first", torch::nn::Linear(32, 64))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})))),
        last(register_module("last", torch::nn::Linear(64, 10))),
        seen(register_buffer("seen", at::zeros({2}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(norm->forward(at::gelu(first->forward(x))));
  }
  torch::nn::Linear first;
  torch::nn::LayerNorm norm;
  torch::nn::Linear last;
  at::Tensor seen;
};
std::shared_ptr<ClassifierImpl> classifier(std::uint64_t seed) {
  torch::manual_seed(seed);
  return std::make_shared<ClassifierImpl>();
}
torch::optim::AdamW adamw_of(const torch::nn::Module& net, double rate) {
  return torch::optim::AdamW(net.parameters(), torch::optim::AdamWOptions(rate));
}

struct TrainingResult {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
  at::Tensor predictions;
};

constexpr double kClip = 0.5;

// Trains in one process on the CPU with LibTorch; only the order of rows comes from hasten.
TrainingResult train_in_one_process() {
  TrainingResult alone;
  const auto net = classifier(1);
  auto adamw = adamw_of(*net, 1e-2);
  auto loader = make_row_loader(true);
  for (auto& batch : loader) {
    adamw.zero_grad();
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
    loss.backward();
    alone.norms.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), kClip));
    adamw.step();
    alone.losses.push_back(loss.item<double>());
  }
  for (const auto& weight : net->parameters()) alone.weights.push_back(weight.detach().clone());
  const torch::NoGradGuard no_grad;
  alone.predictions = net->forward(Rows().data);
  return alone;
}

void train_in_several_processes(const TrainingResult& alone,
                                const DistributedDataParallelKwargs& ddp, const std::string& how,
                                double tolerance = kTolerance) {
  Accelerator accelerator({.tpu = true, .ddp = ddp, .dataloader_config = {.split_batches = true}});
  const Group& group = accelerator.group();
  const auto net =
      classifier(1 + static_cast<std::uint64_t>(group.rank()));  // prepare uses rank 0's weights
  net->seen.fill_(static_cast<double>(group.rank() + 1));
  auto adamw = adamw_of(*net, 1e-2);
  auto rows = make_row_loader(true), in_order = make_row_loader(false);
  auto [model, optimizer, train, evaluation] = accelerator.prepare(net, adamw, rows, in_order);
  std::size_t step = 0;
  for (auto& batch : train) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
    accelerator.backward(loss);
    const double norm = accelerator.clip_grad_norm_(net->parameters(), kClip);
    optimizer.step();
    check_close(accelerator.reduce(loss.detach(), Reduction::mean), at::tensor(alone.losses[step]),
                str(how, ": the loss of step ", step), tolerance);
    check_close(at::tensor(norm), at::tensor(alone.norms[step]), str(how, ": the norm"), tolerance);
    ++step;
  }
  check(step == alone.losses.size(), str(how, ": the number of steps"));
  check_close(net->seen, at::ones({2}), str(how, ": rank 0's buffer"));
  const auto weights = net->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    check(weights[i].device() == accelerator.device(), "the device of the weights");
    check_close(weights[i], alone.weights[i], str(how, ": weight ", i), tolerance);
  }
  const torch::NoGradGuard no_grad;
  model->eval();
  std::vector<at::Tensor> predictions;
  for (auto& batch : evaluation)
    predictions.push_back(accelerator.gather_for_metrics(model(batch.data)).cpu());
  check_close(at::cat(predictions), alone.predictions, str(how, ": the predictions for all rows"),
              tolerance);
}

TensorDict sentences() {
  torch::manual_seed(3);
  at::Tensor mask = at::ones({16, 16}, at::kLong);
  mask.narrow(1, 12, 4).narrow(0, 0, 8).zero_();
  return {{"input_ids", at::randint(1, 100, {16, 16}, at::kLong)},
          {"attention_mask", mask},
          {"labels", at::randint(0, 3, {16}, at::kLong)}};
}

void train_bert() {
  constexpr int kSteps = 8;
  const TensorDict all = sentences();
  std::vector<double> losses;
  {
    const auto net = tiny_bert(3);
    auto adamw = adamw_of(*net, 1e-3);
    for (int step = 0; step < kSteps; ++step) {
      adamw.zero_grad();
      const at::Tensor loss = net->forward(all).loss;
      loss.backward();
      adamw.step();
      losses.push_back(loss.item<double>());
    }
  }
  Accelerator accelerator({.tpu = true});
  const std::int64_t share = 16 / accelerator.group().size();
  TensorDict own;
  for (const auto& [name, tensor] : all)
    own[name] = tensor.narrow(0, accelerator.group().rank() * share, share);
  const auto net = tiny_bert(3);
  auto adamw = adamw_of(*net, 1e-3);
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  for (const double expected : losses) {
    optimizer.zero_grad();
    const at::Tensor loss = model(to_device(own, accelerator.device())).loss;
    accelerator.backward(loss, share);
    optimizer.step();
    check_close(accelerator.reduce(loss.detach(), Reduction::mean), at::tensor(expected),
                "the loss of BERT");
  }
  check(losses.back() < losses.front(), "BERT learns");
}

// Every rank has a different number of batches, and no rank hangs.
void train_uneven() {
  Accelerator accelerator({.tpu = true});
  const auto net = classifier(1);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  {
    auto scope = accelerator.join_uneven_inputs(model);
    for (std::int64_t step = 0; step < 2 + accelerator.group().rank(); ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = model(at::ones({4, 32}, accelerator.device())).pow(2).mean();
      accelerator.backward(loss, 4);
      optimizer.step();
    }
  }
  const at::Tensor all = accelerator.gather(net->last->weight.detach().unsqueeze(0)).cpu();
  for (std::int64_t rank = 1; rank < all.size(0); ++rank)
    check(at::equal(all[rank], all[0]), "the same weights after uneven inputs");
}

std::int64_t peak_megabytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "VmHWM:" && file >> kilobytes) return kilobytes / 1024;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool brief = argc > 1 && std::string(argv[1]) == "--short";
    const auto began = std::chrono::steady_clock::now();
    const TrainingResult alone = train_in_one_process();
    std::string place;
    std::int64_t rank = 0, size = 1;
    {
      Accelerator accelerator({.tpu = true});
      rank = accelerator.group().rank();
      size = accelerator.group().size();
      place = accelerator.device().str();
      check_collectives(accelerator.group(), accelerator.device());
    }
    train_in_several_processes(alone, {}, "views");
    train_bert();
    if (!brief) {
      train_in_several_processes(alone, {.gradient_as_bucket_view = false}, "copies");
      train_in_several_processes(alone, {.bucket_cap_mb = 1}, "small buckets");
      train_in_several_processes(alone, {.comm_hook = CommunicationHook::bf16}, "bf16", 0.1);
      train_uneven();
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::printf("rank %ld of %ld on %s: %s, off by %.1e at most, %.1f s, %ld MB\n",
                static_cast<long>(rank), static_cast<long>(size), place.c_str(),
                failures == 0 ? "good" : "WRONG", largest_difference, seconds,
                static_cast<long>(peak_megabytes()));
  } catch (const Error& error) {
    std::printf("%s: %s\n", error.code().c_str(), error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::printf("threw: %s\n", error.what());
    return 3;
  }
  return failures == 0 ? 0 : 1;
}
