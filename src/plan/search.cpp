// The search of a plan. Sets of techniques are ranked by sums of single effects, which need two dry
// runs for each technique; the best of them are then predicted exactly, until no other set can
// be faster.
#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <optional>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/plan/plan.h"
#include "plan/step_time.h"
#include "plan/techniques.h"

namespace hasten {
namespace {

// The most sets of techniques that are predicted exactly.
constexpr std::size_t kMostExact = 16;
// A sum of single effects is this share too high or too low, at most, so a set whose estimate is
// worse than the best prediction by more cannot be better.
constexpr double kTolerance = 1.15;
// The bytes of a step that cannot be made.
constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::max();
// Between batches whose times for a row differ by less, the larger one is taken.
constexpr double kSameTime = 1.02;

struct Batch {
  std::int64_t rows = 0, accumulation = 1;
  double all() const { return static_cast<double>(rows * accumulation); }
};

struct Prediction {
  TechniqueSet techniques;
  Batch batch;
  StepNeeds needs;
  double seconds_per_row() const { return needs.seconds / batch.all(); }
};

class Search {
 public:
  explicit Search(const PlanOptions& options)
      : options_(options),
        time_(options.budget),
        limit_(options.memory - options.process),
        asked_{.rows = options.step.arguments.per_device_train_batch_size,
               .accumulation = options.step.arguments.gradient_accumulation_steps},
        batches_(batches()) {}

  StepPlan run() {
    sets_ = combinations(options_);
    measure_singles();
    std::optional<Prediction> best;
    std::vector<std::pair<double, const TechniqueSet*>> ranked;
    for (const TechniqueSet& each : sets_) {
      if (const auto seconds = estimated_seconds_per_row(each))
        ranked.emplace_back(*seconds, &each);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 0; i < ranked.size(); ++i) {
      const auto& [estimate, set] = ranked[i];
      if (best && (i >= kMostExact || estimate > kTolerance * best->seconds_per_row())) break;
      const std::optional<Prediction> exact = best_batch(*set);
      if (exact && (!best || is_better(*exact, *best))) best = exact;
    }
    if (!best) throw_too_small();
    if (const auto fewer = with_fewer_layers(*best)) best = fewer;
    return plan_of(*best);
  }

 private:
  // The batches to choose from, ascending: with the same rows in a step, or with fewer.
  std::vector<Batch> batches() const {
    const std::int64_t all = asked_.rows * asked_.accumulation;
    std::vector<Batch> out;
    for (std::int64_t rows = 1; rows <= all; ++rows) {
      if (options_.keep_effective_batch) {
        if (all % rows == 0) out.push_back({.rows = rows, .accumulation = all / rows});
      } else {
        // Powers of two and halfway between them.
        const std::int64_t odd = rows / (rows & -rows);
        if (odd == 1 || odd == 3 || rows == all) out.push_back({.rows = rows, .accumulation = 1});
      }
    }
    return out;
  }

  const StepNeeds& predict(const TechniqueSet& techniques, const Batch& batch) {
    const auto key = std::pair(techniques, std::pair(batch.rows, batch.accumulation));
    if (const auto known = predictions_.find(key); known != predictions_.end())
      return known->second;
    return predictions_[key] = make_prediction(techniques, batch);
  }

  StepNeeds make_prediction(const TechniqueSet& techniques, const Batch& batch) {
    if (options_.predictor)
      return options_.predictor(settings_of(techniques), batch.rows, batch.accumulation);
    EstimateOptions step = step_with(techniques, batch);
    step.dry = true;
    // Every micro-batch after the second one is like the second.
    step.arguments.gradient_accumulation_steps = std::min<std::int64_t>(2, batch.accumulation);
    StepNeeds needs;
    try {
      needs = time_.predict(step);
    } catch (const UsageError&) {
      if (techniques.empty()) throw;
      return {.bytes = kImpossible};  // the model does not take a technique
    } catch (const ConfigError&) {
      if (techniques.empty()) throw;
      return {.bytes = kImpossible};
    }
    if (batch.accumulation > 2) {
      const StepNeeds one = predict(techniques, {.rows = batch.rows, .accumulation = 1});
      needs.seconds +=
          static_cast<double>(batch.accumulation - 2) * std::max(0.0, needs.seconds - one.seconds);
    }
    return needs;
  }

  EstimateOptions step_with(const TechniqueSet& techniques, const Batch& batch) const {
    EstimateOptions step = with_settings(options_.step, settings_of(techniques));
    step.arguments.per_device_train_batch_size = batch.rows;
    step.arguments.gradient_accumulation_steps = batch.accumulation;
    return step;
  }

  // The batches that the techniques take: some exclude accumulation.
  std::vector<Batch> batches_of(const TechniqueSet& techniques) const {
    std::vector<Batch> valid;
    for (const Batch& each : batches_) {
      if (is_valid(step_with(techniques, each).arguments)) valid.push_back(each);
    }
    return valid;
  }

  bool fits(const StepNeeds& needs) const { return needs.bytes <= limit_; }

  // What a set of techniques needs, as functions of the rows of a micro-batch.
  struct Line {
    double bytes = 0, bytes_per_row = 0, seconds = 0, seconds_per_row = 0;
  };
  std::optional<Line> line_of(const TechniqueSet& techniques) {
    const std::vector<Batch> batches = batches_of(techniques);
    if (batches.empty()) return std::nullopt;
    const Batch one = batches.front(), many = batches[batches.size() / 2];
    const StepNeeds a = predict(techniques, one), b = predict(techniques, many);
    if (a.bytes == kImpossible || b.bytes == kImpossible) return std::nullopt;
    const auto rows = static_cast<double>(std::max<std::int64_t>(1, many.rows - one.rows));
    Line line;
    line.bytes_per_row = static_cast<double>(b.bytes - a.bytes) / rows;
    line.bytes = static_cast<double>(a.bytes) - line.bytes_per_row * static_cast<double>(one.rows);
    line.seconds_per_row = b.seconds / many.all();
    return line;
  }

  // Predicts every technique alone, next to those that every set has.
  void measure_singles() {
    const TechniqueSet used = sets_.front();
    base_ = line_of(used).value_or(Line{});
    for (const TechniqueSet& set : sets_) {
      if (set.size() != used.size() + 1) continue;
      for (const Technique* each : set) {
        if (std::count(used.begin(), used.end(), each) == 0) singles_[each] = line_of(set);
      }
    }
  }

  // The time for a row with the largest batch that fits by the sum of the single effects; unset: not
  // even the smallest does.
  std::optional<double> estimated_seconds_per_row(const TechniqueSet& set) const {
    Line line = base_;
    for (const Technique* each : set) {
      const auto found = singles_.find(each);
      if (found == singles_.end()) continue;  // every set has it
      if (!found->second) return std::nullopt;
      const Line& single = *found->second;
      line.bytes += single.bytes - base_.bytes;
      line.bytes_per_row += single.bytes_per_row - base_.bytes_per_row;
      if (base_.seconds_per_row > 0)
        line.seconds_per_row *= single.seconds_per_row / base_.seconds_per_row;
    }
    const double smallest =
        line.bytes + line.bytes_per_row * static_cast<double>(batches_.front().rows);
    if (smallest > kTolerance * static_cast<double>(limit_)) return std::nullopt;
    return line.seconds_per_row;
  }

  // The fastest batch that fits; unset: none does.
  std::optional<Prediction> best_batch(const TechniqueSet& set) {
    const std::vector<Batch> batches = batches_of(set);
    std::size_t fitting = 0, end = batches.size();  // all before `fitting` fit
    while (fitting < end) {
      const std::size_t middle = fitting + (end - fitting) / 2;
      if (fits(predict(set, batches[middle]))) {
        fitting = middle + 1;
      } else {
        end = middle;
      }
    }
    std::optional<Prediction> best;
    // Smaller batches are slower, with rare exceptions by a little; four are compared.
    for (std::size_t i = 0; i < 4 && i < fitting; ++i) {
      const Batch& batch = batches[fitting - 1 - i];
      const Prediction each{.techniques = set, .batch = batch, .needs = predict(set, batch)};
      if (!best || each.seconds_per_row() * kSameTime < best->seconds_per_row()) best = each;
    }
    return best;
  }

  // Recomputes as few layers as fit, in place of all or of every second one. Layers at the beginning
  // come first: their second run is in the part of the backward pass in which the activations of
  // the later layers are freed. Unset: it is not faster.
  std::optional<Prediction> with_fewer_layers(const Prediction& best) {
    TechniqueSet set;
    for (const Technique* each : best.techniques)
      if (each->group != "recomputation") set.push_back(each);
    if (set.size() == best.techniques.size() || options_.predictor) return std::nullopt;
    const std::vector<std::string> layers = recomputable_layers(options_.step);
    std::optional<Prediction> found;
    std::size_t too_few = 0, enough = layers.size();
    while (enough - too_few > 1) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      TechniqueSet with = set;
      with.push_back(&own_.emplace_back(recomputation_of(
          {layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(middle)})));
      const StepNeeds needs = predict(with, best.batch);
      if (fits(needs)) {
        found = Prediction{.techniques = with, .batch = best.batch, .needs = needs};
        enough = middle;
      } else {
        too_few = middle;
      }
    }
    return found && found->seconds_per_row() < best.seconds_per_row() ? found : std::nullopt;
  }

  // A faster set, or one that is as fast and changes less.
  static bool is_better(const Prediction& a, const Prediction& b) {
    const double ratio = a.seconds_per_row() / b.seconds_per_row();
    if (ratio < 1 / kSameTime || ratio > kSameTime) return ratio < 1;
    return a.techniques.size() < b.techniques.size();
  }

  [[noreturn]] void throw_too_small() {
    std::optional<Prediction> least;
    for (const TechniqueSet& set : sets_) {
      const Prediction each{
          .techniques = set, .batch = batches_.front(), .needs = predict(set, batches_.front())};
      if (!least || each.needs.bytes < least->needs.bytes) least = each;
    }
    std::vector<std::string> names;
    for (const Technique* each : least->techniques) names.push_back(each->name);
    throw MemoryError(
        "plan.too-small",
        {.what = "--memory",
         .got = human_bytes(options_.memory),
         .expected = str("at least ", human_bytes(least->needs.bytes + options_.process),
                         ", which the leanest combination needs: batches of ", least->batch.rows,
                         names.empty() ? "" : " with " + join(names, ", ")),
         .hint = options_.exactness == Exactness::other
                     ? "use a smaller model or shorter rows"
                     : "--exactness other considers techniques that change the training, too"});
  }

  // The way from the step as it was asked for to the plan.
  StepPlan plan_of(const Prediction& best) {
    StepPlan plan;
    TechniqueSet so_far;
    const auto add = [&](std::string change, std::string effect, Exactness exactness,
                         const Batch& batch) {
      plan.stages.push_back({.change = std::move(change),
                             .effect = std::move(effect),
                             .exactness = exactness,
                             .needs = predict(so_far, batch),
                             .rows = batch.rows,
                             .accumulation = batch.accumulation});
    };
    add("as asked", "", Exactness::exact, asked_);
    for (const Technique* each : best.techniques) {
      so_far.push_back(each);
      add(each->name, each->effect, each->exactness, asked_);
      plan.techniques.push_back(each->name);
    }
    if (best.batch.rows != asked_.rows || best.batch.accumulation != asked_.accumulation) {
      add(str("batches of ", best.batch.rows, ", ", best.batch.accumulation, " in a step"),
          options_.keep_effective_batch
              ? "The step has the same rows; sums over them have another order."
              : "The step has fewer rows, so the learning rate has to be chosen anew.",
          options_.keep_effective_batch ? Exactness::exact : Exactness::other, best.batch);
    }
    plan.settings = settings_of(best.techniques);
    plan.rows = best.batch.rows;
    plan.accumulation = best.batch.accumulation;
    plan.needs = best.needs;
    for (const Batch& larger : batches_of(best.techniques)) {
      if (larger.rows <= best.batch.rows) continue;
      plan.next_rows = larger.rows;
      plan.next_bytes = predict(best.techniques, larger).bytes + options_.process;
      break;
    }
    plan.memory = options_.memory;
    plan.process = options_.process;
    plan.combinations = static_cast<std::int64_t>(sets_.size());
    plan.predictions = static_cast<std::int64_t>(predictions_.size());
    plan.model = options_.step.model;
    plan.arguments = with_settings(options_.step, plan.settings).arguments;
    plan.arguments.per_device_train_batch_size = plan.rows;
    plan.arguments.gradient_accumulation_steps = plan.accumulation;
    plan.device = options_.step.device;
    return plan;
  }

  const PlanOptions& options_;
  StepTime time_;
  const std::int64_t limit_;  // for what is predicted
  const Batch asked_;
  const std::vector<Batch> batches_;
  std::vector<TechniqueSet> sets_;
  std::map<std::pair<TechniqueSet, std::pair<std::int64_t, std::int64_t>>, StepNeeds> predictions_;
  std::deque<Technique> own_;  // techniques that are not in the table
  Line base_;
  std::map<const Technique*, std::optional<Line>> singles_;  // unset: impossible
};

}  // namespace

StepPlan plan_step(const PlanOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  if (options.memory <= options.process) {
    throw MemoryError("plan.too-small",
                      {.what = "--memory",
                       .got = human_bytes(options.memory),
                       .expected = str("more than ", human_bytes(options.process),
                                       ", which the program takes without a model")});
  }
  StepPlan plan = Search(options).run();
  plan.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

}  // namespace hasten
