// The search of a plan. Sets of techniques are ranked by sums of single effects, which need a few
// dry runs for each technique; the best of them are then predicted exactly, until no other set can
// be faster.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "base/seconds.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/plan/plan.h"
#include "plan/model_settings.h"
#include "plan/predictions.h"
#include "plan/techniques.h"

namespace hasten {
namespace {

// The most sets of techniques that are predicted exactly.
constexpr std::size_t kMaxPredictedSets = 24;
// A sum of single effects is wrong by at most this factor. A set cannot be better if its estimate
// is worse than the best prediction by more than this factor.
constexpr double kTolerance = 1.15;
// If the times for a row differ by less than this factor between batches, the larger batch is
// chosen.
constexpr double kTieRatio = 1.02;
// A less exact plan must be faster by this factor, because predictions of two plans differ by a few
// percent even if their times are the same.
constexpr double kMinRoundingSpeedup = 1.05;
// The bytes of a step if its memory is not known.
constexpr double kUnknown = 1e18;
// A step that recomputes fewer layers takes at least this share of the time of a step that
// recomputes all of them, because the second forward pass is a quarter of the products.
constexpr double kWithoutRecomputation = 0.75;

struct Prediction {
  TechniqueSet techniques;
  StepBatch batch;
  StepCost cost;
  Exactness exactness = Exactness::exact;
  double seconds_per_row() const { return cost.seconds / static_cast<double>(batch.total_rows()); }
};

bool has_technique(const TechniqueSet& set, const char* name) {
  return std::any_of(set.begin(), set.end(),
                     [&](const Technique* each) { return each->name == name; });
}

// Returns the batches to choose from: first those that are accumulated, then those that are a whole
// step. Both parts are in ascending order.
std::vector<StepBatch> batches_for(const StepBatch& requested, bool keeps_rows) {
  std::vector<StepBatch> accumulated, whole;
  const std::int64_t all = requested.total_rows();
  for (std::int64_t rows = 1; rows <= all; ++rows) {
    const std::int64_t accumulation = all / rows;
    if (keeps_rows) {
      if (all % rows != 0) continue;
    } else {
      // Keeps powers of two and the numbers halfway between them.
      const std::int64_t odd = rows / (rows & -rows);
      if (odd != 1 && odd != 3 && rows != all && rows != requested.rows) continue;
    }
    if (accumulation > 1) accumulated.push_back({.rows = rows, .accumulation = accumulation});
    if (!keeps_rows || accumulation == 1) whole.push_back({.rows = rows, .accumulation = 1});
  }
  accumulated.insert(accumulated.end(), whole.begin(), whole.end());
  return accumulated;
}

using Batch = StepBatch;

class Search {
 public:
  explicit Search(const PlanOptions& options)
      : options_(options),
        predictions_(options),
        limit_(options.memory - options.process),
        requested_{.rows = options.step.arguments.per_device_train_batch_size,
                   .accumulation = options.step.arguments.gradient_accumulation_steps},
        batches_(batches_for(requested_, options.keep_effective_batch)) {}

  StepPlan run() {
    sets_ = combinations(options_);
    predict_single_techniques();
    predict(sets_.front());  // the requested step
    predict_fastest();
    if (found_.empty()) predict_smallest();
    if (found_.empty()) throw_too_small();
    return plan_of(best_prediction());
  }

 private:
  const StepCost& predict(const TechniqueSet& techniques, const Batch& batch) {
    return predictions_.get(techniques, batch);
  }

  // Returns the batches that the techniques allow. Some techniques exclude accumulation.
  std::vector<Batch> batches_of(const TechniqueSet& techniques) const {
    std::vector<Batch> valid;
    for (const Batch& each : batches_) {
      if (predictions_.are_valid(techniques, each)) valid.push_back(each);
    }
    return valid;
  }

  bool fits(const StepCost& cost) const { return cost.bytes <= limit_; }

  // The cost of a set of techniques: the memory with the smallest micro-batches, the memory of a
  // step without accumulation, and the time for a row. A memory is unset if the techniques exclude
  // such a step. Smaller micro-batches may need more memory, because gradients stay alive between
  // them.
  struct Effect {
    std::optional<double> smallest, whole;
    double seconds_per_row = 0;

    double least_bytes() const {
      return std::min(smallest.value_or(kUnknown), whole.value_or(kUnknown));
    }
  };
  std::optional<Effect> effect_of(const TechniqueSet& techniques) {
    const std::vector<Batch> batches = batches_of(techniques);
    if (batches.empty()) return std::nullopt;
    // With rare exceptions, the largest batch takes the least time for a row.
    const Batch largest = batches.back();
    const StepCost& cost = predict(techniques, largest);
    if (is_impossible(cost)) return std::nullopt;
    Effect effect{.seconds_per_row = cost.seconds / static_cast<double>(largest.total_rows())};
    const auto bytes_with = [&](const Batch& batch) {
      return static_cast<double>(predict(techniques, batch).bytes);
    };
    if (batches.front().rows == batches_.front().rows)
      effect.smallest = bytes_with(batches.front());
    if (batches_.front().accumulation > 1 && batches.back().accumulation == 1)
      effect.whole = bytes_with(batches.back());
    return effect;
  }

  // Predicts every technique alone, in addition to the techniques that every set has.
  void predict_single_techniques() {
    const TechniqueSet used = sets_.front();
    base_ = effect_of(used).value_or(Effect{});
    for (const TechniqueSet& set : sets_) {
      if (set.size() != used.size() + 1) continue;
      for (const Technique* each : set) {
        if (std::count(used.begin(), used.end(), each) == 0) single_effects_[each] = effect_of(set);
      }
    }
  }

  // Returns the sum of the effects of the techniques, or nullopt if the model does not support one
  // of them.
  std::optional<Effect> sum_of_effects(const TechniqueSet& set) const {
    Effect sum = base_;
    const auto add = [](std::optional<double>& to, const std::optional<double>& single,
                        const std::optional<double>& base) {
      to = to && single && base ? std::optional(*to + *single - *base) : std::nullopt;
    };
    for (const Technique* each : set) {
      const auto found = single_effects_.find(each);
      if (found == single_effects_.end()) continue;  // every set has it
      if (!found->second) return std::nullopt;
      const Effect& single = *found->second;
      add(sum.smallest, single.smallest, base_.smallest);
      add(sum.whole, single.whole, base_.whole);
      if (base_.seconds_per_row > 0)
        sum.seconds_per_row *= single.seconds_per_row / base_.seconds_per_row;
    }
    return sum;
  }

  // The sets for which `estimate` returns a number, the smallest number first.
  using Ranking = std::vector<std::pair<double, const TechniqueSet*>>;
  template <class Estimate>
  Ranking rank_by(Estimate estimate) const {
    Ranking ranked;
    for (const TechniqueSet& set : sets_) {
      const std::optional<Effect> sum = sum_of_effects(set);
      if (!sum) continue;
      if (const std::optional<double> number = estimate(*sum)) ranked.emplace_back(*number, &set);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return ranked;
  }

  // Predicts the sets that may be the fastest, and leaves out sets that cannot be faster.
  void predict_fastest() {
    const double max_bytes = kTolerance * static_cast<double>(limit_);
    const Ranking ranked = rank_by([&](const Effect& sum) {
      return sum.least_bytes() <= max_bytes ? std::optional(sum.seconds_per_row) : std::nullopt;
    });
    std::size_t predicted = 0;
    for (const auto& [seconds, set] : ranked) {
      const double share = has_technique(*set, "recompute") ? kWithoutRecomputation : 1;
      if (!found_.empty() && share * seconds > kTolerance * fastest_) continue;
      if (!found_.empty() && predicted >= kMaxPredictedSets) break;
      predict(*set);
      ++predicted;
    }
  }

  // Predicts the sets that need the least memory. This is for a limit that a step meets although
  // the sums of the single effects exceed it.
  void predict_smallest() {
    for (const TechniqueSet* set : smallest_sets()) predict(*set);
  }

  // Returns the sets that need the least memory according to the sums of their single effects.
  std::vector<const TechniqueSet*> smallest_sets() const {
    const Ranking ranked =
        rank_by([](const Effect& sum) { return std::optional(sum.least_bytes()); });
    std::vector<const TechniqueSet*> out;
    for (std::size_t i = 0; i < std::min(kMaxPredictedSets, ranked.size()); ++i)
      out.push_back(ranked[i].second);
    return out;
  }

  Prediction prediction_of(const TechniqueSet& set, const StepBatch& batch) {
    // A step with fewer rows is a different algorithm.
    Exactness exactness =
        batch.total_rows() < requested_.total_rows() ? Exactness::other : Exactness::exact;
    for (const Technique* each : set)
      exactness = std::max(exactness, exactness_of(options_.step, *each));
    return {.techniques = set,
            .batch = batch,
            .cost = predictions_.get(set, batch),
            .exactness = exactness};
  }

  void add(const Prediction& found) {
    fastest_ =
        found_.empty() ? found.seconds_per_row() : std::min(fastest_, found.seconds_per_row());
    found_.push_back(found);
  }

  // Adds the fastest batch of the set that fits, with as few layers recomputed as possible. If its
  // step has fewer rows, also adds the fastest batch with the requested rows.
  void predict(const TechniqueSet& set) {
    std::vector<Batch> batches = batches_of(set);
    const std::optional<Prediction> best = best_batch(set, batches);
    if (!best) return;
    add_with_fewer_layers(*best);
    if (best->batch.total_rows() == requested_.total_rows()) return;
    std::erase_if(batches,
                  [&](const Batch& each) { return each.total_rows() != requested_.total_rows(); });
    if (const auto same_rows = best_batch(set, batches)) add_with_fewer_layers(*same_rows);
  }

  void add_with_fewer_layers(const Prediction& best) {
    const std::optional<Prediction> fewer = with_fewer_layers(best);
    add(fewer ? *fewer : best);
  }

  // Returns the fastest batch that fits, or nullopt if none fits. The batches that are accumulated
  // must come first.
  std::optional<Prediction> best_batch(const TechniqueSet& set, const std::vector<Batch>& batches) {
    const auto single = std::partition_point(
        batches.begin(), batches.end(), [](const Batch& each) { return each.accumulation > 1; });
    const auto accumulated = best_of(set, {batches.begin(), single}),
               best = best_of(set, {single, batches.end()});
    if (!best || (accumulated && is_faster(*accumulated, *best))) return accumulated;
    return best;
  }

  // Returns the fastest batch that fits. The memory must grow with the rows of the batches.
  std::optional<Prediction> best_of(const TechniqueSet& set, const std::vector<Batch>& batches) {
    std::size_t fitting = 0, end = batches.size();  // all batches before `fitting` fit
    while (fitting < end) {
      const std::size_t middle = fitting + (end - fitting) / 2;
      if (fits(predict(set, batches[middle]))) {
        fitting = middle + 1;
      } else {
        end = middle;
      }
    }
    std::optional<Prediction> best;
    // Smaller batches are slower, with rare and small exceptions, so only four batches are
    // compared.
    for (std::size_t i = 0; i < 4 && i < fitting; ++i) {
      const Batch& batch = batches[fitting - 1 - i];
      const Prediction each = prediction_of(set, batch);
      if (!best || is_faster(each, *best)) best = each;
    }
    return best;
  }

  // Returns whether the smaller batch is faster by enough.
  static bool is_faster(const Prediction& smaller, const Prediction& larger) {
    return smaller.seconds_per_row() * kTieRatio < larger.seconds_per_row();
  }

  // Recomputes as few layers as the limit allows, instead of all or of every second one. It starts
  // with the first layers, because their second run comes after the activations of the later layers
  // are freed. Returns nullopt if this is not faster.
  std::optional<Prediction> with_fewer_layers(const Prediction& best) {
    TechniqueSet set;
    for (const Technique* each : best.techniques)
      if (each->group != "recomputation") set.push_back(each);
    if (set.size() == best.techniques.size() || options_.predictor) return std::nullopt;
    std::optional<Prediction> found;
    std::size_t too_few = 0, enough = layers().size();
    while (enough - too_few > 1) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      TechniqueSet with = set;
      with.push_back(&first_layers(middle));
      if (const Prediction each = prediction_of(with, best.batch); fits(each.cost)) {
        found = each;
        enough = middle;
      } else {
        too_few = middle;
      }
    }
    return found && found->seconds_per_row() < best.seconds_per_row() ? found : std::nullopt;
  }

  const std::vector<std::string>& layers() {
    if (!layers_) layers_ = recomputable_layers(options_.step);
    return *layers_;
  }

  // Returns the recomputation of the first `count` layers.
  const Technique& first_layers(std::size_t count) {
    const auto known = first_layers_.find(count);
    if (known != first_layers_.end()) return known->second;
    const auto end = layers().begin() + static_cast<std::ptrdiff_t>(count);
    return first_layers_[count] = recomputation_of({layers().begin(), end});
  }

  // Returns the fastest prediction that fits. A less exact one must be faster by
  // kMinRoundingSpeedup.
  const Prediction& best_prediction() const {
    const Prediction* best = nullptr;
    for (const Exactness level : {Exactness::exact, Exactness::rounding, Exactness::other}) {
      const Prediction* of_level = nullptr;
      for (const Prediction& each : found_) {
        if (each.exactness == level && (of_level == nullptr || is_better(each, *of_level)))
          of_level = &each;
      }
      const bool is_worth_it =
          of_level != nullptr &&
          (best == nullptr ||
           kMinRoundingSpeedup * of_level->seconds_per_row() < best->seconds_per_row());
      if (is_worth_it) best = of_level;
    }
    return *best;
  }

  // Returns true if `a` is faster than `b`, or as fast with fewer changes.
  static bool is_better(const Prediction& a, const Prediction& b) {
    const double ratio = a.seconds_per_row() / b.seconds_per_row();
    if (ratio < 1 / kTieRatio || ratio > kTieRatio) return ratio < 1;
    if (a.techniques.size() != b.techniques.size())
      return a.techniques.size() < b.techniques.size();
    return a.batch.total_rows() > b.batch.total_rows() ||
           (a.batch.total_rows() == b.batch.total_rows() && a.batch.rows > b.batch.rows);
  }

  [[noreturn]] void throw_too_small() {
    std::optional<Prediction> leanest;
    for (const TechniqueSet* const each_set : smallest_sets()) {
      const TechniqueSet& set = *each_set;
      const std::vector<Batch> batches = batches_of(set);
      if (batches.empty()) continue;
      for (const Batch& batch : {batches.front(), batches.back()}) {
        const Prediction each = prediction_of(set, batch);
        if (!leanest || each.cost.bytes < leanest->cost.bytes) leanest = each;
      }
    }
    if (!leanest || is_impossible(leanest->cost)) throw_impossible();
    const std::vector<std::string> names = names_of(*leanest);
    throw MemoryError(
        "plan.too-small",
        {.what = "--memory",
         .got = human_bytes(options_.memory),
         .expected = str("at least ", human_bytes(leanest->cost.bytes + options_.process),
                         ", which the leanest combination needs: batches of ", leanest->batch.rows,
                         names.empty() ? "" : " with " + join(names, ", ")),
         .hint = options_.exactness == Exactness::other
                     ? "use a smaller model or shorter rows"
                     : "--exactness other considers techniques that change the training, too"});
  }

  // Throws because the model supports none of the sets. All of them have the techniques of `use`.
  [[noreturn]] void throw_impossible() {
    const TechniqueSet& used = sets_.front();
    std::string reason;
    for (const Batch& each : batches_)
      if (reason.empty()) reason = predictions_.rejection_reason(used, each);
    throw ConfigError("plan.contradiction", {.what = "techniques of a plan",
                                             .got = join(options_.use, ", "),
                                             .expected = "techniques that the step supports",
                                             .hint = reason.empty() ? "leave one out" : reason});
  }

  static std::vector<std::string> names_of(const Prediction& prediction) {
    std::vector<std::string> names;
    for (const Technique* each : prediction.techniques) names.push_back(each->name);
    return names;
  }

  // Returns the plan, with the stages from the requested step to it.
  StepPlan plan_of(const Prediction& best) {
    StepPlan plan;
    add_stages(plan, best);
    plan.techniques = names_of(best);
    plan.settings = settings_of(best.techniques);
    plan.rows = best.batch.rows;
    plan.accumulation = best.batch.accumulation;
    plan.cost = best.cost;
    add_next_batch(plan, best);
    plan.memory = options_.memory;
    plan.process = options_.process;
    plan.combinations = static_cast<std::int64_t>(sets_.size());
    plan.predictions = predictions_.runs();
    plan.model = options_.step.model;
    plan.model_settings = options_.predictor ? PlanSettings{} : model_settings_of(options_.step);
    plan.arguments = with_settings(options_.step, plan.settings).arguments;
    plan.arguments.per_device_train_batch_size = plan.rows;
    plan.arguments.gradient_accumulation_steps = plan.accumulation;
    plan.device = options_.step.device;
    return plan;
  }

  void add_stages(StepPlan& plan, const Prediction& best) {
    TechniqueSet so_far;
    StepBatch batch = requested_;
    const auto add_stage = [&](std::string change, std::string effect, Exactness exactness) {
      plan.stages.push_back({.change = std::move(change),
                             .effect = std::move(effect),
                             .exactness = exactness,
                             .cost = predictions_.get(so_far, batch),
                             .rows = batch.rows,
                             .accumulation = batch.accumulation});
    };
    const auto change_batch = [&] {
      if (batch == best.batch) return;
      batch = best.batch;
      const bool is_same = batch.total_rows() == requested_.total_rows();
      add_stage(to_text(batch), is_same ? kSameRowsEffect : kFewerRowsEffect,
                is_same ? Exactness::exact : Exactness::other);
    };
    add_stage("as asked", "", Exactness::exact);
    // Some techniques exclude accumulation, so they come after the change that ends it.
    if (!predictions_.are_valid(best.techniques, requested_)) change_batch();
    for (const Technique* each : best.techniques) {
      so_far.push_back(each);
      add_stage(each->name, each->effect, exactness_of(options_.step, *each));
    }
    change_batch();
  }

  // Adds the next larger batch that the model takes to the plan. After an accumulated batch it is
  // the next accumulated one, or a whole step if there is none. After a whole step it is a whole
  // step.
  void add_next_batch(StepPlan& plan, const Prediction& best) {
    for (const Batch& each : batches_of(best.techniques)) {
      const bool is_comparable = each.accumulation == 1 || best.batch.accumulation > 1;
      if (each.rows <= best.batch.rows || !is_comparable) continue;
      const StepCost& cost = predict(best.techniques, each);
      if (is_impossible(cost)) continue;
      plan.next_rows = each.rows;
      plan.next_bytes = cost.bytes + options_.process;
      return;
    }
  }

  const PlanOptions& options_;
  StepPredictions predictions_;
  const std::int64_t limit_;  // of the predictions, without the memory of the process
  const Batch requested_;
  const std::vector<Batch> batches_;
  std::vector<TechniqueSet> sets_;
  Effect base_;
  std::map<const Technique*, std::optional<Effect>> single_effects_;  // nullopt if impossible
  std::vector<Prediction> found_;                                     // the predictions that fit
  double fastest_ = 0;                                                // seconds for a row
  std::optional<std::vector<std::string>> layers_;  // layers that can be recomputed
  std::map<std::size_t, Technique> first_layers_;
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
  plan.seconds = seconds_since(start);
  return plan;
}

}  // namespace hasten
