// A small BERT classifies texts of different lengths, on a TPU or any other device. All batches
// have one shape, so a TPU compiles programs in the first epoch only, and the program reads a
// number from the TPU only once per epoch.
//
//   $ example_10_tpu                              # on the TPU, else a GPU, else the CPU
//   $ hasten launch --tpu example_10_tpu          # one process for each chip
//   $ example_10_tpu --attn_implementation eager  # without fused attention (docs/tpu.md)
#include <hasten/hasten.h>
#include <torch/torch.h>

#include <cstring>
#include <vector>

namespace {

using namespace hasten;

constexpr std::int64_t kEpochs = 4;

// Returns texts of 5 to 60 tokens; the first token decides the label.
TokenDataset texts(std::int64_t count) {
  TokenDataset rows;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor tokens = at::randint(1, 100, {5 + i * 37 % 56}, at::kInt);
    const auto* first = tokens.const_data_ptr<std::int32_t>();
    rows.push_back({first, static_cast<std::size_t>(tokens.numel())});
    labels.push_back(*first > 50 ? 1 : 0);
  }
  rows.set_labels(at::tensor(labels));
  return rows;
}

BertConfig small_bert(bool eager) {
  BertConfig config{.vocab_size = 100,
                    .hidden_size = 64,
                    .num_hidden_layers = 2,
                    .num_attention_heads = 2,
                    .intermediate_size = 128,
                    .max_position_embeddings = 64};
  if (eager) config.attn_implementation = AttentionImplementation::eager;
  return config;
}

// Returns for each text of all processes whether the model classifies it correctly.
at::Tensor evaluate(Accelerator& accelerator, auto& model, auto& loader) {
  const torch::NoGradGuard no_grad;
  model->eval();
  std::vector<at::Tensor> correct;
  for (auto& batch : loader) {
    const at::Tensor hits = model(batch).logits.argmax(-1).eq(batch.at("labels"));
    correct.push_back(accelerator.gather_for_metrics(hits).cpu());
  }
  model->train();
  return at::cat(correct);
}

int train(int argc, char** argv) {
  // Pads all texts to 64 tokens. The default lengths would give a second shape, with 48 tokens.
  Accelerator accelerator({.dataloader_config = {.static_shapes = {.lengths = {64}}}});
  set_seed(42);
  const bool eager = argc > 1 && std::strcmp(argv[argc - 1], "eager") == 0;
  auto net = std::make_shared<BertForSequenceClassification>(small_bert(eager));
  net->initialize();
  hasten::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const DataCollatorWithPadding pad;
  auto train_rows = make_loader(texts(803), {.batch_size = 16, .shuffle = true}, pad);
  auto eval_rows = make_loader(texts(101), {.batch_size = 16}, pad);
  auto [model, optimizer, train_loader, eval_loader] =
      accelerator.prepare(net, adamw, train_rows, eval_rows);
  auto scheduler = get_scheduler("linear", optimizer, 10, kEpochs * train_loader.size());

  double accuracy = 0;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    at::Tensor loss_sum = at::zeros({}, accelerator.device());  // is read once per epoch
    for (auto& batch : train_loader) {
      const at::Tensor loss = model(batch).loss;
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(net->parameters(), 1.0);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      loss_sum += loss.detach();
    }
    const at::Tensor correct = evaluate(accelerator, model, eval_loader);
    accuracy = correct.to(at::kDouble).mean().item<double>();
    const double loss = loss_sum.item<double>() / static_cast<double>(train_loader.size());
    accelerator.print(str("epoch ", epoch + 1, ": loss ", fixed(loss, 4), ", accuracy ",
                          fixed(accuracy, 3), " of ", correct.numel(), " texts, ",
                          accelerator.compiled_programs(), " programs compiled so far"));
  }
  return accuracy > 0.9 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return hasten::run_main([&] { return train(argc, argv); });
}
