// Measures the training step of a BERT classifier, over many steps, and prints one JSON line. A
// step does the work of benchmarks/python/train_step.py: random ids, masks of ones, AdamW, a linear
// schedule, and clipping at norm 1.
//
//   $ train_step --mode hasten|naive|floor --size tiny|small|base [--steps N] [--batch N] [--seq N]
//                [--threads N] [--dropout P] [--bf16] [--profile]
//
// The mode naive trains as a user of plain LibTorch does (naive_bert.h, torch::optim::AdamW). The
// mode floor does only what no implementation can omit: the matrix products of forward and backward
// at the rate that this CPU reaches, and one pass of AdamW over its memory.
//
// --profile, for the mode hasten, adds an anatomy of three more steps, as tables on standard error,
// and a second JSON line with the 14 operators that take longest, in milliseconds per step.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "hasten/anatomy/anatomy.h"
#include "hasten/device/memory.h"
#include "hasten/models/bert.h"
#include "hasten/ops/ops.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/scheduler.h"
#include "hasten/prepare/detail/autocast.h"
#include "naive_bert.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace hasten;

struct Options {
  std::string mode = "hasten", size = "tiny";
  std::int64_t steps = 100, batch = 8, seq = 32;
  int threads = 1;
  double dropout = 0.1;
  bool bf16 = false, profile = false;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--bf16") {
      o.bf16 = true;
      continue;
    }
    if (flag == "--profile") {
      o.profile = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--mode")
      o.mode = value;
    else if (flag == "--size")
      o.size = value;
    else if (flag == "--steps")
      o.steps = std::atoll(value);
    else if (flag == "--batch")
      o.batch = std::atoll(value);
    else if (flag == "--seq")
      o.seq = std::atoll(value);
    else if (flag == "--threads")
      o.threads = std::atoi(value);
    else if (flag == "--dropout")
      o.dropout = std::atof(value);
    else
      std::fprintf(stderr, "unknown flag %s\n", flag.c_str()), std::exit(2);
  }
  return o;
}

BertConfig config_of(const Options& o) {
  BertConfig c;
  if (o.size == "tiny")
    c.hidden_size = 64, c.num_hidden_layers = 2, c.num_attention_heads = 2,
    c.intermediate_size = 256;
  if (o.size == "small")
    c.hidden_size = 256, c.num_hidden_layers = 4, c.num_attention_heads = 4,
    c.intermediate_size = 1024;
  c.hidden_dropout_prob = c.attention_probs_dropout_prob = o.dropout;
  return c;
}

struct Rows {
  explicit Rows(const Options& o)
      : ids(at::randint(100, 30000, {o.steps * o.batch, o.seq})),
        labels(at::randint(0, 2, {o.steps * o.batch})),
        mask(at::ones({o.batch, o.seq}, at::kLong)),
        order(at::randperm(o.steps * o.batch)) {}
  at::Tensor ids, labels, mask, order;
};

using StepFunction =
    std::function<double(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& labels)>;

StepFunction hasten_step(const Options& o, const std::shared_ptr<StepObservers>& observers) {
  auto model = std::make_shared<BertForSequenceClassification>(config_of(o));
  model->initialize();
  model->train();
  model->set_sparse_gradients(true);
  auto optimizer = std::make_shared<AdamW>(model->parameters(),
                                           torch::optim::AdamWOptions(5e-5).weight_decay(0));
  std::shared_ptr<LambdaLR> scheduler =
      get_scheduler(SchedulerType::linear, *optimizer, {.num_training_steps = o.steps});
  const Precision precision = o.bf16 ? Precision::bf16 : Precision::no;
  observers->add_model(model);
  observers->add_optimizer(optimizer);
  return [=, parameters = model->parameters()](const at::Tensor& ids, const at::Tensor& mask,
                                               const at::Tensor& labels) {
    observers->notify(&StepObserver::on_batch, std::vector<at::Tensor>{ids, mask, labels});
    ModelOutput out;
    {
      const PhaseScope phase(*observers, StepPhase::forward);
      const AutocastGuard guard(precision, at::kCPU);
      out = model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}});
    }
    {
      const PhaseScope phase(*observers, StepPhase::backward);
      out.loss.backward();
    }
    {
      const PhaseScope phase(*observers, StepPhase::optimizer);
      optimizer->scale_next_step(clip_factor(gradient_norm(parameters), 1.0));
      optimizer->step();
    }
    observers->notify(&StepObserver::on_step);
    scheduler->step();
    optimizer->zero_grad();
    return out.loss.item<double>();
  };
}

StepFunction naive_step(const Options& o) {
  const BertConfig c = config_of(o);
  naive::Bert model(naive::Sizes{c.vocab_size, c.hidden_size, c.num_hidden_layers,
                                 c.num_attention_heads, c.intermediate_size, 512, o.dropout});
  model->train();
  auto optimizer = std::make_shared<torch::optim::AdamW>(
      model->parameters(), torch::optim::AdamWOptions(5e-5).weight_decay(0));
  return [=, step = std::int64_t{0}](const at::Tensor& ids, const at::Tensor& mask,
                                     const at::Tensor& labels) mutable {
    at::Tensor loss;
    {
      const AutocastGuard guard(o.bf16 ? Precision::bf16 : Precision::no, at::kCPU);
      loss = torch::nn::functional::cross_entropy(model->forward(ids, mask).to(at::kFloat), labels);
    }
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer->step();
    optimizer->param_groups()[0].options().set_lr(5e-5 * static_cast<double>(o.steps - ++step) /
                                                  static_cast<double>(o.steps));
    optimizer->zero_grad();
    return loss.item<double>();
  };
}

// Computes each matrix product of a step on separate tensors, in the data type of the run: three
// products per linear layer, six per attention.
StepFunction floor_step(const Options& o) {
  const BertConfig c = config_of(o);
  const std::int64_t rows = o.batch * o.seq, n = c.hidden_size, inner = c.intermediate_size,
                     head = n / c.num_attention_heads;
  const at::ScalarType type = o.bf16 ? at::kBFloat16 : at::kFloat;
  struct Product {
    at::Tensor x, w;
    std::int64_t times;
  };
  std::vector<Product> products;
  const auto linear = [&](std::int64_t in, std::int64_t out, std::int64_t times) {
    products.push_back(
        {at::randn({rows, in}).to(type), at::randn({out, in}).to(type), times});  // forward
    products.push_back(
        {at::randn({rows, out}).to(type), at::randn({in, out}).to(type), times});  // gradient of x
    products.push_back(
        {at::randn({out, rows}).to(type), at::randn({in, rows}).to(type), times});  // gradient of w
  };
  linear(n, n, 4 * c.num_hidden_layers);
  linear(n, inner, c.num_hidden_layers);
  linear(inner, n, c.num_hidden_layers);
  const std::int64_t groups = o.batch * c.num_attention_heads;
  const at::Tensor a = at::randn({groups, o.seq, head}).to(type),
                   b = at::randn({groups, head, o.seq}).to(type),
                   p = at::randn({groups, o.seq, o.seq}).to(type);
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : BertForSequenceClassification(c).parameters())
    weights.push_back(at::zeros_like(parameter).requires_grad_());
  auto optimizer = std::make_shared<AdamW>(weights);
  for (at::Tensor& weight : weights) weight.mutable_grad() = at::zeros_like(weight).detach();
  return [=](const at::Tensor&, const at::Tensor&, const at::Tensor&) {
    const torch::NoGradGuard no_grad;
    for (const Product& product : products) {
      for (std::int64_t i = 0; i < product.times; ++i)
        type == at::kFloat ? ops::linear(product.x, product.w, {})
                           : at::linear(product.x, product.w);
    }
    for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
      for (int i = 0; i < 2; ++i) at::bmm(a, b);
      for (int i = 0; i < 4; ++i) at::bmm(p, a);
    }
    optimizer->step();
    return 0.0;
  };
}

double milliseconds(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void print_profile(const anatomy::Report& report) {
  std::map<std::string, double> seconds;
  double all = 0;
  for (const anatomy::Operation& each : report.operations) {
    seconds[each.name] += each.seconds;
    all += each.seconds;
  }
  std::vector<std::pair<std::string, double>> rows(seconds.begin(), seconds.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  rows.resize(std::min<std::size_t>(rows.size(), 14));
  std::fprintf(stderr, "%s", anatomy::to_text(report).c_str());
  std::printf("{");
  for (const auto& [name, took] : rows) {
    std::printf("\"%s\": {\"ms\": %.3f, \"share\": %.3f}%s", name.c_str(),
                1000 * took / static_cast<double>(report.steps), took / all,
                name == rows.back().first ? "}\n" : ", ");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto start = Clock::now();
  const Options o = parse(argc, argv);
  if (o.mode == "hasten") keep_freed_memory();
  at::set_num_threads(o.threads);
  torch::manual_seed(0);
  const auto observers = std::make_shared<StepObservers>();
  const StepFunction step = o.mode == "naive"   ? naive_step(o)
                            : o.mode == "floor" ? floor_step(o)
                                                : hasten_step(o, observers);
  const Rows rows(o);
  std::vector<double> times;
  double first = 0, sum = 0;
  auto before = Clock::now();
  for (std::int64_t i = 0; i < o.steps; ++i) {
    const at::Tensor some = rows.order.narrow(0, i * o.batch, o.batch);
    sum += step(rows.ids.index_select(0, some), rows.mask, rows.labels.index_select(0, some));
    const auto now = Clock::now();
    if (i == 0) first = milliseconds(start, now);
    if (i >= std::max<std::int64_t>(2, o.steps / 10)) times.push_back(milliseconds(before, now));
    before = now;
  }
  std::printf(
      "{\"mode\": \"%s\", \"size\": \"%s\", \"bf16\": %s, \"steps\": %lld, \"median_ms\": %.3f, "
      "\"min_ms\": %.3f, "
      "\"first_step_from_main_ms\": %.1f, \"peak_rss_mib\": %lld, \"mean_loss\": %.6f}\n",
      o.mode.c_str(), o.size.c_str(), o.bf16 ? "true" : "false", static_cast<long long>(o.steps),
      median(times), *std::min_element(times.begin(), times.end()), first,
      static_cast<long long>(host_memory().peak_resident >> 20),
      sum / static_cast<double>(o.steps));
  if (!o.profile) return 0;
  constexpr std::int64_t kSteps = 3;
  Anatomy anatomy({.steps = kSteps}, observers);
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const at::Tensor some = rows.order.narrow(0, i * o.batch, o.batch);
    step(rows.ids.index_select(0, some), rows.mask, rows.labels.index_select(0, some));
  }
  print_profile(anatomy.report());
}
