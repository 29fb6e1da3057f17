// File: optim/adamw_parts.h (internal)
// The parts of hasten::AdamW that its source files share.
#pragma once

#include <torch/optim/adamw.h>

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "hasten/optim/adamw.h"
#include "optim/distinct.h"

namespace hasten {

using AdamWState = torch::optim::AdamWParamState;

inline bool is_float_or_bfloat16(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16;
}

// The four tensors of a parameter. All of them have the same strides, without gaps or overlaps,
// except for the rows of a sparse gradient.
struct AdamW::Entry {
  at::Tensor parameter;
  at::Tensor values;  // the parameter, or a contiguous copy if it has gaps or overlaps
  at::Tensor gradient;
  AdamWState* state;
  bool fresh;         // the moments are new: zero everywhere
  std::int64_t seed;  // of the random numbers for rounding

  void write_back() const {
    if (!values.is_same(parameter)) parameter.copy_(values);
  }
};

// A step of the parameters that have moments. Its learning rate and step counts are tensors.
class AdamW::RepeatedAdamWStep final : public RepeatedStep {
 public:
  explicit RepeatedAdamWStep(AdamW& optimizer);
  ~RepeatedAdamWStep() override;

  bool can_repeat() const override;
  void write_numbers() override;
  void run() override;
  void mark_replayed() override { optimizer_.replayed_ = this; }

  // Counts a step on the host.
  void count();

 private:
  // The options that the kernel takes as numbers: betas, eps, weight_decay, amsgrad and
  // state_dtype.
  using FixedNumbers = std::tuple<std::tuple<double, double>, double, double, bool, at::ScalarType>;
  static FixedNumbers fixed_numbers_of(const AdamWOptions& options);

  struct Member {
    at::Tensor parameter, exp_avg, exp_avg_sq;
    const void* data;    // the parameter's address
    std::int64_t index;  // counted over the parameters of all groups
    std::int64_t step;   // its step count when this object was made
    // False if it had no gradient in the step that was recorded.
    bool is_stepped = true;
  };
  struct Group {
    at::Tensor rate;
    FixedNumbers numbers;
    std::map<std::int64_t, at::Tensor> counts;  // key: the count when this object was made
    std::vector<at::Tensor> parameters;         // without those of an earlier group
    std::vector<Member> members;                // the parameters that have moments
  };

  AdamWState* state_of(const at::Tensor& parameter) const;
  void add_group(const torch::optim::OptimizerParamGroup& group, TensorSet& seen,
                 std::int64_t& index);
  void run_group(Group& group, const AdamWOptions& options);
  // Returns the current step counts of a group, with the recorded counts as keys. Returns nullopt
  // if parameters that share a count tensor now have different counts.
  std::optional<std::map<std::int64_t, std::int64_t>> steps_of(const Group& group) const;
  bool is_unchanged(const Member& member) const;

  AdamW& optimizer_;
  std::vector<Group> groups_;
};

}  // namespace hasten
