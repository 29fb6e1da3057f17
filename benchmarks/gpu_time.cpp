// Compares the predicted times of passes on GPUs with times that NeuSight measured (the labels in
// benchmarks/labels/README.md). Prints a Markdown row for each label and the mean errors, and fails
// if they are worse than docs/gpu.md says. Needs no GPU.
//
//   $ gpu_time [FILE]
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "eager_passes.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace {

using namespace hasten;
using anatomy::GpuSpeed;
using benchmarks::Decoder;
using benchmarks::EagerPasses;

// A machine that NeuSight measured.
struct Card {
  GpuSpeed speed;
  bool held_out = false;  // True if the fit uses no label of this card.
  // The time that the driver takes for each byte of new memory, fitted on that machine. NeuSight
  // emptied the allocator's cache before each pass. On one machine most forward passes show the
  // cost.
  double seconds_per_new_byte = 0;
  double link_bytes_per_second = 0;  // Between the GPUs of a machine with four, in one direction.
};

GpuSpeed speed(int capability, int multiprocessors, double tera_flops, double giga_bytes) {
  return {.compute_capability = capability,
          .multiprocessors = multiprocessors,
          .float32_products = tera_flops * 1e12,
          .bytes_per_second = giga_bytes * 1e9};
}

// NeuSight's PCIe cards differ in clock, power and memory from the cards in hasten's table.
const std::map<std::string, Card>& cards() {
  static const std::map<std::string, Card> all = {
      {"p100-pcie-16gb", {.speed = speed(60, 56, 7.24, 0.76 * 732)}},
      {"p4", {.speed = speed(61, 20, 4.56, 0.75 * 192)}},
      {"t4", {.speed = anatomy::speed_of(find_gpu("cuda:t4"))}},
      {"v100-pcie-32gb", {.speed = speed(70, 80, 13.33, 0.90 * 900)}},
      {"a100-pcie-40gb", {.speed = speed(80, 108, 16.92, 0.90 * 1555)}},
      {"a100-pcie-80gb",
       {.speed = speed(80, 108, 18.42, 0.90 * 1935), .seconds_per_new_byte = 7.3e-12}},
      {"a100-sxm-40gb",
       {.speed = speed(80, 108, 18.71, 0.90 * 1555), .link_bytes_per_second = 240e9}},
      {"h100-sxm-80gb",
       {.speed = anatomy::speed_of(find_gpu("cuda:h100-80gb")),
        .held_out = true,
        .link_bytes_per_second = 360e9}},
      {"l4", {.speed = anatomy::speed_of(find_gpu("cuda:l4")), .held_out = true}},
  };
  return all;
}

const std::map<std::string, Decoder>& models() {
  static const std::map<std::string, Decoder> all = {
      {"bert_large", {24, 1024, 16, 4096, 30522}}, {"gpt2_large", {36, 1280, 20, 5120, 50257}},
      {"gpt3_xl", {24, 3072, 24, 12288, 50257}},   {"gpt3_27", {32, 2560, 32, 10240, 50257}},
      {"opt_13", {24, 2048, 32, 8192, 50272}},
  };
  return all;
}

struct Label {
  std::string card, model, mode, parallel;
  double length = 0, batch = 0, forward = 0, backward = 0, step = 0;  // milliseconds
};

std::vector<Label> read_labels(const std::filesystem::path& file) {
  std::vector<Label> labels;
  const std::vector<std::string> lines = split(read_file(file), '\n');
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = split(lines[i], ',');
    if (cells.size() != 9) continue;
    const auto number = [&](std::size_t at) { return std::atof(cells[at].c_str()); };
    labels.push_back({cells[0], cells[1], cells[2], cells[5], number(3), number(4), number(6),
                      number(7), number(8)});
  }
  return labels;
}

struct Prediction {
  double forward = 0, backward = 0;  // seconds
  double step() const { return forward + backward; }
};

Prediction on_one_gpu(const Label& label, const Card& card, bool counts_new_memory) {
  EagerPasses passes(card.speed, label.mode == "train");
  if (label.model == "switchxl4") {
    add_switch(passes, label.batch, label.length);
  } else {
    const Decoder& model = models().at(label.model);
    const auto add = label.model == "bert_large" ? benchmarks::add_bert
                     : label.model == "opt_13"   ? benchmarks::add_opt
                                                 : benchmarks::add_gpt2;
    add(passes, model, label.batch, label.length);
  }
  Prediction out{.forward = passes.forward.seconds()};
  if (!passes.training()) return out;
  out.backward = passes.backward.seconds();
  if (counts_new_memory) out.forward += passes.kept * card.seconds_per_new_byte;
  return out;
}

// Predicts a step on four GPUs with Megatron-LM. The step includes the optimizer.
Prediction on_four_gpus(const Label& label, const Card& card) {
  // Both are fitted on the machine with four A100: the cost of a collective in addition to its
  // bytes, and how much longer the stages of a pipeline run than one GPU with all layers.
  constexpr double kCollective = 0.35e-3, kPipeline = 1.07;
  // Floats moved per parameter: gradients are added, exchanged, scaled and clipped, and Adam runs.
  constexpr double kUpdate = 13.5;
  const Decoder& m = models().at(label.model);
  const double parameters =
      m.layers * (4 * m.width * m.width + 2 * m.width * m.inner) + (m.vocabulary + 2048) * m.width;
  const bool by_data = label.parallel == "dp4", by_tensors = label.parallel == "tp4";
  EagerPasses passes(card.speed, /*training=*/true);
  add_megatron(passes, m, by_data ? label.batch / 4 : label.batch, label.length,
               by_tensors ? 4 : 1);
  Prediction out{passes.forward.seconds(), passes.backward.seconds()};
  const double update = 4 * parameters * kUpdate / card.speed.bytes_per_second;
  // A ring moves 2 (n - 1) / n of the bytes in and out of each GPU.
  const auto exchange = [&](double numbers) {
    return 1.5 * 4 * numbers / card.link_bytes_per_second;
  };
  if (by_data) {
    out.backward += exchange(parameters) + update;
  } else if (by_tensors) {
    const double in_each_pass =
        2 * m.layers * (exchange(label.batch * label.length * m.width) + kCollective);
    out.forward += in_each_pass;
    out.backward += in_each_pass + update / 4;
  } else {
    out.forward *= kPipeline;
    out.backward = out.backward * kPipeline + update / 4;
  }
  return out;
}

Prediction predict(const Label& label, bool counts_new_memory) {
  const Card& card = cards().at(label.card);
  return label.parallel.empty() ? on_one_gpu(label, card, counts_new_memory)
                                : on_four_gpus(label, card);
}

double error_of(const Label& label, bool counts_new_memory = true) {
  return 1000 * predict(label, counts_new_memory).step() / label.step - 1;
}

struct Accuracy {
  std::size_t within = 0, all = 0;
  double mean = 0;
};

Accuracy report(const char* what, const std::vector<double>& errors) {
  Accuracy out{.all = errors.size()};
  for (const double error : errors) {
    out.within += std::abs(error) < 0.1;
    out.mean += std::abs(error) / static_cast<double>(errors.size());
  }
  std::printf("%s: mean error %.1f %%, %zu of %zu within 10 %%\n", what, 100 * out.mean, out.within,
              out.all);
  return out;
}

int compare(const std::filesystem::path& file) {
  std::vector<double> training, without_new_memory, inference, held_out_training,
      held_out_inference;
  std::printf(
      "| card | model | pass | length | batch | parallel | measured ms | predicted ms | error |\n"
      "|---|---|---|---:|---:|---|---:|---:|---:|\n");
  for (const Label& label : read_labels(file)) {
    const double error = error_of(label);
    const bool held_out = cards().at(label.card).held_out;
    const bool trains = label.mode == "train";
    (trains ? training : inference).push_back(error);
    if (trains) without_new_memory.push_back(error_of(label, false));
    if (held_out) (trains ? held_out_training : held_out_inference).push_back(error);
    std::printf("| %s | %s | %s | %.0f | %.0f | %s | %.1f | %.1f | %+.1f %% |\n",
                label.card.c_str(), label.model.c_str(), trains ? "forward, backward" : "forward",
                label.length, label.batch, label.parallel.c_str(), label.step,
                label.step * (1 + error), 100 * error);
  }
  std::printf("\n");
  const Accuracy all = report("training", training);
  report("training, without the driver's time for new memory", without_new_memory);
  report("training, held-out cards", held_out_training);
  report("inference", inference);
  const Accuracy held_out = report("inference, held-out cards", held_out_inference);
  const bool holds = all.mean <= 0.06 && 30 * all.all <= 37 * all.within && held_out.mean <= 0.06;
  if (!holds) std::printf("This is worse than docs/gpu.md says.\n");
  return holds ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return compare(argc > 1 ? argv[1] : HASTEN_LABELS);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_time: %s\n", error.what());
    return 1;
  }
}
