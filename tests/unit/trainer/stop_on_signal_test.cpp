// Signals stop a run: at which step, in which processes, and with which handlers afterwards.
#include "hasten/trainer/stop_on_signal.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_stop_on_signal_test {

using namespace hasten;
using namespace hasten::tiny_runs;
using hasten::multiprocess_checks::require;

namespace {

enum class Moment { train_begin, step, evaluation };

// Raises a signal at step 5, in the middle of `moment`.
struct SignalRaiser : TrainerCallback {
  SignalRaiser(Moment moment, int signal, bool active = true)
      : moment(moment), signal(signal), active(active) {}
  void on_train_begin(const TrainerEvent&, TrainerControl&) override {
    if (active && moment == Moment::train_begin) std::raise(signal);
  }
  void on_step_begin(const TrainerEvent& event, TrainerControl&) override {
    if (active && moment == Moment::step && event.state.global_step == 4) std::raise(signal);
  }
  void on_evaluate_begin(const TrainerEvent&, std::int64_t count) override {
    ++begun;
    announced += count;
  }
  void on_prediction_step(const TrainerEvent& event, TrainerControl&) override {
    ++batches;
    if (active && moment == Moment::evaluation && event.state.global_step == 5 && batches % 3 == 0)
      std::raise(signal);
  }
  void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) override { ++evaluated; }
  Moment moment;
  int signal;
  bool active;
  std::int64_t begun = 0, announced = 0, batches = 0, evaluated = 0;
};

struct SignalledRun {
  TrainOutput out;
  std::string log;
  std::shared_ptr<SignalRaiser> raiser;
  std::size_t evaluations_logged = 0;
};

SignalledRun run_with(Moment moment, int signal, const TrainingArguments& args,
                      bool active = true) {
  SignalledRun run{.raiser = std::make_shared<SignalRaiser>(moment, signal, active)};
  Trainer trainer(new_model(0), args,
                  {.train_dataset = TrainerDataset(rows(120)),
                   .eval_dataset = TrainerDataset(rows(24)),
                   .callbacks = {run.raiser, std::make_shared<StopOnSignal>()},
                   .log_sink = [&](std::string_view line) { run.log += line; }});
  run.out = trainer.train();
  for (const LogEntry& entry : trainer.state().log_history)
    run.evaluations_logged += entry.count("eval_loss");
  return run;
}

struct sigaction action_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action;
}

using Handler = void (*)(int);
bool is_action(int signal, Handler handler) { return action_of(signal).sa_handler == handler; }

void ignore_signal(int) {}

// Forks this process, runs `body` with the default actions in the child, and returns its status as
// waitpid gives it.
template <class Body>
int status_of_fork(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) std::signal(number, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("stop on signal: the run stops after the step in which the signal arrives") {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    CAPTURE(number);
    const Folder folder;
    const SignalledRun run = run_with(Moment::step, number, twenty_steps(folder.path));
    CHECK(run.out.global_step == 5);
    CHECK(run.out.stop_signal == number);
    const std::string line = str("signal ", number, " (SIG", sigabbrev_np(number),
                                 ") was received: training stops at step 5 of 20");
    CHECK(run.log.find(line) != std::string::npos);
    CHECK(run.log.find(line) == run.log.rfind(line));
  }
  const Folder folder;
  CHECK(run_with(Moment::train_begin, SIGTERM, twenty_steps(folder.path)).out.global_step == 0);
}

TEST_CASE("stop on signal: a run without a signal is unchanged") {
  const Folder folder;
  const SignalledRun run = run_with(Moment::step, SIGURG, twenty_steps(folder.path));
  CHECK(run.out.global_step == 20);
  CHECK(run.out.stop_signal == 0);
  CHECK(run.log.find("was received") == std::string::npos);
}

TEST_CASE("stop on signal: the accumulation window is completed, and saved as usual") {
  const Folder folder;
  TrainingArguments args = twenty_steps(folder.path);
  args.gradient_accumulation_steps = 3;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  const SignalledRun run = run_with(Moment::step, SIGTERM, args);
  CHECK(run.out.global_step == 5);
  CHECK(std::filesystem::exists(folder.path / "checkpoint-5" / "model.safetensors"));
}

TEST_CASE("stop on signal: with enable_jit_checkpoint the run stops in the window and saves it") {
  const Folder folder;
  TrainingArguments args = twenty_steps(folder.path);
  args.gradient_accumulation_steps = 3;
  args.enable_jit_checkpoint = true;
  const SignalledRun run = run_with(Moment::step, SIGTERM, args);
  CHECK(run.out.global_step == 4);
  CHECK(run.out.stop_signal == SIGTERM);
  CHECK(std::filesystem::exists(folder.path / "checkpoint-4" / "gradients_0.safetensors"));
}

TEST_CASE("stop on signal: an evaluation ends after the current batch and reports nothing") {
  const Folder folder;
  TrainingArguments args = twenty_steps(folder.path);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 5;
  const SignalledRun run = run_with(Moment::evaluation, SIGTERM, args);
  CHECK(run.out.global_step == 5);
  CHECK(run.out.stop_signal == SIGTERM);
  CHECK(run.raiser->announced == 12);
  CHECK(run.raiser->batches == 3);
  CHECK(run.raiser->evaluated == 0);
  CHECK(run.evaluations_logged == 0);
}

TEST_CASE("stop on signal: the run begins no evaluation after it") {
  const Folder folder;
  TrainingArguments args = twenty_steps(folder.path);
  args.eval_strategy = IntervalStrategy::epoch;
  args.eval_on_start = true;
  // The only evaluation is the one at the start.
  CHECK(run_with(Moment::step, SIGTERM, args).raiser->evaluated == 1);
  const SignalledRun run = run_with(Moment::train_begin, SIGTERM, args);
  CHECK(run.raiser->begun == 0);
  CHECK(run.out.global_step == 0);
}

TEST_CASE("stop on signal: an evaluation that the program calls itself is completed") {
  const Folder folder;
  const auto stop = std::make_shared<StopOnSignal>();
  Trainer trainer(new_model(0), twenty_steps(folder.path),
                  {.eval_dataset = TrainerDataset(rows(24)), .callbacks = {stop}});
  std::raise(SIGTERM);
  CHECK(stop->received() == SIGTERM);
  CHECK(trainer.evaluate().count("eval_loss") == 1);
  CHECK(trainer.predict(TrainerDataset(rows(24))).predictions.size(0) == 24);
}

TEST_CASE("stop on signal: the previous actions are restored") {
  struct sigaction own {};
  own.sa_handler = ignore_signal;
  own.sa_flags = SA_NODEFER;
  struct sigaction first {};
  sigaction(SIGUSR1, &own, &first);
  {
    StopOnSignal stop;
    CHECK_FALSE(is_action(SIGUSR1, ignore_signal));
    stop.restore_handlers();
    CHECK(is_action(SIGUSR1, ignore_signal));
    CHECK((action_of(SIGUSR1).sa_flags & SA_NODEFER) != 0);
    const StopOnSignal another({SIGUSR1, SIGUSR1});
    std::raise(SIGUSR1);
    CHECK(another.received() == SIGUSR1);
    CHECK(stop.received() == 0);
  }
  CHECK(is_action(SIGUSR1, ignore_signal));
  own.sa_handler = SIG_IGN;  // as nohup and `&` do in scripts
  sigaction(SIGUSR1, &own, nullptr);
  const StopOnSignal stop;
  CHECK(is_action(SIGUSR1, SIG_IGN));
  sigaction(SIGUSR1, &first, nullptr);
}

TEST_CASE("stop on signal: the first of several signals counts") {
  StopOnSignal stop;
  CHECK(stop.received() == 0);
  std::raise(SIGUSR1);
  std::raise(SIGTERM);
  CHECK(stop.received() == SIGUSR1);
  stop.restore_handlers();
  CHECK(stop.received() == SIGUSR1);
}

TEST_CASE("stop on signal: a second owner and signals that cannot be handled are refused") {
  CHECK(code_of([] { StopOnSignal({SIGKILL}); }) == "trainer.bad-signal");
  CHECK(code_of([] { StopOnSignal({0}); }) == "trainer.bad-signal");
  CHECK(code_of([] { StopOnSignal({NSIG}); }) == "trainer.bad-signal");
  const StopOnSignal stop;
  CHECK(code_of([] { StopOnSignal(); }) == "trainer.signals-in-use");
}

TEST_CASE("stop on signal: only SIGINT ends the process when it is repeated after a second") {
  const int at_once = status_of_fork([] {
    const StopOnSignal stop;
    for (int i = 0; i < 3; ++i) std::raise(SIGINT);  // by the terminal and by the launcher
    _exit(stop.received() == SIGINT ? 7 : 8);
  });
  CHECK(WIFEXITED(at_once));
  CHECK(WEXITSTATUS(at_once) == 7);
  const int later = status_of_fork([] {
    const StopOnSignal stop;
    for (const int number : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) std::raise(number);
    usleep(1100 * 1000);
    for (const int number : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) std::raise(number);
  });
  CHECK(WIFSIGNALED(later));
  CHECK(WTERMSIG(later) == SIGINT);
}

TEST_CASE("stop on signal: all processes stop at the same step, whichever receives the signal") {
  const Folder folder;
  for (const std::int64_t receiver : {0, 2}) {
    notebook_launcher(
        [&] {
          const ProcessState process = ProcessState::of(this_worker());
          const SignalledRun run = run_with(Moment::step, SIGUSR1, twenty_steps(folder.path),
                                            process.process_index == receiver);
          require(run.out.global_step == 5, str("stopped at step ", run.out.global_step));
          require(run.out.stop_signal == SIGUSR1, str("stopped by signal ", run.out.stop_signal));
          require(run.log.empty() != process.is_main_process(),
                  "only the main process reports the signal");
        },
        {.num_processes = 3});
  }
}

TEST_CASE("stop on signal: all processes leave an evaluation before its end") {
  const Folder folder;
  notebook_launcher(
      [&] {
        const ProcessState process = ProcessState::of(this_worker());
        TrainingArguments args = twenty_steps(folder.path);
        args.eval_strategy = IntervalStrategy::steps;
        args.eval_steps = 5;
        const SignalledRun run =
            run_with(Moment::evaluation, SIGTERM, args, process.process_index == 1);
        require(run.out.global_step == 5, str("stopped at step ", run.out.global_step));
        const std::int64_t batches = run.raiser->batches;
        require(batches >= 3 && batches < 6, str(batches, " batches of ", run.raiser->announced));
        require(run.raiser->evaluated == 0, "a partial evaluation is reported");
      },
      {.num_processes = 2});
}

}  // namespace trainer_stop_on_signal_test
