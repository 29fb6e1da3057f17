// A small BERT classifies texts of unequal length, on the TPU of a TPU machine or on any other
// device. Batches have only a few shapes, so that a TPU compiles programs in the first epoch and
// not afterwards; during training a number is read from the TPU only once per epoch.
//
//   $ example_10_tpu                              # on the TPU, else a GPU, else the CPU
//   $ hasten launch --tpu example_10_tpu          # one process for each chip
//   $ example_10_tpu --attn_implementation eager  # without fused attention (docs/tpu.md)
#include <torch/torch.h>

#include <hasten/hasten.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace hasten;

constexpr std::int64_t kEpochs = 4;

// Returns texts of 5 to 60 tokens; the first token decides the label.
TokenDataset texts(std::int64_t count) {
  TokenDataset all;
  std::vector<std::int64_t> subjects;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t length = 5 + i * 37 % 56;
    const at::Tensor tokens = at::randint(1, 100, {length}, at::kInt);
    const auto* const first = tokens.const_data_ptr<std::int32_t>();
    all.push_back({first, static_cast<std::size_t>(length)});
    subjects.push_back(*first > 50 ? 1 : 0);
  }
  all.set_labels(at::tensor(subjects));
  return all;
}

BertConfig small_bert(int argc, char** argv) {
  BertConfig config{.vocab_size = 100,
                    .hidden_size = 64,
                    .num_hidden_layers = 2,
                    .num_attention_heads = 2,
                    .intermediate_size = 128,
                    .max_position_embeddings = 64};
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--attn_implementation" && std::string(argv[i + 1]) == "eager")
      config.attn_implementation = AttentionImplementation::eager;
  }
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  // Pads all texts to one length, which gives one shape. The default lengths would give a second
  // one, for 48 tokens.
  Accelerator accelerator({.dataloader_config = {.static_shapes = {.lengths = {64}}}});
  set_seed(42);
  auto net = std::make_shared<BertForSequenceClassification>(small_bert(argc, argv));
  net->initialize();
  hasten::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const DataCollatorWithPadding pad;
  auto train_rows = make_loader(texts(803), {.batch_size = 16, .shuffle = true}, pad);
  auto eval_rows = make_loader(texts(101), {.batch_size = 16}, pad);
  auto [model, optimizer, train, eval] = accelerator.prepare(net, adamw, train_rows, eval_rows);
  auto scheduler = get_scheduler("linear", optimizer, 10, kEpochs * train.size());

  double accuracy = 0;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    net->train();
    at::Tensor sum =
        at::zeros({}, accelerator.device());  // stays on the device until it is printed
    for (auto& batch : train) {
      const at::Tensor loss = model(batch).loss;
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(net->parameters(), 1.0);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      sum += loss.detach();
    }
    net->eval();
    const torch::NoGradGuard no_grad;
    std::int64_t right = 0, all = 0;
    for (auto& batch : eval) {
      const at::Tensor hits = model(batch).logits.argmax(-1).eq(batch.at("labels"));
      const at::Tensor counted = accelerator.gather_for_metrics(hits).cpu();
      right += counted.sum().item<std::int64_t>();
      all += counted.size(0);
    }
    accuracy = static_cast<double>(right) / static_cast<double>(all);
    accelerator.print(str("epoch ", epoch + 1, ": loss ",
                          fixed(sum.item<double>() / static_cast<double>(train.size()), 4),
                          ", accuracy ", fixed(accuracy, 3), " of ", all, " texts, ",
                          accelerator.compiled_programs(), " programs compiled so far"));
  }
  return accuracy > 0.9 ? 0 : 1;
}
