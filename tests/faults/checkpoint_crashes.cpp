// Kills a run at every call that changes its folder of checkpoints, and continues it.
//
//   checkpoint_crashes [STRIDE [STRIDE-OF-TWO-RANKS]]
//
// It first counts the calls of an undisturbed run (watched_calls.h). Then, for every STRIDE-th of them (1: all),
// a process runs up to that call and is killed there; a write is cut in half first. A second process
// continues the run as a user would, without saying where. It must
// - continue from the newest checkpoint whose save had returned, or from a later one,
// - find no damaged folder, as nothing incomplete ever has the name of a checkpoint,
// - end with the weights of the undisturbed run, to the bit.
// The runs use dropout, shuffling and accumulation.
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>

#include "faults/watched_calls.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"

namespace {

using namespace hasten;
namespace fs = std::filesystem;

constexpr std::int64_t kSteps = 9, kInterval = 3, kRows = 30, kWidth = 4;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(kWidth, 8));
    second = register_module("second", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(first(x).relu(), 0.3, is_training()));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

ColumnDataset rows() {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({kRows, kWidth});
  return ColumnDataset({{"x", x}, {"y", x.sum(1, true).sin()}});
}

// What a run leaves beside its checkpoints: one line for each event.
struct Journal {
  fs::path file;
  void add(const std::string& line) const { std::ofstream(file, std::ios::app) << line << '\n'; }
  // The number in the last line that begins with the word; -1: none.
  std::int64_t last(const std::string& word) const {
    std::int64_t number = -1;
    std::ifstream lines(file);
    for (std::string first, second; lines >> first >> second;) {
      if (first == word) number = std::stoll(second);
    }
    return number;
  }
  std::string digest() const {
    std::string found;
    std::ifstream lines(file);
    for (std::string first, second; lines >> first >> second;) {
      if (first == "digest") found = second;
    }
    return found;
  }
};

void note_end(const Journal& journal, const torch::nn::Module& net) {
  std::string bytes;
  for (const at::Tensor& parameter : net.parameters())
    bytes.append(static_cast<const char*>(parameter.const_data_ptr()), parameter.nbytes());
  journal.add("digest " + short_digest(bytes));
}

// A loop of one's own. Saves to numbered folders, or to one folder that it replaces.
void run_loop(const fs::path& folder, const Journal& journal, bool replaces) {
  Accelerator accelerator(
      {.gradient_accumulation_steps = 2,
       .cpu = true,
       .project_config = {
           .project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = 2}});
  Net net;
  AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
  auto batches = make_loader(rows(), {.batch_size = 4, .shuffle = true, .seed = 9});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  auto scheduler = get_scheduler("linear", optimizer, 2, kSteps);
  torch::manual_seed(7 + accelerator.process().process_index);
  const fs::path only = folder / "state";
  if (!replaces) {
    accelerator.load_state();
  } else if (fs::exists(only)) {
    accelerator.load_state(only);
  }
  const bool is_main = accelerator.is_main_process();
  if (is_main) journal.add(str("resumed ", optimizer.steps()));
  while (optimizer.steps() < kSteps) {
    for (auto& batch : loader) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(torch::mse_loss(model(batch.at("x")), batch.at("y")));
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      if (!accelerator.sync_gradients()) continue;
      if (optimizer.steps() % kInterval == 0) {
        accelerator.save_state(replaces ? only : fs::path());
        if (is_main) journal.add(str("saved ", optimizer.steps()));
      }
      if (optimizer.steps() == kSteps) break;
    }
  }
  if (is_main) note_end(journal, *net);
}

struct JournalCallback : TrainerCallback {
  explicit JournalCallback(Journal journal) : journal(std::move(journal)) {}
  void on_train_begin(const TrainerEvent& event, TrainerControl&) override {
    journal.add(str("resumed ", event.state.global_step));
  }
  void on_save(const TrainerEvent& event, TrainerControl&) override {
    journal.add(str("saved ", event.state.global_step));
  }
  Journal journal;
};

void run_trainer(const fs::path& folder, const Journal& journal) {
  TrainingArguments args;
  args.output_dir = folder.string();
  args.per_device_train_batch_size = 4;
  args.gradient_accumulation_steps = 2;
  args.max_steps = kSteps;
  args.save_steps = kInterval;
  args.save_total_limit = 2;
  args.learning_rate = 1e-2;
  args.use_cpu = true;
  args.disable_tqdm = true;
  if (!checkpoints(folder).empty()) args.resume_from_checkpoint = "true";
  Net net;
  Trainer trainer(net.ptr(), args,
                  {.train_dataset = TrainerDataset(rows()),
                   .compute_loss =
                       [](NetImpl& net, const TensorDict& batch) {
                         return torch::mse_loss(net.forward(batch.at("x")), batch.at("y"));
                       },
                   .callbacks = {std::make_shared<JournalCallback>(journal)},
                   .log_sink = [](std::string_view) {}});
  trainer.train();
  note_end(journal, *net);
}

// Runs the function in a fork, which is killed at this call. Returns how it ended, and leaves the
// number of calls or the error in the file `result`.
int run_in_fork(const fs::path& folder, long kill_at, const fs::path& result,
                const std::function<void()>& function) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    watch_calls(folder.string(), kill_at);
    try {
      function();
    } catch (const std::exception& error) {
      std::ofstream(result) << error.what();
      _exit(1);
    }
    std::ofstream(result) << watched_calls();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

using Run = std::function<void(const fs::path& folder, const Journal& journal)>;

int failures = 0;

void report_failure(const std::string& run, long call, const std::string& what) {
  ++failures;
  std::cout << "FAILED  " << run << ", call " << call << ": " << what << std::endl;
}

bool has_damage(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename().string().find("damaged") != std::string::npos) return true;
  }
  return false;
}

// Kills the run at the call and continues it.
void check_call(const std::string& name, const Run& run, long call, const std::string& digest) {
  const TemporaryDirectory home;
  const fs::path folder = home.path() / "run", result = home.path() / "result";
  const Journal journal{home.path() / "journal"};
  fs::create_directory(folder);
  const int killed = run_in_fork(folder, call, result, [&] { run(folder, journal); });
  // The launcher of two ranks reports the death of one.
  if (killed == 0) return report_failure(name, call, "the run was not killed");
  const std::int64_t saved = std::max<std::int64_t>(0, journal.last("saved"));
  const int ended = run_in_fork(folder, kNever, result, [&] { run(folder, journal); });
  if (ended != 0) return report_failure(name, call, "it did not continue: " + read_file(result));
  if (journal.last("resumed") < saved)
    report_failure(name, call,
                   str("it continued from step ", journal.last("resumed"), ", although step ",
                       saved, " was saved"));
  if (has_damage(folder)) report_failure(name, call, "a damaged checkpoint was found");
  if (journal.digest() != digest) report_failure(name, call, "it ended with other weights");
}

void check_run(const std::string& name, const Run& run, long stride) {
  const TemporaryDirectory home;
  const fs::path folder = home.path() / "run", result = home.path() / "result";
  const Journal journal{home.path() / "journal"};
  fs::create_directory(folder);
  if (run_in_fork(folder, kNever, result, [&] { run(folder, journal); }) != 0)
    return report_failure(name, 0, "the undisturbed run failed: " + read_file(result));
  // A launcher's ranks count for themselves, and leave their number in the journal.
  const long calls = std::max<long>(std::stol(read_file(result)), journal.last("calls"));
  if (calls < 100) return report_failure(name, 0, str("there are only ", calls, " calls"));
  long checked = 0;
  const int before = failures;
  for (long call = 1; call <= calls; call += stride, ++checked)
    check_call(name, run, call, journal.digest());
  std::cout << (failures == before ? "ok      " : "FAILED  ") << name << ": killed at " << checked
            << " of " << calls << " calls, continued each time" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const long stride = argc > 1 ? std::stol(argv[1]) : 1;
  const long stride_of_two = argc > 2 ? std::stol(argv[2]) : stride;
  check_run(
      "save_state with rotation",
      [](const fs::path& folder, const Journal& journal) { run_loop(folder, journal, false); },
      stride);
  check_run(
      "save_state that replaces a folder",
      [](const fs::path& folder, const Journal& journal) { run_loop(folder, journal, true); },
      stride);
  check_run("the Trainer", run_trainer, stride);
  check_run(
      "save_state of two ranks",
      [](const fs::path& folder, const Journal& journal) {
        debug_launcher([&] {
          run_loop(folder, journal, false);
          if (std::string(std::getenv("RANK")) == "0") journal.add(str("calls ", watched_calls()));
        });
      },
      stride_of_two);
  return failures == 0 ? 0 : 1;
}
