// Kills a run at every call that changes its folder of checkpoints, and continues the run. In the
// second form the call fails instead, and the run continues by itself.
//
//   checkpoint_crashes [STRIDE [STRIDE-OF-RANKS]]
//   checkpoint_crashes errors [STRIDE]
//
// It first counts the calls of an undisturbed run (watched_calls.h). Then it takes every STRIDE-th
// call (1 means all), or every STRIDE-OF-RANKS-th call in runs of several ranks and in runs that
// are killed twice. A process runs up to that call and is killed there. If the call is a write, it
// writes half of the bytes first. A second process continues the run as a user would, without
// naming a checkpoint. In some runs it is killed too, and a third one continues. The last one must
// - continue from the newest checkpoint whose save had returned, or from a later one,
// - find no damaged folder, because an incomplete folder never has the name of a checkpoint,
// - end with exactly the weights of the undisturbed run.
// The runs use dropout, shuffling and accumulation, and some save inside an accumulation window.
//
// If a call fails (I/O error, full disk, read-only folder, short write), the run must end with the
// weights of the undisturbed run. Its newest checkpoint must be complete. The error must name the
// path and, for a write, the number of bytes.
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
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
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

// The file in which a run notes one line for each event.
struct Journal {
  fs::path file;
  void add(const std::string& line) const { std::ofstream(file, std::ios::app) << line << '\n'; }
  // Returns the number in the last line that begins with the word, or -1 if there is none.
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

void record_digest(const Journal& journal, const torch::nn::Module& net) {
  std::string bytes;
  for (const at::Tensor& parameter : net.parameters())
    bytes.append(static_cast<const char*>(parameter.const_data_ptr()), parameter.nbytes());
  journal.add("digest " + short_digest(bytes));
}

// How and where a loop saves.
struct SaveOptions {
  bool replaces = false;  // saves to one folder instead of numbered folders
  bool asynchronous = false;
  bool in_window = false;  // saves after the first micro-batch of the next step
  bool on_each_node = false;
};

// Throws if the error lacks information that a user needs.
void check_message(const IoError& error, const fs::path& folder) {
  const std::string text = error.what();
  const bool is_of_write = std::string_view(error.code()) == "io.write";
  if (text.find(folder.string()) == std::string::npos ||
      (is_of_write && text.find(" bytes") == std::string::npos))
    throw std::runtime_error("the message lacks the path or the bytes: " + text);
}

// Calls `save`. Returns whether it succeeded. An error of the file system does not end the run; it
// is recorded in the journal.
bool try_save(const std::function<void()>& save, const fs::path& folder, const Journal& journal) {
  try {
    save();
    return true;
  } catch (const IoError& error) {
    check_message(error, folder);
    journal.add("failed 1");
    return false;
  }
}

// True if every process has the folder, each on its own machine. All have to load it, or none.
bool all_have(const Accelerator& accelerator, const fs::path& folder) {
  const auto of_ranks = accelerator.group().gather_object(fs::exists(folder) ? "1" : "");
  return std::find(of_ranks.begin(), of_ranks.end(), "") == of_ranks.end();
}

// Runs a training loop written by the user, without a Trainer.
void run_loop(const fs::path& folder, const Journal& journal, const SaveOptions& saves) {
  Accelerator accelerator({.gradient_accumulation_steps = 2,
                           .cpu = true,
                           .project_config = {.project_dir = folder,
                                              .automatic_checkpoint_naming = true,
                                              .total_limit = 2,
                                              .save_on_each_node = saves.on_each_node}});
  Net net;
  AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
  auto batches = make_loader(rows(), {.batch_size = 4, .shuffle = true, .seed = 9});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  auto scheduler = get_scheduler("linear", optimizer, 2, kSteps);
  torch::manual_seed(7 + accelerator.process().process_index);
  const fs::path only = folder / "state";
  if (!saves.replaces) {
    accelerator.load_state();
  } else if (all_have(accelerator, only)) {
    accelerator.load_state(only);
  }
  const bool is_main = accelerator.is_main_process();
  if (is_main) journal.add(str("resumed ", optimizer.steps()));
  std::int64_t in_flight = -1;  // the step of the asynchronous save that has not finished, or -1
  const auto wait = [&] {
    if (in_flight >= 0 && try_save([&] { accelerator.wait_for_save(); }, folder, journal) &&
        is_main)
      journal.add(str("saved ", in_flight));
    in_flight = -1;
  };
  const auto save = [&] {
    wait();
    const auto call = [&] {
      accelerator.save_state(saves.replaces ? only : fs::path(),
                             {.asynchronous = saves.asynchronous});
    };
    if (!try_save(call, folder, journal)) return;
    if (saves.asynchronous) {
      in_flight = optimizer.steps();
    } else if (is_main) {
      journal.add(str("saved ", optimizer.steps()));
    }
  };
  while (optimizer.steps() < kSteps) {
    for (auto& batch : loader) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(torch::mse_loss(model(batch.at("x")), batch.at("y")));
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      const bool is_in_window = !accelerator.sync_gradients();
      if (is_in_window == saves.in_window && optimizer.steps() > 0 &&
          optimizer.steps() % kInterval == 0)
        save();
      if (optimizer.steps() == kSteps) break;
    }
  }
  wait();
  if (is_main) record_digest(journal, *net);
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

void run_trainer(const fs::path& folder, const Journal& journal, bool asynchronous) {
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
  args.async_save = asynchronous;
  if (!checkpoints(folder).empty()) args.resume_from_checkpoint = "true";
  Net net;
  Trainer trainer(
      net.ptr(), args,
      {.train_dataset = TrainerDataset(rows()),
       .compute_loss =
           [](NetImpl& net, const TensorDict& batch) {
             return torch::mse_loss(net.forward(batch.at("x")), batch.at("y"));
           },
       .callbacks = {std::make_shared<JournalCallback>(journal)},
       .log_sink =
           [&](std::string_view line) {
             if (line.find("was not saved") == line.npos) return;
             journal.add("failed 1");
             if (line.find(folder.string()) == line.npos)
               throw std::runtime_error("the message lacks the path: " + std::string(line));
           }});
  trainer.train();
  record_digest(journal, *net);
}

// Runs the function in a fork, in which the call with the number `fault_at` fails or kills the
// process. Returns the fork's wait status, and leaves the number of calls or the error in the file
// `result`.
int run_in_fork(const fs::path& folder, long fault_at, Fault fault, const fs::path& result,
                const std::function<void()>& function) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    watch_calls(folder.string(), fault_at, fault);
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

// A folder for runs that are started in forks of this process.
struct RunFolder {
  explicit RunFolder(const Run& run) : run(run) { fs::create_directory(folder); }
  // Starts the run, in which the call with the number `fault_at` is disturbed. Returns the wait
  // status.
  int start(long fault_at = kNever, Fault fault = Fault::kill) const {
    return run_in_fork(folder, fault_at, fault, result_file, [&] { run(folder, journal); });
  }
  // Returns the number of calls of the latest start, or its error message.
  std::string result() const { return read_file(result_file); }

  const Run& run;
  const TemporaryDirectory home;
  const fs::path folder = home.path() / "run", result_file = home.path() / "result";
  const Journal journal{home.path() / "journal"};
};

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

// Continues a run that was killed, the last time at this call.
void check_continuation(const std::string& name, const RunFolder& place, long call,
                        const std::string& digest) {
  const std::int64_t saved = std::max<std::int64_t>(0, place.journal.last("saved"));
  if (place.start() != 0)
    return report_failure(name, call, "it did not continue: " + place.result());
  if (place.journal.last("resumed") < saved)
    report_failure(name, call,
                   str("it continued from step ", place.journal.last("resumed"), ", although step ",
                       saved, " was saved"));
  if (has_damage(place.folder)) report_failure(name, call, "a damaged checkpoint was found");
  if (place.journal.digest() != digest) report_failure(name, call, "it ended with other weights");
}

// Kills the run at this call and continues it.
void check_call(const std::string& name, const Run& run, long call, const std::string& digest) {
  const RunFolder place(run);
  // The launcher of several ranks reports that one of them was killed.
  if (place.start(call) == 0) return report_failure(name, call, "the run was not killed");
  check_continuation(name, place, call, digest);
}

// Kills the run at the call `first`, and the run that continues it at the call `second`. Returns
// whether that run has arrived there.
bool check_second_kill(const std::string& name, const Run& run, long first, long second,
                       const std::string& digest) {
  const RunFolder place(run);
  if (place.start(first) == 0) {
    report_failure(name, first, "the run was not killed");
    return false;
  }
  if (place.start(second) == 0) return false;
  check_continuation(str(name, ", killed at call ", first, " before"), place, second, digest);
  return true;
}

// The number of calls of an undisturbed run, and the digest of its weights.
struct Undisturbed {
  long calls = 0;
  std::string digest;
};

// Returns 0 calls if the run fails.
Undisturbed run_undisturbed(const std::string& name, const Run& run) {
  const RunFolder place(run);
  if (place.start() != 0) {
    report_failure(name, 0, "the undisturbed run failed: " + place.result());
    return {};
  }
  // The ranks of a launcher count their own calls and write the number to the journal.
  const long calls = std::max<long>(std::stol(place.result()), place.journal.last("calls"));
  if (calls < 60) report_failure(name, 0, str("there are only ", calls, " calls"));
  return {.calls = calls, .digest = place.journal.digest()};
}

void check_run(const std::string& name, const Run& run, long stride) {
  const int before = failures;
  const Undisturbed undisturbed = run_undisturbed(name, run);
  long checked = 0;
  for (long call = 1; call <= undisturbed.calls; call += stride, ++checked)
    check_call(name, run, call, undisturbed.digest);
  std::cout << (failures == before ? "ok      " : "FAILED  ") << name << ": killed at " << checked
            << " of " << undisturbed.calls << " calls, continued each time" << std::endl;
}

// Kills the run, and the run that continues it at every call. The first kills are spread over all
// calls, so the second run begins after different amounts of work.
void check_second_run(const std::string& name, const Run& run, long stride) {
  constexpr long kSpread = 37;  // has no common factor with most numbers of calls
  const int before = failures;
  const Undisturbed undisturbed = run_undisturbed(name, run);
  long checked = 0;
  for (long call = 1; call <= undisturbed.calls; call += stride) {
    const long first = 1 + call * kSpread % undisturbed.calls;
    if (check_second_kill(name, run, first, call, undisturbed.digest)) ++checked;
  }
  if (checked == 0) report_failure(name, 0, "no continued run was killed");
  std::cout << (failures == before ? "ok      " : "FAILED  ") << name << ": killed twice, "
            << checked << " times, continued each time" << std::endl;
}

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::kill:
      return "kill";
    case Fault::io_error:
      return "I/O error";
    case Fault::disk_full:
      return "full disk";
    case Fault::read_only:
      return "read-only folder";
    case Fault::short_write:
      return "short write";
    case Fault::stays_full:
      return "disk that stays full";
    case Fault::slow_disk:
      return "slow disk";
    case Fault::none:
      return "no fault";
  }
  return "";
}

// Makes the call fail, and checks how the run ends.
void check_error(const std::string& name, const Run& run, long call, Fault fault,
                 const std::string& digest, long& failed_saves) {
  const RunFolder place(run);
  const std::string run_name = str(name, ", ", name_of(fault));
  if (place.start(call, fault) != 0) {
    const std::string reason = place.result();
    // Before it trains, the Trainer refuses a folder in which it cannot create or write files.
    if (!starts_with(reason, "cannot create files in") &&
        !starts_with(reason, "cannot write files in"))
      report_failure(run_name, call, "the run ended: " + reason);
    return;
  }
  if (place.journal.digest() != digest)
    report_failure(run_name, call, "it ended with other weights");
  if (place.journal.last("failed") > 0) ++failed_saves;
  const fs::path& folder = place.folder;
  const fs::path state = folder / "state";
  const bool is_one = fs::exists(state);
  const fs::path all = fs::exists(folder / "checkpoints") ? folder / "checkpoints" : folder;
  const std::string prefix = all == folder ? kCheckpointPrefix : kProjectPrefix;
  const auto found = is_one ? std::vector{state} : checkpoints(all, prefix);
  for (const fs::path& each : found) {
    try {
      verify_checkpoint(each);
    } catch (const Error& error) {
      report_failure(run_name, call, str("a checkpoint is damaged: ", error.what()));
    }
  }
  // A saved checkpoint stays until a later one has been saved.
  if (found.empty() && place.journal.last("saved") >= 0)
    report_failure(run_name, call, "no checkpoint is left");
}

void check_errors(const std::string& name, const Run& run, long stride) {
  const RunFolder place(run);
  if (place.start() != 0)
    return report_failure(name, 0, "the undisturbed run failed: " + place.result());
  const long calls = std::stol(place.result());
  constexpr Fault kFaults[] = {Fault::io_error, Fault::disk_full, Fault::read_only,
                               Fault::short_write, Fault::stays_full};
  long checked = 0, failed_saves = 0;
  const int before = failures;
  // The stride applies to all pairs of a call and a fault, so a stride of 6 uses each kind of fault
  // in turn.
  for (long pair = 0; pair < calls * std::ssize(kFaults); pair += stride, ++checked)
    check_error(name, run, pair / std::ssize(kFaults) + 1, kFaults[pair % std::ssize(kFaults)],
                place.journal.digest(), failed_saves);
  if (failed_saves == 0) report_failure(name, 0, "no save has failed");
  std::cout << (failures == before ? "ok      " : "FAILED  ") << name << ": " << checked
            << " errors at " << calls << " calls, " << failed_saves
            << " of them in a save; the run went on each time" << std::endl;
}

Run loop_with(const SaveOptions& saves) {
  return
      [saves](const fs::path& folder, const Journal& journal) { run_loop(folder, journal, saves); };
}

Run trainer_with(bool asynchronous) {
  return [asynchronous](const fs::path& folder, const Journal& journal) {
    run_trainer(folder, journal, asynchronous);
  };
}

// Starts the run on a file system that cannot swap two folders, each time on another machine.
Run on_file_server(const Run& run, bool is_taken_for_killed = false) {
  return [=](const fs::path& folder, const Journal& journal) {
    act_on_file_server(str("machine-", ::getpid()), is_taken_for_killed);
    run(folder, journal);
  };
}

// Another machine takes the run for a killed one each time that it replaces a folder, and restores
// the old folder. Each save must succeed in spite of this.
void check_restored_meanwhile(const SaveOptions& saves) {
  const std::string name = "save_state that replaces a folder, which another machine restores";
  const int before = failures;
  const Undisturbed undisturbed = run_undisturbed(name, loop_with(saves));
  const Run run = on_file_server(loop_with(saves), /*is_taken_for_killed=*/true);
  const RunFolder place(run);
  if (place.start() != 0) report_failure(name, 0, "the run ended: " + place.result());
  if (place.journal.last("failed") > 0) report_failure(name, 0, "a save has failed");
  if (place.journal.last("saved") != kSteps) report_failure(name, 0, "the last step was not saved");
  if (place.journal.digest() != undisturbed.digest)
    report_failure(name, 0, "it ended with other weights");
  std::cout << (failures == before ? "ok      " : "FAILED  ") << name << std::endl;
}

int own_rank() { return std::stoi(std::getenv("RANK")); }

Run run_in_ranks(int ranks, const SaveOptions& saves) {
  return [=](const fs::path& folder, const Journal& journal) {
    debug_launcher(
        [&] {
          run_loop(folder, journal, saves);
          if (own_rank() == 0) journal.add(str("calls ", watched_calls()));
        },
        ranks);
  };
}

// Two ranks act as two machines, each with its own folder. Only the machine with the number
// `disturbed` is killed, so the other one may commit a checkpoint that the first one lacks.
Run run_on_two_machines(int disturbed, const SaveOptions& saves) {
  return [=](const fs::path& folder, const Journal& journal) {
    debug_launcher([&] {
      const int rank = own_rank();
      ::setenv("LOCAL_RANK", "0", 1);
      ::setenv("LOCAL_WORLD_SIZE", "1", 1);
      ::setenv("GROUP_RANK", str(rank).c_str(), 1);
      ::setenv("GROUP_WORLD_SIZE", "2", 1);
      if (rank != disturbed) watch_calls(folder.string());
      const fs::path own = folder / str("machine", rank);
      fs::create_directories(own);
      run_loop(own, journal, saves);
      if (rank == disturbed) journal.add(str("calls ", watched_calls()));
    });
  };
}

int check_all_errors(long stride) {
  check_errors("save_state", loop_with({}), stride);
  check_errors("asynchronous save_state", loop_with({.asynchronous = true}), stride);
  check_errors("save_state that replaces a folder", loop_with({.replaces = true}), stride);
  check_errors("asynchronous save_state that replaces a folder",
               loop_with({.replaces = true, .asynchronous = true}), stride);
  check_errors("save_state that replaces a folder without a swap",
               on_file_server(loop_with({.replaces = true})), stride);
  check_errors("the Trainer", trainer_with(false), stride);
  check_errors("the Trainer, asynchronous", trainer_with(true), stride);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "errors")
    return check_all_errors(argc > 2 ? std::stol(argv[2]) : 1);
  const long stride = argc > 1 ? std::stol(argv[1]) : 1;
  const long stride_of_ranks = argc > 2 ? std::stol(argv[2]) : stride;
  check_run("save_state with rotation", loop_with({}), stride);
  check_run("save_state that replaces a folder", loop_with({.replaces = true}), stride);
  check_run("asynchronous save_state, inside a window",
            loop_with({.asynchronous = true, .in_window = true}), stride);
  check_run("asynchronous save_state that replaces a folder",
            loop_with({.replaces = true, .asynchronous = true}), stride);
  check_run("save_state that replaces a folder without a swap",
            on_file_server(loop_with({.replaces = true})), stride);
  check_run("the Trainer", trainer_with(false), stride);
  check_run("the Trainer, asynchronous", trainer_with(true), stride);
  const SaveOptions plain, asynchronous = {.asynchronous = true}, replaces = {.replaces = true},
                           each_node = {.on_each_node = true};
  check_run("save_state of two ranks", run_in_ranks(2, plain), stride_of_ranks);
  check_run("asynchronous save_state of two ranks, inside a window",
            run_in_ranks(2, {.asynchronous = true, .in_window = true}), stride_of_ranks);
  check_run("save_state of two ranks that replaces a folder", run_in_ranks(2, replaces),
            stride_of_ranks);
  check_run("save_state of four ranks", run_in_ranks(4, plain), stride_of_ranks);
  check_run("asynchronous save_state of four ranks", run_in_ranks(4, asynchronous),
            stride_of_ranks);
  for (const int machine : {0, 1}) {
    check_run(str("save_state on each machine, machine ", machine),
              run_on_two_machines(machine, each_node), stride_of_ranks);
    check_run(str("asynchronous save_state on each machine, machine ", machine),
              run_on_two_machines(machine, {.asynchronous = true, .on_each_node = true}),
              stride_of_ranks);
    const Run replacing = run_on_two_machines(machine, {.replaces = true, .on_each_node = true});
    const std::string name =
        str("save_state that replaces a folder on each machine, machine ", machine);
    check_run(name, replacing, stride_of_ranks);
    if (machine == 0)
      check_run(name + ", without a swap", on_file_server(replacing), stride_of_ranks);
  }
  check_restored_meanwhile(replaces);
  check_second_run("the second run of save_state", loop_with(plain), stride_of_ranks);
  check_second_run("the second run of save_state that replaces a folder", loop_with(replaces),
                   stride_of_ranks);
  check_run("asynchronous save_state that replaces a folder without a swap",
            on_file_server(loop_with({.replaces = true, .asynchronous = true})), stride_of_ranks);
  check_second_run("the second run of save_state that replaces a folder without a swap",
                   on_file_server(loop_with(replaces)), stride_of_ranks);
  check_second_run("the second run of an asynchronous save_state", loop_with(asynchronous),
                   stride_of_ranks);
  check_second_run("the second run of the Trainer", trainer_with(false), stride_of_ranks);
  check_second_run("the second run of save_state of two ranks", run_in_ranks(2, plain),
                   stride_of_ranks);
  return failures == 0 ? 0 : 1;
}
