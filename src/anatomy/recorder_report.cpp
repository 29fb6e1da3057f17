// Creates the report from the recorded data.
#include <algorithm>
#include <cmath>
#include <set>

#include "anatomy/call_time.h"
#include "anatomy/dry_gpu.h"
#include "anatomy/local_gpu.h"
#include "anatomy/recorder.h"
#include "base/seconds.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/text.h"

namespace hasten {

using namespace anatomy;

void Anatomy::Recorder::fill_memory(Memory& memory) const {
  memory.parameters = parameter_count_;
  memory.trained_parameters = trained_count_;
  for (const auto& each : textbooks_)
    if (each) memory.textbook_states.push_back(*each);
  memory.unknown_optimizers =
      static_cast<std::int64_t>(std::count(textbooks_.begin(), textbooks_.end(), std::nullopt));
  memory.peak_in_phase.assign(kPhases, 0);
  memory.known = device_of(device_).traits().reports_allocations;
  if (!memory.known) return;
  memory.peak = ledger_.peak();
  memory.before = live_before_;
  memory.after = ledger_.live();
  if (ledger_.peak_event() < 0) return;
  memory.at_peak = ledger_.bytes_after(ledger_.peak_event());
  const Event& at_peak = ledger_.events()[static_cast<std::size_t>(ledger_.peak_event())];
  const Block& last = ledger_.blocks()[static_cast<std::size_t>(at_peak.block)];
  memory.peak_phase = last.site.phase;
  memory.peak_operation = operation_name(last.site);
  memory.peak_module = modules_.name(last.site.module);
  memory.peak_inside_kernel = last.released_by_same_call;

  Holders holders = holders_after(ledger_.peak_event());
  memory.modules = std::move(holders.modules);
  memory.largest = std::move(holders.largest);
  fill_timeline(memory);
  fill_out_of_memory(memory);
  fill_history(memory);
}

std::string Anatomy::Recorder::operation_name(const CallSite& site) const {
  return site.operation < 0 ? "" : numbered_[static_cast<std::size_t>(site.operation)]->name;
}

Anatomy::Recorder::Holders Anatomy::Recorder::holders_after(std::int64_t event) const {
  Holders out;
  std::map<std::int32_t, ComponentBytes> by_module;
  for (const Block& block : ledger_.blocks()) {
    if (block.allocated_at > event || (block.released_at >= 0 && block.released_at <= event))
      continue;
    bytes_of(by_module[block.site.module], block.component) += block.bytes;
    out.largest.push_back({.bytes = block.bytes,
                           .component = block.component,
                           .phase = block.site.phase,
                           .module = modules_.name(block.site.module),
                           .operation = operation_name(block.site)});
  }
  const auto by_size = [](const LargeBlock& a, const LargeBlock& b) { return a.bytes > b.bytes; };
  const std::size_t kept = std::min<std::size_t>(20, out.largest.size());
  std::partial_sort(out.largest.begin(), out.largest.begin() + static_cast<std::ptrdiff_t>(kept),
                    out.largest.end(), by_size);
  out.largest.resize(kept);
  for (const auto& [module, bytes] : by_module)
    out.modules.push_back({.module = modules_.name(module), .at_peak = bytes});
  std::stable_sort(out.modules.begin(), out.modules.end(),
                   [](const ModuleMemory& a, const ModuleMemory& b) {
                     return total(a.at_peak) > total(b.at_peak);
                   });
  return out;
}

void Anatomy::Recorder::fill_out_of_memory(Memory& memory) const {
  if (out_of_memory_event_ < 0) return;
  const Event& event = ledger_.events()[static_cast<std::size_t>(out_of_memory_event_)];
  const Block& block = ledger_.blocks()[static_cast<std::size_t>(event.block)];
  Holders holders = holders_after(out_of_memory_event_ - 1);
  memory.out_of_memory = OutOfMemory{.requested = block.bytes,
                                     .component = block.component,
                                     .phase = block.site.phase,
                                     .module = modules_.name(block.site.module),
                                     .operation = operation_name(block.site),
                                     .allocated = ledger_.bytes_after(out_of_memory_event_ - 1),
                                     .modules = std::move(holders.modules),
                                     .largest = std::move(holders.largest)};
}

void Anatomy::Recorder::fill_history(Memory& memory) const {
  MemoryHistory& history = memory.history;
  std::unordered_map<std::string, std::int32_t> known;
  const auto index_of = [&](const std::string& name) {
    if (name.empty()) return std::int32_t{-1};
    const auto next = static_cast<std::int32_t>(history.names.size());
    const auto [place, is_new] = known.emplace(name, next);
    if (is_new) history.names.push_back(name);
    return place->second;
  };
  for (const Block& block : ledger_.blocks()) {
    history.blocks.push_back({.bytes = block.bytes,
                              .component = block.component,
                              .phase = block.site.phase,
                              .module = index_of(modules_.name(block.site.module)),
                              .operation = index_of(operation_name(block.site)),
                              .stream = block.site.stream});
  }
  const std::int64_t origin =
      std::chrono::duration_cast<std::chrono::nanoseconds>(began_.time_since_epoch()).count();
  for (const Event& event : ledger_.events()) {
    history.events.push_back({.seconds = static_cast<double>(event.time - origin) * 1e-9,
                              .block = event.block,
                              .is_allocation = event.is_allocation});
  }
  history.out_of_memory_event = out_of_memory_event_;
}

void Anatomy::Recorder::fill_gpu(Report& report) const {
  if (!device_of(device_).traits().has_reserved_memory) return;
  GpuMemory gpu{.reserved = reserved_, .reserved_at_peak = reserved_at_peak_};
  const MemoryFigures known = device_of(device_).memory(device_.index());
  gpu.context = std::max<std::int64_t>(0, known.used.value_or(0) - reserved_now_);
  gpu.capacity = known.total.value_or(0);
  if (const DryGpu* const dry = DryGpu::active()) {
    gpu.title = dry->gpu().title;
    gpu.context = dry->gpu().context;
    gpu.missing = dry->memory()->missing();
  } else if (!known.missing.empty()) {
    report.notes.push_back(known.missing);
  }
  report.memory.gpu = gpu;
}

void Anatomy::Recorder::fill_timeline(Memory& memory) const {
  // Divides the time into about 2,000 slices and keeps the moment with the most memory of each.
  constexpr double kSlices = 2000;
  ComponentBytes now{};
  std::int64_t live = 0;
  const auto& events = ledger_.events();
  const std::int64_t origin =
      std::chrono::duration_cast<std::chrono::nanoseconds>(began_.time_since_epoch()).count();
  const double slice = static_cast<double>(events.back().time - origin) / kSlices + 1;
  double current = -1;
  std::int64_t highest = -1;
  for (const Event& event : events) {
    const Block& block = ledger_.blocks()[static_cast<std::size_t>(event.block)];
    const std::int64_t bytes = event.is_allocation ? block.bytes : -block.bytes;
    bytes_of(now, block.component) += bytes;
    bytes_of(memory.max_bytes, block.component) =
        std::max(bytes_of(memory.max_bytes, block.component), bytes_of(now, block.component));
    live += bytes;
    auto& phase_peak = memory.peak_in_phase[static_cast<std::size_t>(block.site.phase)];
    if (event.is_allocation) phase_peak = std::max(phase_peak, live);
    const double number = std::floor(static_cast<double>(event.time - origin) / slice);
    const double seconds = static_cast<double>(event.time - origin) * 1e-9;
    if (number != current) {
      current = number;
      highest = live;
      memory.timeline.push_back({.seconds = seconds, .bytes = now});
    } else if (live > highest) {
      highest = live;
      memory.timeline.back() = {.seconds = seconds, .bytes = now};
    }
  }
}

namespace {

// Adds a note if the prediction used placeholders for values that the program would have computed.
void note_placeholders(Report& report) {
  std::int64_t all = 0;
  std::map<std::string, std::int64_t> places;
  for (const Operation& each : report.operations) {
    if (each.name != "aten::_local_scalar_dense" && each.name != "aten::equal") continue;
    all += each.count;
    places[str(name_of(each.phase), each.module.empty() ? "" : " of " + each.module)] += each.count;
  }
  if (all == 0) return;
  std::vector<std::string> words;
  for (const auto& [site, count] : places)
    words.push_back(str(group_thousands(count), " in ", site));
  if (words.size() > 4) {
    words.resize(4);
    words.emplace_back("...");
  }
  report.notes.push_back(str("the program read back ", group_thousands(all),
                             " numbers (item(), comparisons): ", join(words, ", "),
                             "; the prediction used 1 and true instead"));
}

}  // namespace

Report Anatomy::Recorder::report() {
  stop();
  Report report;
  report.dry = dry_;
  report.device = device_.str();
  report.half_is_float16 = has_float16_;
  report.steps = steps_;
  report.samples = steps_ > 0 ? samples_in_steps_ : samples_;
  report.tokens = steps_ > 0 ? tokens_in_steps_ : tokens_;
  const bool has_end = !runs_behind_host() || steps_ == options_.steps;
  if (first_phase_began_ && steps_ > 0 && has_end)
    report.seconds = seconds_of(last_step_ended_ - *first_phase_began_);
  fill_memory(report.memory);
  fill_gpu(report);
  fill_operations(report);
  std::set<std::string> without;
  for (const Operator* op : numbered_) {
    if (op->uncounted) without.insert(op->name);
  }
  report.without_formula.assign(without.begin(), without.end());
  if (dry_) note_placeholders(report);
  if (runs_behind_host() && !report.operations.empty())
    report.notes.push_back("the times of operators are those of the host, which submits the work");
  if (!has_end && steps_ > 0)
    report.notes.push_back("the samples per second are unknown: the recording had no last step");
  if (!report.memory.known)
    report.notes.push_back(device_of(device_).memory(device_.index()).missing);
  fill_roofs(report);
  return report;
}

void Anatomy::Recorder::fill_roofs(Report& report) const {
  if (const Gpu* const gpu = known_gpu(device_)) {
    report.roofs = {.flops_per_second = gpu->flops_per_second,
                    .bf16_flops_per_second = gpu->bf16_flops_per_second,
                    .fp16_flops_per_second = gpu->fp16_flops_per_second,
                    .tf32_flops_per_second = computes_in_tf32() ? gpu->tf32_flops_per_second : 0,
                    .bytes_per_second = gpu->bytes_per_second,
                    .source = str("the data sheet of the ", gpu->title)};
  } else if (const std::string name = device_of(device_).driver_name(device_.index());
             !name.empty()) {
    report.notes.push_back(
        str("there is no MFU, because hasten does not know the peaks of ", name));
  }
}

void Anatomy::Recorder::fill_operations(Report& report) const {
  std::vector<std::pair<Key, const Operation*>> rows;
  for (const auto& [key, row] : rows_) rows.emplace_back(key, &row);
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second->seconds > b.second->seconds;
  });
  std::unordered_map<const Operation*, std::int32_t> places;
  for (const auto& [key, row] : rows) {
    const auto& [op, module, phase] = key;
    places[row] = static_cast<std::int32_t>(report.operations.size());
    Operation operation = *row;
    operation.name = op->name;
    operation.module = modules_.name(module);
    operation.phase = phase;
    if (steps_ > 0) {
      const auto at = [&key = key](const std::map<Key, RowFigures>& when) {
        const auto found = when.find(key);
        return found == when.end() ? RowFigures() : found->second;
      };
      const RowFigures before = at(figures_before_), inside = at(figures_after_),
                       all = figures(*row);
      operation.outside = {.flops = all.flops - inside.flops + before.flops,
                           .half_flops = all.half_flops - inside.half_flops + before.half_flops,
                           .bytes = all.bytes - inside.bytes + before.bytes};
      const RowFigures before_last = at(figures_before_last_);
      operation.kernel_seconds = inside.kernel_seconds - before_last.kernel_seconds;
      operation.host_seconds = inside.host_seconds - before_last.host_seconds;
    }
    report.operations.push_back(std::move(operation));
  }
  for (const Call& call : calls_) {
    report.spans.push_back({.operation = places.at(call.row),
                            .began = seconds_of(call.began - began_),
                            .seconds = seconds_of(call.took)});
  }
}

}  // namespace hasten
