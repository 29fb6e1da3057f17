// Measures what an anatomy costs on steps of BERT-base. It compares four kinds of steps: written by
// hand, prepared without an anatomy, with an anatomy of the memory only, and with an anatomy of
// memory and operations. Each round makes one step of each kind, so that a slowdown of the machine
// affects all kinds. The result of each kind is the lower quartile of its steps' processor times,
// because other programs hardly affect it. Prints one JSON line: milliseconds, and how many percent
// more than by hand.
//
//   $ anatomy_overhead [--rounds N]
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>

#include "hasten/accelerator.h"
#include "hasten/device/memory.h"
#include "hasten/models/bert.h"
#include "hasten/optim/adamw.h"

namespace {

using namespace hasten;

double processor_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double milliseconds(const std::function<void()>& step) {
  const double start = processor_milliseconds();
  step();
  return processor_milliseconds() - start;
}

double quartile(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 4];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 2 && std::strcmp(argv[1], "--rounds") == 0 ? std::atoi(argv[2]) : 16;
  at::set_num_threads(1);
  keep_freed_memory();  // as hasten's programs do, because page faults would hide the difference
  auto net = std::make_shared<BertForSequenceClassification>(*BertConfig::by_name("bert-base"));
  net->initialize();
  net->train();
  auto adamw = std::make_shared<AdamW>(net->parameters());
  const TensorDict batch = {{"input_ids", at::randint(100, 30000, {4, 128})},
                            {"labels", at::randint(0, 2, {4})}};
  Accelerator accelerator({.cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const auto by_hand = [&] {
    net->forward(batch).loss.backward();
    adamw->step();
    adamw->zero_grad();
  };
  const auto prepared = [&, &model = model, &optimizer = optimizer] {
    accelerator.backward(model(batch).loss);
    optimizer.step();
    optimizer.zero_grad();
  };
  const auto with_anatomy = [&](bool operations) {
    return [&, operations] {
      const Anatomy anatomy = accelerator.anatomy({.steps = 0, .operations = operations});
      prepared();
    };
  };
  const std::vector<std::pair<const char*, std::function<void()>>> kinds = {
      {"by_hand", by_hand},
      {"off", prepared},
      {"ledger", with_anatomy(false)},
      {"operations", with_anatomy(true)}};
  std::vector<std::vector<double>> times(kinds.size());
  for (int round = -2; round < rounds; ++round) {     // the first two rounds warm up
    for (std::size_t i = 0; i < kinds.size(); ++i) {  // each round begins with the next kind
      const std::size_t kind = (i + static_cast<std::size_t>(round + 2)) % kinds.size();
      const double took = milliseconds(kinds[kind].second);
      if (round >= 0) times[kind].push_back(took);
    }
  }
  const double by_itself = quartile(times[0]);
  std::printf("{");
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const double took = quartile(times[i]);
    std::printf("%s\"%s_ms\": %.2f, \"%s_percent\": %.2f", i ? ", " : "", kinds[i].first, took,
                kinds[i].first, 100 * (took / by_itself - 1));
  }
  std::printf("}\n");
}
