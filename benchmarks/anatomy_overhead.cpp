// What the anatomy costs: steps of BERT-base by hand, prepared without an anatomy, with the ledger
// of memory, and with operations too, one of each in turn, so that a machine that slows down slows
// all of them. Prints one JSON line: medians in milliseconds, and medians of the differences to the
// step by hand of the same round.
//
//   anatomy_overhead [--rounds N]
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "hasten/accelerator.h"
#include "hasten/device/memory.h"
#include "hasten/models/bert.h"
#include "hasten/optim/adamw.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace hasten;

double milliseconds(const std::function<void()>& step) {
  const auto start = Clock::now();
  step();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 2 && std::strcmp(argv[1], "--rounds") == 0 ? std::atoi(argv[2]) : 16;
  at::set_num_threads(1);
  keep_freed_memory();  // as hasten's programs do: faults would drown the difference
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
  const auto listened = [&](bool operations) {
    return [&, operations] {
      const Anatomy anatomy = accelerator.anatomy({.steps = 0, .operations = operations});
      prepared();
    };
  };
  const std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"by_hand", by_hand},
      {"off", prepared},
      {"ledger", listened(false)},
      {"operations", listened(true)}};
  std::vector<std::vector<double>> times(ways.size()), more(ways.size());
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    std::vector<double> took(ways.size());
    for (std::size_t i = 0; i < ways.size(); ++i) {  // each comes first in its turn
      const std::size_t way = (i + static_cast<std::size_t>(round + 2)) % ways.size();
      took[way] = milliseconds(ways[way].second);
    }
    for (std::size_t i = 0; i < ways.size() && round >= 0; ++i) {
      times[i].push_back(took[i]);
      more[i].push_back(100 * (took[i] / took[0] - 1));
    }
  }
  std::printf("{");
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::printf("%s\"%s_ms\": %.2f, \"%s_percent\": %.2f", i ? ", " : "", ways[i].first,
                median(times[i]), ways[i].first, median(more[i]));
  }
  std::printf("}\n");
}
