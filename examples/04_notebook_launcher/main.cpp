// Compares the memory of eight processes that share one model with the memory of eight processes
// with one model each.
//
//   $ example_04_notebook_launcher --num_processes 8 --num_layers 12
#include <hasten/hasten.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

std::shared_ptr<hasten::BertModel> make_model(std::int64_t layers) {
  torch::manual_seed(42);
  auto model = std::make_shared<hasten::BertModel>(hasten::BertConfig{.num_hidden_layers = layers});
  model->initialize();
  model->eval();
  return model;
}

double size_in_mib(const torch::nn::Module& model) {
  double bytes = 0;
  for (const auto& parameter : model.parameters()) bytes += static_cast<double>(parameter.nbytes());
  return bytes / (1 << 20);
}

// Returns the memory that only this process uses, in MiB.
double own_memory() {
  std::ifstream file("/proc/self/smaps_rollup");
  double total = 0, value = 0;
  for (std::string word; file >> word;) {
    if (word != "Private_Clean:" && word != "Private_Dirty:") continue;
    file >> value;
    total += value / 1024;
  }
  return total;
}

// Embeds different texts in each process and averages their norms. Rank 0 writes the memory of all
// processes together, in MiB, into the file `result`.
void embed(const std::shared_ptr<hasten::BertModel>& model, Clock::time_point began,
           const std::string& result) {
  const auto worker = hasten::worker_of(hasten::config::whole_environment());
  const auto group = hasten::Group::form(worker);
  const torch::NoGradGuard no_grad;
  torch::manual_seed(100 + group.rank());
  const at::Tensor ids = torch::randint(1000, 20000, {2, 32});
  const at::Tensor embedded = model->forward({{"input_ids", ids}}).pooler_output;
  const at::Tensor norm = group.reduce(embedded.norm(2, 1).mean(), hasten::Reduction::mean);
  const at::Tensor memory = group.gather(torch::scalar_tensor(own_memory()));
  if (group.rank() != 0) return;
  const double all = memory.sum().item<double>();
  std::printf(
      "  mean norm %.4f; each process has %.0f MiB of its own, all together %.0f MiB; %.2f s\n",
      norm.item<double>(), memory.max().item<double>(), all, seconds_since(began));
  std::ofstream(result) << all;
}

double read_number(const std::string& file) {
  double number = 0;
  std::ifstream(file) >> number;
  return number;
}

std::int64_t option(int argc, char** argv, const std::string& name, std::int64_t default_value) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return std::atol(argv[i + 1]);
  }
  return default_value;
}

int compare(int argc, char** argv) {
  const std::int64_t layers = option(argc, argv, "--num_layers", 12);
  const std::int64_t processes = option(argc, argv, "--num_processes", 8);
  const hasten::NotebookLauncherOptions options{.num_processes = processes, .use_cpu = true};
  const std::string result = "/tmp/hasten_example_04_" + std::to_string(getpid());

  auto began = Clock::now();
  const auto model = make_model(layers);
  const double size = size_in_mib(*model);
  std::printf("a BERT with %lld layers: %.0f MiB, created in %.2f s\n",
              static_cast<long long>(layers), size, seconds_since(began));

  std::printf("created once, used by %lld processes:\n", static_cast<long long>(processes));
  hasten::notebook_launcher(embed, std::tuple(model, began, result), options);
  const double shared = size + read_number(result);

  std::printf("created by each of them:\n");
  began = Clock::now();
  hasten::notebook_launcher([&] { embed(make_model(layers), began, result); }, options);
  const double copied = read_number(result);
  std::remove(result.c_str());

  std::printf(
      "one shared model and what each process adds: %.0f MiB; one model per process: %.0f MiB "
      "(%.1f times as much)\n",
      shared, copied, copied / shared);
  return shared < copied ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return hasten::run_main([&] { return compare(argc, argv); });
}
