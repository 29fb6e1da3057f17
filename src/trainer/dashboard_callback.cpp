#include "hasten/trainer/dashboard_callback.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "base/process_state.h"
#include "base/seconds.h"
#include "device/device.h"
#include "device/loadable_module.h"
#include "hasten/accelerator.h"
#include "hasten/anatomy/detail/roofs.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "track/dashboard.h"
#include "track/terminal_restore.h"
#include "trainer/agreement.h"
#include "trainer/loss_reading.h"
#include "trainer/run_plan.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRankReportInterval = 1;  // seconds between the reports of the ranks to rank 0

// Returns the processor time of this process in seconds.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Opens the dashboard on this process's terminal. If that is not possible, the dashboard has the
// reason.
std::unique_ptr<Dashboard> open_dashboard() {
  const Module<OpenScreenFunction> module =
      load_module<OpenScreenFunction>("libhasten_terminal.so", "hasten_open_screen");
  if (module.function == nullptr) {
    DashboardTerminal none{.reason = str("hasten was built without ncurses (", module.missing,
                                         "). Install libncurses-dev and build again")};
    return std::make_unique<Dashboard>(std::move(none), nullptr);
  }
  return std::make_unique<Dashboard>(find_terminal(), module.function);
}

std::vector<DashboardMemory> memory_of(const torch::nn::Module& model, std::int64_t on_device) {
  std::int64_t weights = 0, gradients = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    weights += static_cast<std::int64_t>(parameter.nbytes());
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined() && !gradient.is_sparse())
      gradients += static_cast<std::int64_t>(gradient.nbytes());
  }
  for (const at::Tensor& buffer : model.buffers())
    weights += static_cast<std::int64_t>(buffer.nbytes());
  const HostMemory host = host_memory();
  std::vector<DashboardMemory> memory = {{"model_weights", weights},
                                         {"gradients", gradients},
                                         {"process", host.resident},
                                         {"its peak", host.peak_resident}};
  if (on_device > 0) memory.push_back({"GPU", on_device});
  return memory;
}

}  // namespace

class DashboardCallback::Impl {
 public:
  explicit Impl(ProgressOptions fallback) : fallback_(fallback), lines_(fallback) {
    restore_terminal_at_signals();
  }
  ~Impl() { close(); }

  // Shows the progress if there is no dashboard. With a dashboard, it prints only lines, which
  // appear when the dashboard closes.
  ProgressCallback& lines() { return lines_; }
  bool is_shown() const { return is_shown_; }

  void begin(const TrainerEvent& event) {
    const Group group = group_of(event);
    if (event.state.is_world_process_zero) dashboard_ = open_dashboard();
    const bool opened = dashboard_ && dashboard_->is_open();
    is_shown_ = group.gather(at::full({1}, opened, at::kInt))[0].item<int>() != 0;
    lines_ = ProgressCallback(is_shown_ ? ProgressOptions{.bar = false, .lines = fallback_.lines}
                                        : fallback_);
    if (!is_shown_) return log_reason();
    shows_logs_ = shows_logged_losses(event.model, event.args);
    if (!opened) use_terminal({});  // rank 0 draws, so this rank keeps its output
    show_start(event, group);
  }

  void step_end(const TrainerEvent& event, TrainerControl& control, double loss) {
    if (!is_shown_) return;
    if (dashboard_) {
      apply_keys(event.args, control);
      dashboard_->update([&](DashboardFigures& f) {
        set_position(f, event);
        if (!shows_logs_) f.step_loss.add(static_cast<double>(event.state.global_step), loss);
        f.activity = "training";
      });
    }
    if (++steps_ >= interval_) report(event);
  }

  void log(const TrainerEvent& event, const Metrics& logs) {
    if (!dashboard_) return;
    dashboard_->update([&](DashboardFigures& f) {
      set_position(f, event);
      for (const auto& [name, value] : logs) {
        if (name == "total_flos" || starts_with(name, "train_")) continue;
        if (!f.logged.contains(name)) f.metrics.push_back(name);
        f.logged[name].add(static_cast<double>(event.state.global_step), value);
        if (shows_logs_ && name == "loss")
          f.step_loss.add(static_cast<double>(event.state.global_step), value);
      }
    });
  }

  void evaluate_begin(std::int64_t batches) {
    if (!dashboard_) return;
    dashboard_->update([&](DashboardFigures& f) {
      f.to_evaluate = batches;
      f.evaluated = 0;
      f.activity = "evaluating";
    });
  }
  void count_evaluated_batch() {
    if (!dashboard_) return;
    dashboard_->update([](DashboardFigures& f) { ++f.evaluated; });
  }
  void evaluate_end() {
    if (!dashboard_) return;
    dashboard_->update([](DashboardFigures& f) {
      f.to_evaluate = 0;
      f.activity = "training";
    });
  }
  void show_saved(const TrainerEvent& event) {
    if (!dashboard_) return;
    dashboard_->update(
        [&](DashboardFigures& f) { f.notice = str("saved at step ", event.state.global_step); });
  }

  void show_anatomy(const anatomy::Report& report) {
    if (!dashboard_ || !report.memory.known) return;
    dashboard_->update([&](DashboardFigures& f) {
      f.memory_at_peak = true;
      f.memory.clear();
      for (std::size_t i = 0; i < anatomy::kComponents; ++i) {
        const auto component = static_cast<anatomy::Component>(i);
        const std::int64_t bytes = bytes_of(report.memory.at_peak, component);
        if (bytes > 0) f.memory.push_back({std::string(name_of(component)), bytes});
      }
    });
  }

  void close() {
    if (is_shown_) restore_terminal_of_rank();
    dashboard_.reset();
    is_shown_ = false;
  }

 private:
  static Group group_of(const TrainerEvent& event) {
    return event.accelerator == nullptr ? Group::single() : event.accelerator->group();
  }

  void log_reason() {
    if (!dashboard_) return;
    log_line("hasten: the dashboard is not shown: " + dashboard_->reason());
    dashboard_.reset();
  }

  void restore_terminal_of_rank() const {
    if (!dashboard_) restore_terminal();
  }

  void show_start(const TrainerEvent& event, const Group& group) {
    started_ = reported_ = Clock::now();
    first_step_ = event.state.global_step;
    processor_ = processor_seconds();
    flos_ = event.state.total_flos;
    steps_ = 0;
    interval_ = 1;
    const std::vector<std::string> hosts = group.gather_object(host_name());
    const double roof =
        group.gather(at::full({1}, own_roof(event), at::kDouble)).sum().item<double>();
    if (!dashboard_) return;
    dashboard_->update([&](DashboardFigures& f) {
      f.title = event.args.output_dir;
      f.activity = "training";
      f.num_train_epochs = event.state.num_train_epochs;
      f.rows_per_step =
          static_cast<double>(rows_of_step(event.args, data_ranks(event.args, group.size())));
      f.roof = roof;
      f.ranks.resize(hosts.size());
      for (std::size_t i = 0; i < hosts.size(); ++i) f.ranks[i].host = hosts[i];
      f.memory = memory_of(event.model, 0);
      set_position(f, event);
    });
  }

  // Returns the most FLOP per second of this process, or 0 if the model is not on the CPU. The
  // ranks measure at the same time, so that the ranks of one machine share it as in the run.
  double own_roof(const TrainerEvent& event) const {
    if (event.accelerator == nullptr || event.accelerator->device() != at::kCPU) return 0;
    const anatomy::Roofs roofs = anatomy::measure_roofs();
    const Precision precision = event.accelerator->mixed_precision();
    const double half = precision == Precision::bf16   ? roofs.bf16_flops_per_second
                        : precision == Precision::fp16 ? roofs.fp16_flops_per_second
                                                       : 0;
    return half > 0 ? half : roofs.flops_per_second;
  }

  void set_position(DashboardFigures& f, const TrainerEvent& event) const {
    f.step = event.state.global_step;
    f.max_steps = event.state.max_steps;
    f.epoch = event.state.epoch;
    f.steps_made = f.step - first_step_;
    f.seconds = seconds_since(started_);
  }

  // A run that a key stops can be continued like one that a signal stops.
  void apply_keys(const TrainingArguments& args, TrainerControl& control) {
    const DashboardKeys keys = dashboard_->take_keys();
    if (keys.stop) control.should_training_stop = true;
    if (keys.save || (keys.stop && args.enable_jit_checkpoint)) control.should_save = true;
    if (keys.evaluate) control.should_evaluate = true;
  }

  // All ranks send their figures to rank 0 after the same steps, about once a second. The slowest
  // rank's time since the last report determines the number of steps until the next one.
  void report(const TrainerEvent& event) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::max(seconds_of(now - reported_), 1e-6),
                 processor = processor_seconds();
    const std::int64_t device_memory = device_memory_of(event);
    const at::Tensor own = at::tensor(
        {seconds, (processor - processor_) / seconds, static_cast<double>(host_memory().resident),
         static_cast<double>(device_memory)},
        at::kDouble);
    const at::Tensor all = group_of(event).gather(own.unsqueeze(0)).contiguous();
    const double slowest = all.select(1, 0).max().item<double>();
    interval_ = next_interval(interval_, slowest, kRankReportInterval);
    if (dashboard_) show_report(event, all, seconds, device_memory);
    steps_ = 0;
    reported_ = now;
    processor_ = processor;
    flos_ = event.state.total_flos;
  }

  void show_report(const TrainerEvent& event, const at::Tensor& all, double seconds,
                   std::int64_t device_memory) {
    const std::vector<DashboardMemory> memory = memory_of(event.model, device_memory);
    dashboard_->update([&](DashboardFigures& f) {
      f.flops_per_second = (event.state.total_flos - flos_) / seconds;
      if (!f.memory_at_peak) f.memory = memory;
      f.ranks.resize(static_cast<std::size_t>(all.size(0)));
      for (std::size_t rank = 0; rank < f.ranks.size(); ++rank) {
        const double* const figures = all.const_data_ptr<double>() + 4 * rank;
        f.ranks[rank].cores = figures[1];
        f.ranks[rank].resident = static_cast<std::int64_t>(figures[2]);
        f.ranks[rank].device_memory = static_cast<std::int64_t>(figures[3]);
      }
      if (f.notice.find("after this step") != std::string::npos) f.notice.clear();
    });
  }

  static std::int64_t device_memory_of(const TrainerEvent& event) {
    if (event.accelerator == nullptr || event.accelerator->device() == at::kCPU) return 0;
    const auto index = std::max<int>(0, event.accelerator->device().index());
    return gpu_memory_used(index).value_or(0);
  }

  ProgressOptions fallback_;
  ProgressCallback lines_;
  std::unique_ptr<Dashboard> dashboard_;  // exists in rank 0
  bool is_shown_ = false;                 // by rank 0
  bool shows_logs_ = false;               // losses are known when they are logged
  Clock::time_point started_, reported_;
  std::int64_t first_step_ = 0, steps_ = 0, interval_ = 1;
  double processor_ = 0, flos_ = 0;
};

DashboardCallback::DashboardCallback(ProgressOptions fallback)
    : impl_(std::make_unique<Impl>(fallback)) {}
DashboardCallback::~DashboardCallback() = default;

void DashboardCallback::on_train_begin(const TrainerEvent& event, TrainerControl& control) {
  impl_->begin(event);
  impl_->lines().on_train_begin(event, control);
}

void DashboardCallback::on_step_end(const TrainerEvent& event, TrainerControl& control,
                                    double loss) {
  impl_->step_end(event, control, loss);
  impl_->lines().on_step_end(event, control, loss);
}

void DashboardCallback::on_log(const TrainerEvent& event, TrainerControl& control,
                               const Metrics& logs) {
  impl_->log(event, logs);
  impl_->lines().on_log(event, control, logs);
}

void DashboardCallback::on_evaluate_begin(const TrainerEvent& event, std::int64_t batches) {
  impl_->evaluate_begin(batches);
  impl_->lines().on_evaluate_begin(event, batches);
}

void DashboardCallback::on_prediction_step(const TrainerEvent& event, TrainerControl& control) {
  impl_->count_evaluated_batch();
  impl_->lines().on_prediction_step(event, control);
}

void DashboardCallback::on_evaluate(const TrainerEvent& event, TrainerControl& control,
                                    const Metrics& metrics) {
  impl_->evaluate_end();
  impl_->lines().on_evaluate(event, control, metrics);
}

void DashboardCallback::on_predict(const TrainerEvent& event, TrainerControl& control,
                                   const Metrics& metrics) {
  impl_->evaluate_end();
  impl_->lines().on_predict(event, control, metrics);
}

void DashboardCallback::on_save(const TrainerEvent& event, TrainerControl&) {
  impl_->show_saved(event);
}

void DashboardCallback::on_anatomy(const TrainerEvent&, const anatomy::Report& report) {
  impl_->show_anatomy(report);
}

void DashboardCallback::on_train_end(const TrainerEvent& event, TrainerControl& control) {
  impl_->close();
  impl_->lines().on_train_end(event, control);
}

void DashboardCallback::on_train_failed(const TrainerEvent&) { impl_->close(); }

}  // namespace hasten
