#include "checkpoint/optimizer_state.h"

#include <c10/util/Type.h>
#include <torch/torch.h>

#include <algorithm>
#include <concepts>
#include <deque>
#include <optional>
#include <set>
#include <typeinfo>
#include <vector>

#include "checkpoint/adamw_class.h"
#include "checkpoint/sparse_parts.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
namespace optim = torch::optim;

template <class State, class... Kinds>
concept OneOf = (std::same_as<std::remove_const_t<State>, Kinds> || ...);

// visit_members() passes each member of a state to the visitor, by name; a tensor that may be
// undefined is optional. The same list is used for saving (a const state) and for loading.
template <class Visitor, class State>
requires OneOf<State, optim::AdamParamState, optim::AdamWParamState>
void visit_members(Visitor& visit, State& state) {
  visit.tensor("exp_avg", state.exp_avg());
  visit.tensor("exp_avg_sq", state.exp_avg_sq());
  visit.optional_tensor("max_exp_avg_sq", state.max_exp_avg_sq());
  visit.number("step", state.step());
}

template <class Visitor, class State>
requires OneOf<State, optim::SGDParamState>
void visit_members(Visitor& visit, State& state) {
  visit.optional_tensor("momentum_buffer", state.momentum_buffer());
}

template <class Visitor, class State>
requires OneOf<State, optim::RMSpropParamState>
void visit_members(Visitor& visit, State& state) {
  visit.tensor("square_avg", state.square_avg());
  visit.optional_tensor("momentum_buffer", state.momentum_buffer());
  visit.optional_tensor("grad_avg", state.grad_avg());
  visit.number("step", state.step());
}

template <class Visitor, class State>
requires OneOf<State, optim::AdagradParamState>
void visit_members(Visitor& visit, State& state) {
  visit.tensor("sum", state.sum());
  visit.number("step", state.step());
}

template <class Visitor, class State>
requires OneOf<State, optim::LBFGSParamState>
void visit_members(Visitor& visit, State& state) {
  visit.number("func_evals", state.func_evals());
  visit.number("n_iter", state.n_iter());
  visit.number("t", state.t());
  visit.number("prev_loss", state.prev_loss());
  visit.unchecked_tensor("d", state.d());
  visit.unchecked_tensor("H_diag", state.H_diag());
  visit.unchecked_tensor("prev_flat_grad", state.prev_flat_grad());
  visit.list("old_dirs", state.old_dirs());
  visit.list("old_stps", state.old_stps());
  visit.list("ro", state.ro());
  // `al` is scratch memory: each step writes it before it reads it.
}

class StateWriter {
 public:
  StateWriter(TensorDict& out, std::string name) : out_(out), name_(std::move(name)) {}
  void tensor(const char* member, const at::Tensor& value) { out_[key(member)] = value; }
  void optional_tensor(const char* member, const at::Tensor& value) {
    if (!value.defined()) return;
    // LibTorch's SGD keeps the momentum of a sparse gradient as a sparse tensor.
    if (value.is_sparse()) return add_sparse_parts(out_, key(member), value);
    out_[key(member)] = value;
  }
  // LBFGS's tensors may share memory, which a file cannot express.
  void unchecked_tensor(const char* member, const at::Tensor& value) {
    if (value.defined()) out_[key(member)] = value.clone();
  }
  void number(const char* member, std::int64_t value) {
    out_[key(member)] = at::scalar_tensor(value, at::kLong);
  }
  void number(const char* member, double value) {
    out_[key(member)] = at::scalar_tensor(value, at::kDouble);
  }
  void list(const char* member, const std::deque<at::Tensor>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      unchecked_tensor(str(member, '.', i).c_str(), values[i]);
  }

 private:
  std::string key(const char* member) const { return name_ + "." + member; }
  TensorDict& out_;
  std::string name_;
};

class StateReader {
 public:
  StateReader(const TensorDict& from, std::string name, const at::Tensor& parameter,
              at::Device device, const fs::path& file, std::set<std::string>& used)
      : from_(from),
        name_(std::move(name)),
        parameter_(parameter),
        device_(device),
        file_(file),
        used_(used) {}
  // True if the file has any of these members of the parameter's state.
  bool has_any(const std::set<std::string>& members) const {
    return std::any_of(members.begin(), members.end(), [&](const std::string& member) {
      return from_.contains(key(member.c_str()));
    });
  }

  // The names of the members of the parameter's state.
  std::vector<std::string> members() const {
    std::vector<std::string> found;
    const std::string prefix = key("");
    for (auto each = from_.lower_bound(prefix);
         each != from_.end() && each->first.starts_with(prefix); ++each) {
      const std::string member = each->first.substr(prefix.size());
      // A member with a dot belongs to another parameter whose name begins with this one's.
      if (member.find('.') == std::string::npos) found.push_back(member);
    }
    return found;
  }
  // True if StateWriter wrote the member from a double. State in the parameter's own type is float.
  bool is_number(const std::string& member) const {
    const at::Tensor& value = from_.at(key(member.c_str()));
    return value.dim() == 0 && value.scalar_type() == at::kDouble;
  }

  void tensor(const char* member, at::Tensor& value) { value = take_checked(member); }
  void optional_tensor(const char* member, at::Tensor& value) {
    if (has_sparse_parts(from_, key(member))) {
      value = take_sparse(member);
    } else if (from_.contains(key(member))) {
      value = take_checked(member);
    }
  }
  void unchecked_tensor(const char* member, at::Tensor& value) {
    if (from_.contains(key(member))) value = copy_to_device(take_member(member));
  }
  void number(const char* member, std::int64_t& value) {
    value = take_number(member, at::kLong).item<std::int64_t>();
  }
  void number(const char* member, double& value) {
    value = take_number(member, at::kDouble).item<double>();
  }
  void list(const char* member, std::deque<at::Tensor>& values) {
    for (std::size_t i = 0; from_.contains(key(str(member, '.', i).c_str())); ++i)
      values.push_back(copy_to_device(take_member(str(member, '.', i).c_str())));
  }

 private:
  std::string key(const char* member) const { return name_ + "." + member; }
  const at::Tensor& take_member(const char* member) {
    used_.insert(key(member));
    return tensor_at(from_, key(member));
  }
  at::Tensor copy_to_device(const at::Tensor& tensor) const {
    return tensor.to(device_, /*non_blocking=*/false, /*copy=*/true);
  }
  // Returns a tensor with one element, which item() can convert to this type.
  const at::Tensor& take_number(const char* member, at::ScalarType type) {
    const at::Tensor& tensor = take_member(member);
    if (tensor.numel() != 1 || !c10::canCast(tensor.scalar_type(), type))
      throw_mismatch(member, str("a tensor that is not one number of type ", c10::toString(type)));
    return tensor;
  }
  [[noreturn]] void throw_mismatch(
      const char* member,
      std::string got = "a shape or type that differs from the parameter's") const {
    throw DataError("checkpoint.optimizer-shape",
                    {.what = file_.string() + ", tensor " + key(member),
                     .got = std::move(got),
                     .hint = "resume with the model the checkpoint was made with"});
  }
  at::Tensor take_checked(const char* member) {
    const at::Tensor& tensor = take_member(member);
    if (tensor.sizes() != parameter_.sizes() || !fits_type(tensor.scalar_type()))
      throw_mismatch(member);
    return copy_to_device(tensor);
  }
  at::Tensor take_sparse(const char* member) {
    for (const char* part : {kIndicesPart, kValuesPart, kIsCoalescedPart})
      used_.insert(key(member) + part);
    at::Tensor tensor;
    try {
      tensor = sparse_from_parts(from_, key(member), parameter_.sizes());
    } catch (const c10::Error&) {  // such as an index outside of the shape
      throw_mismatch(member);
    }
    if (!fits_type(tensor.scalar_type())) throw_mismatch(member);
    return copy_to_device(tensor);
  }

  // hasten::AdamW keeps its moments in float or bfloat16, independently of which of the two the
  // parameters have.
  bool fits_type(at::ScalarType type) const {
    const auto is_one = [](at::ScalarType each) {
      return each == at::kFloat || each == at::kBFloat16;
    };
    return type == parameter_.scalar_type() || (is_one(type) && is_one(parameter_.scalar_type()));
  }

  const TensorDict& from_;
  std::string name_;
  at::Tensor parameter_;
  at::Device device_;  // where the state is
  fs::path file_;
  std::set<std::string>& used_;
};

// Collects the names of a state's members; for a list, the name of its first entry.
struct MemberNames {
  std::set<std::string> names;
  template <class T>
  void tensor(const char* member, const T&) {
    names.insert(member);
  }
  template <class T>
  void optional_tensor(const char* member, const T&) {
    names.insert(member);
    names.insert(str(member, kIndicesPart));
  }
  template <class T>
  void unchecked_tensor(const char* member, const T&) {
    names.insert(member);
  }
  template <class T>
  void number(const char* member, const T&) {
    names.insert(member);
  }
  template <class T>
  void list(const char* member, const T&) {
    names.insert(str(member, ".0"));
  }
};

// The states of hasten's other optimizers name their members themselves.
bool save_param_state(const optim::OptimizerParamState& state, StateWriter& saving) {
  const auto* own = dynamic_cast<const ParamState*>(&state);
  if (own == nullptr) return false;
  for (const auto& [member, tensor] : own->tensors) saving.tensor(member.c_str(), tensor);
  for (const auto& [member, number] : own->numbers) saving.number(member.c_str(), number);
  saving.number("step", own->step);
  return true;
}

// The optimizer checks names and shapes in its next step.
std::unique_ptr<optim::OptimizerParamState> load_param_state(StateReader& loading) {
  const std::vector<std::string> members = loading.members();
  if (members.empty()) return nullptr;
  auto state = std::make_unique<ParamState>();
  for (const std::string& member : members) {
    if (member == "step") {
      loading.number("step", state->step);
    } else if (loading.is_number(member)) {
      loading.number(member.c_str(), state->numbers[member]);
    } else {
      loading.unchecked_tensor(member.c_str(), state->tensors[member]);
    }
  }
  return state;
}

// A kind of optimizer. hasten::AdamW has AdamW's options and state.
struct OptimizerKind {
  const char* name;
  const std::type_info* type;  // the class, or null for hasten's other optimizers
  // Returns false if the state is of a different class.
  bool (*save)(const optim::OptimizerParamState& state, StateWriter& saving);
  // Returns null if the file has nothing for the parameter, because it had no gradient.
  std::unique_ptr<optim::OptimizerParamState> (*load)(StateReader& loading);
};

template <class Optimizer, class State>
OptimizerKind optimizer_kind(const char* name) {
  return {.name = name,
          .type = &typeid(Optimizer),
          .save =
              [](const optim::OptimizerParamState& state, StateWriter& saving) {
                const auto* own = dynamic_cast<const State*>(&state);
                if (own != nullptr) visit_members(saving, *own);
                return own != nullptr;
              },
          .load = [](StateReader& loading) -> std::unique_ptr<optim::OptimizerParamState> {
            auto state = std::make_unique<State>();
            MemberNames members;
            visit_members(members, *state);
            if (!loading.has_any(members.names)) return nullptr;
            visit_members(loading, *state);
            return state;
          }};
}

[[noreturn]] void throw_unknown_optimizer(const std::string& got) {
  throw UsageError("checkpoint.unknown-optimizer",
                   {.what = "saving or loading the optimizer's state",
                    .got = got,
                    .expected = "an optimizer of hasten/optim or LibTorch's Adagrad, Adam, AdamW, "
                                "LBFGS, RMSprop or SGD, whose state is known",
                    .hint = "derive your own optimizer from hasten::StatefulOptimizer, which says "
                            "what its state is, or set save_only_model to save only the weights"});
}

// Returns null for an unknown optimizer. The class must be the known one itself: a class that
// derives from it, or that only uses its options, may keep other state, which would be lost.
const OptimizerKind* find_kind(const optim::Optimizer& optimizer) {
  static const std::vector<OptimizerKind> kinds = {
      optimizer_kind<optim::AdamW, optim::AdamWParamState>("AdamW"),
      optimizer_kind<optim::SGD, optim::SGDParamState>("SGD"),
      optimizer_kind<optim::Adam, optim::AdamParamState>("Adam"),
      optimizer_kind<optim::RMSprop, optim::RMSpropParamState>("RMSprop"),
      optimizer_kind<optim::Adagrad, optim::AdagradParamState>("Adagrad"),
      optimizer_kind<optim::LBFGS, optim::LBFGSParamState>("LBFGS")};
  if (is_hasten_adamw(optimizer)) return &kinds.front();
  for (const OptimizerKind& kind : kinds) {
    if (typeid(optimizer) == *kind.type) return &kind;
  }
  if (dynamic_cast<const StatefulOptimizer*>(&optimizer) != nullptr) {
    static const OptimizerKind stateful = {
        .name = "", .type = nullptr, .save = save_param_state, .load = load_param_state};
    return &stateful;
  }
  return nullptr;
}

const OptimizerKind& kind_of_optimizer(const optim::Optimizer& optimizer) {
  const OptimizerKind* const kind = find_kind(optimizer);
  if (kind == nullptr)
    throw_unknown_optimizer("the class " + c10::demangle(typeid(optimizer).name()));
  return *kind;
}

}  // namespace

bool is_known_optimizer(const optim::Optimizer& optimizer) {
  return find_kind(optimizer) != nullptr;
}

std::string name_of_optimizer(const optim::Optimizer& optimizer) {
  const auto* own = dynamic_cast<const StatefulOptimizer*>(&optimizer);
  return own != nullptr ? own->name() : kind_of_optimizer(optimizer).name;
}

TensorDict optimizer_tensors(const optim::Optimizer& optimizer, const ParameterNames& parameters) {
  const OptimizerKind& kind = kind_of_optimizer(optimizer);
  TensorDict out;
  for (const auto& [name, parameter] : parameters) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // it has had no gradient yet
    StateWriter saving(out, name);
    if (kind.save(*found->second, saving)) continue;
    const optim::OptimizerParamState& state = *found->second;
    throw_unknown_optimizer(str("a state of the class ", c10::demangle(typeid(state).name()),
                                " for the parameter ", name));
  }
  return out;
}

void restore_optimizer(optim::Optimizer& optimizer, const ParameterNames& parameters,
                       const TensorDict& tensors, const fs::path& file,
                       std::optional<at::Device> state_device) {
  const OptimizerKind& kind = kind_of_optimizer(optimizer);
  optimizer.state().clear();
  std::set<std::string> used;
  for (const auto& [name, parameter] : parameters) {
    StateReader loading(tensors, name, parameter, state_device.value_or(parameter.device()), file,
                        used);
    if (auto state = kind.load(loading))
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }
  if (used.size() != tensors.size()) {
    throw DataError("checkpoint.optimizer-names",
                    {.what = file.string(),
                     .got = str(tensors.size() - used.size(),
                                " tensors of parameters that the model does not have"),
                     .hint = "resume with the model and optimizer the checkpoint was made with"});
  }
}

}  // namespace hasten
