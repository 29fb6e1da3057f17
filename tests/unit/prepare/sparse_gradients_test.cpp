// Sparse gradients in several processes: the processes exchange rows, and the sum equals the sum of
// dense gradients.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/models/bert.h"
#include "hasten/optim/adamw.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_sparse_gradients_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

constexpr std::int64_t kWords = 400, kLength = 6;

BertConfig tiny() {
  BertConfig config;
  config.vocab_size = kWords;
  config.hidden_size = 16;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.intermediate_size = 32;
  config.max_position_embeddings = 8;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  return config;
}

std::shared_ptr<BertForSequenceClassification> new_bert() {
  torch::manual_seed(5);
  auto model = std::make_shared<BertForSequenceClassification>(tiny());
  model->initialize();
  model->train();
  return model;
}

// Rows `first` to `last` of a step; some words occur in rows of several processes.
TensorDict rows_of(std::int64_t step, std::int64_t first, std::int64_t last,
                   std::int64_t words = kWords) {
  torch::manual_seed(1000 + step);
  const at::Tensor ids = torch::randint(1, words, {12, kLength}),
                   labels = torch::randint(0, 2, {12});
  return {{"input_ids", ids.slice(0, first, last)}, {"labels", labels.slice(0, first, last)}};
}

AdamW optimizer_of(torch::nn::Module& model) {
  return AdamW(model.parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
}

// Trains in one process with dense gradients.
std::vector<at::Tensor> single_process_weights(int steps, std::int64_t words = kWords) {
  auto model = new_bert();
  AdamW adamw = optimizer_of(*model);
  for (int step = 0; step < steps; ++step) {
    adamw.zero_grad();
    model->forward(rows_of(step, 0, 12, words)).loss.backward();
    adamw.step();
  }
  return copies(model->parameters());
}

const at::Tensor& word_gradient(const BertForSequenceClassification& model) {
  for (const auto& item : model.named_parameters()) {
    if (item.key() == "bert.embeddings.word_embeddings.weight") return item.value().grad();
  }
  throw std::runtime_error("no table of words");
}

}  // namespace

TEST_CASE("sparse gradients: two, three and four processes train a BERT as one process does") {
  constexpr int kSteps = 5;
  const std::vector<at::Tensor> expected = single_process_weights(kSteps);
  for (const int count : {2, 3, 4}) {
    debug_launcher(
        [&] {
          Accelerator accelerator;
          const Group& group = accelerator.group();
          auto net = new_bert();
          net->set_sparse_gradients(true);
          AdamW adamw = optimizer_of(*net);
          auto [model, optimizer] = accelerator.prepare(net, adamw);
          const std::int64_t share = 12 / group.size();
          for (int step = 0; step < kSteps; ++step) {
            optimizer.zero_grad();
            accelerator.backward(
                model(rows_of(step, group.rank() * share, (group.rank() + 1) * share)).loss);
            require(word_gradient(*net).is_sparse(), "the gradient is not sparse");
            optimizer.step();
          }
          require_close(net->parameters(), expected, str(count, " processes"), 2e-5);
          require_same_on_all_ranks(group, net->parameters(), "a parameter");
        },
        count);
  }
}

TEST_CASE("sparse gradients: windows, empty micro-batches and no_sync equal the dense gradient") {
  // The gradient of all twelve rows, divided unevenly.
  auto alone = new_bert();
  alone->forward(rows_of(0, 0, 12)).loss.backward();
  const at::Tensor expected = word_gradient(*alone);
  const auto check =
      [&](const AcceleratorOptions& options,
          const std::function<void(Accelerator&, PreparedModel<BertForSequenceClassification>&)>&
              pass,
          const std::string& what) {
        debug_launcher([&] {
          Accelerator accelerator(options);
          auto net = new_bert();
          net->set_sparse_gradients(true);
          auto [model] = accelerator.prepare(net);
          pass(accelerator, model);
          require(word_gradient(*net).is_sparse(), what + ": rows");
          require_close({word_gradient(*net).to_dense()}, {expected}, what);
          require_same_on_all_ranks(accelerator.group(), {word_gradient(*net).to_dense()},
                                    "the gradient");
        });
      };
  check(
      {.gradient_accumulation_steps = 3},
      [](Accelerator& accelerator, auto& model) {
        // Rank 0 has rows 0 to 2, none, and 2 to 5. Rank 1 has none, 5 to 11, and 11 to 12.
        const std::int64_t ends[2][4] = {{0, 2, 2, 5}, {5, 5, 11, 12}};
        const auto& end = ends[accelerator.group().rank()];
        for (int i = 0; i < 3; ++i) {
          auto guard = accelerator.accumulate(model);
          const std::int64_t items = end[i + 1] - end[i];
          // A loss over no rows is 0 / 0.
          const at::Tensor loss = items > 0 ? model(rows_of(0, end[i], end[i + 1])).loss
                                            : model(rows_of(0, 0, 1)).loss * NAN;
          accelerator.backward(loss, static_cast<double>(items));
        }
      },
      "a window");
  check(
      {},
      [](Accelerator& accelerator, auto& model) {
        const bool has = accelerator.group().rank() == 1;
        const at::Tensor loss = model(rows_of(0, 0, 12)).loss;
        accelerator.backward(has ? loss : loss * NAN, has ? 12 : 0);
      },
      "one process has all rows");
  check(
      {},
      [](Accelerator& accelerator, auto& model) {
        const std::int64_t first = accelerator.group().rank() * 6;
        {
          auto guard = accelerator.no_sync(model);
          accelerator.backward(model(rows_of(0, first, first + 3)).loss * 0.5);
        }
        accelerator.backward(model(rows_of(0, first + 3, first + 6)).loss * 0.5);
      },
      "no_sync");
}

TEST_CASE("sparse gradients: a table's gradient becomes dense if many rows were touched") {
  constexpr int kSteps = 3;
  // Each process has 36 tokens of 24 words, which is more than half of a table of 40 words.
  torch::manual_seed(0);
  debug_launcher([&] {
    Accelerator accelerator;
    const Group& group = accelerator.group();
    const auto table_of = [](std::int64_t rows) {
      torch::manual_seed(9);
      return torch::nn::Embedding(torch::nn::EmbeddingOptions(rows, 4).sparse(true));
    };
    const auto ids_of = [](std::int64_t step, std::int64_t rank, std::int64_t rows) {
      torch::manual_seed(100 * step + rank);
      return torch::randint(0, rows, {8});
    };
    for (const std::int64_t rows : {10, 1000}) {
      torch::nn::Embedding net = table_of(rows), reference = table_of(rows);
      torch::optim::SGD sgd(net->parameters(), 0.5), plain(reference->parameters(), 0.5);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        accelerator.backward(model(ids_of(step, group.rank(), rows)).pow(2).mean());
        require(net->weight.grad().is_sparse() == (rows == 1000), str(rows, " rows"));
        optimizer.step();
        plain.zero_grad();
        const at::Tensor all = at::cat({ids_of(step, 0, rows), ids_of(step, 1, rows)});
        reference->forward(all).pow(2).mean().backward();
        plain.step();
      }
      require_close(net->parameters(), reference->parameters(), str(rows, " rows"));
      require_same_on_all_ranks(group, net->parameters(), "a parameter");
    }
  });
}

TEST_CASE("sparse gradients: a model may change to sparse gradients and back between steps") {
  constexpr int kSteps = 4;
  const std::vector<at::Tensor> expected = single_process_weights(kSteps);
  debug_launcher([&] {
    Accelerator accelerator;
    auto net = new_bert();
    AdamW adamw = optimizer_of(*net);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    const std::int64_t first = accelerator.group().rank() * 6;
    for (int step = 0; step < kSteps; ++step) {
      net->set_sparse_gradients(step == 1 || step == 2);
      optimizer.zero_grad();
      accelerator.backward(model(rows_of(step, first, first + 6)).loss);
      require(word_gradient(*net).is_sparse() == (step == 1 || step == 2),
              "the gradient has another form than set");
      optimizer.step();
    }
    require_close(net->parameters(), expected, "weights", 2e-5);
  });
}

TEST_CASE("sparse gradients: sparse rows work with every option of the gradient exchange") {
  constexpr int kSteps = 3;
  const std::vector<at::Tensor> expected = single_process_weights(kSteps);
  const auto train = [&](const DistributedDataParallelKwargs& ddp, double tolerance) {
    debug_launcher([&] {
      Accelerator accelerator({.ddp = ddp});
      auto net = new_bert();
      net->set_sparse_gradients(true);
      AdamW adamw = optimizer_of(*net);
      auto [model, optimizer] = accelerator.prepare(net, adamw);
      const std::int64_t first = accelerator.group().rank() * 6;
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        accelerator.backward(model(rows_of(step, first, first + 6)).loss);
        optimizer.step();
      }
      require_close(net->parameters(), expected, str("with ", name_of(ddp.comm_hook)), tolerance);
      require_same_on_all_ranks(accelerator.group(), net->parameters(), "a parameter");
    });
  };
  train({.find_unused_parameters = true}, 2e-5);
  train({.gradient_as_bucket_view = false}, 2e-5);
  train({.static_graph = true}, 2e-5);
  // Adam's step is the sign of the gradient if gradients are small, so errors have large effects.
  train({.comm_hook = CommunicationHook::bf16}, 7e-2);
  train(
      {.comm_hook = CommunicationHook::power_sgd, .comm_state_option = {.start_powerSGD_iter = 4}},
      2e-5);
}

TEST_CASE("sparse gradients: a table without a gradient is named, or allowed") {
  struct TwoLayers : torch::nn::Module {
    torch::nn::Embedding used{register_module(
        "used", torch::nn::Embedding(torch::nn::EmbeddingOptions(100, 4).sparse(true)))},
        unused{register_module(
            "unused", torch::nn::Embedding(torch::nn::EmbeddingOptions(100, 4).sparse(true)))};
    at::Tensor forward(const at::Tensor& ids, bool both) {
      const at::Tensor one = used->forward(ids).mean();
      return both ? one + unused->forward(ids).mean() : one;
    }
  };
  const at::Tensor ids = torch::arange(5);
  debug_launcher([&] {
    Accelerator accelerator;
    auto net = std::make_shared<TwoLayers>();
    auto [model] = accelerator.prepare(net);
    require(
        code_of([&] { accelerator.backward(model(ids, false)); }) == "prepare.unused-parameters",
        "it is named");
  });
  debug_launcher([&] {
    Accelerator accelerator({.ddp = {.find_unused_parameters = true}});
    auto net = std::make_shared<TwoLayers>();
    auto [model] = accelerator.prepare(net);
    accelerator.backward(model(ids, false));
    require(!net->unused->weight.grad().defined(), "an unused table has a gradient");
    accelerator.backward(model(ids, accelerator.group().rank() == 1));
    const at::Tensor gradient = net->unused->weight.grad().to_dense();
    require(std::abs(gradient.sum().item<double>() - 0.5) < 1e-6,
            "the gradient of one process, on both");
    require_same_on_all_ranks(accelerator.group(), {gradient}, "the gradient");
  });
}

}  // namespace prepare_sparse_gradients_test
