#include "hasten/checkpoint/pytorch_optimizer.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "checkpoint/optimizer_options.h"
#include "checkpoint/optimizer_state.h"
#include "formats/pytorch_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using pickle::Kind;
using pickle::Value;
using Members = std::map<std::string, const Value*>;
using GroupJson = nlohmann::json;

constexpr double kMaxSteps = 9007199254740992;  // 2^53: doubles hold every integer up to it

// A file whose root is a dictionary of Python or a module of LibTorch.
class StateFile {
 public:
  StateFile(const fs::path& path, const PyTorchFileOptions& options)
      : path_(path.string()), archive_(open_archive(path, options)), tensors_(archive_) {}

  const std::string& path() const { return path_; }
  Members root() const { return members(archive_->program().root()); }
  // True for an archive of LibTorch's torch::save.
  bool is_module() const { return archive_->program().root().kind == Kind::object; }

  // Returns the entries of a dictionary or the attributes of a module. A file has only one of the
  // two.
  Members members(const Value& value) const {
    const Kind wanted = is_module() ? Kind::object : Kind::dict;
    if (value.kind != wanted) fail(is_module() ? "no module" : "no dictionary");
    Members found;
    archive_->program().for_each_member(
        value, [&](const std::string& key, const Value& member) { found[key] = &member; });
    return found;
  }
  const Value& member(const Members& members, const std::string& name, Kind kind) const {
    const auto found = members.find(name);
    if (found == members.end() || found->second->kind != kind)
      fail(str("no entry \"", name, "\" of the usual type"));
    return *found->second;
  }

  at::Tensor tensor(const Value& value) { return tensors_.tensor(value); }
  // A whole number, a number, or a tensor of one element.
  double number(const Value& value) {
    if (value.kind == Kind::integer || value.kind == Kind::boolean)
      return static_cast<double>(value.integer);
    if (value.kind == Kind::real) return value.real;
    if (value.kind == Kind::tensor) {
      const at::Tensor read = tensor(value);
      if (read.numel() == 1 && !read.is_complex()) return read.item<double>();
    }
    fail("something else than a number");
  }

  [[noreturn]] void fail(const std::string& got) const {
    throw DataError(
        "checkpoint.pytorch-state",
        {.what = path_,
         .got = got,
         .expected = "the state_dict of an optimizer or a schedule of PyTorch, or an optimizer "
                     "that LibTorch's torch::save has written",
         .hint = "pass optimizer.pt or optimizer.bin, and scheduler.pt or scheduler.bin "
                 "of a checkpoint"});
  }

 private:
  static std::shared_ptr<const PickleArchive> open_archive(const fs::path& path,
                                                           const PyTorchFileOptions& options) {
    require_pickle_allowed(options, path);
    return std::make_shared<const PickleArchive>(path);
  }

  std::string path_;
  std::shared_ptr<const PickleArchive> archive_;
  PyTorchTensors tensors_;
};

std::vector<double> numbers_of(StateFile& file, const Members& members, const std::string& name) {
  const auto found = members.find(name);
  if (found == members.end()) return {};
  if (found->second->kind != Kind::list) file.fail(str("no list \"", name, "\""));
  std::vector<double> numbers;
  for (const Value* each : found->second->items) numbers.push_back(file.number(*each));
  return numbers;
}

[[noreturn]] void throw_options_mismatch(const StateFile& file, std::string got,
                                         std::string expected) {
  throw DataError(
      "checkpoint.optimizer-options",
      {.what = file.path(),
       .got = std::move(got),
       .expected = std::move(expected),
       .hint = "create the optimizer with the groups and options that the saved one had"});
}

// Returns the value of an option as JSON, in the type that the optimizer's option has.
GroupJson option_of(StateFile& file, const Value& value, const GroupJson& current) {
  if (value.kind == Kind::none) return GroupJson();
  if (value.kind == Kind::text) return std::string(value.text);
  if (value.kind == Kind::tuple || value.kind == Kind::list) {
    GroupJson list = GroupJson::array();
    for (const Value* each : value.items) list.push_back(file.number(*each));
    return list;
  }
  if (current.is_boolean()) return file.number(value) != 0;
  if (current.is_number_integer() && value.kind == Kind::integer) return value.integer;
  return file.number(value);
}

// Returns the value of an option. For a pair such as betas, hasten's names of the two numbers are
// betas_1 and betas_2.
const Value& find_option(const StateFile& file, const Members& group, const std::string& name) {
  if (const auto found = group.find(name); found != group.end()) return *found->second;
  const auto pair = group.find(name.substr(0, name.size() - std::min<std::size_t>(name.size(), 2)));
  const bool is_of_pair = ends_with(name, "_1") || ends_with(name, "_2");
  if (is_of_pair && pair != group.end() && pair->second->items.size() == 2)
    return *pair->second->items[ends_with(name, "_1") ? 0 : 1];
  throw_options_mismatch(file, str("a group without the option ", name),
                         "the options of this kind of optimizer");
}

// Refuses options that change what a step does and that the optimizer does not have. `own` holds
// its options.
void check_supported(StateFile& file, const Members& group, const std::string& optimizer,
                     const GroupJson& own) {
  if (const auto found = group.find("maximize");
      found != group.end() && !own.contains("maximize") && file.number(*found->second) != 0)
    throw_options_mismatch(file, "maximize = True", "an optimizer that minimizes");
  const auto decoupled = group.find("decoupled_weight_decay");
  const bool is_adam = optimizer == "Adam", is_adamw = optimizer == "AdamW";
  if (decoupled == group.end() || !(is_adam || is_adamw)) return;
  const bool of_adamw = file.number(*decoupled->second) != 0;
  if (of_adamw == is_adamw) return;
  throw DataError("checkpoint.optimizer-kind",
                  {.what = file.path(),
                   .got = of_adamw ? "the state of AdamW" : "the state of Adam",
                   .expected = "the state of " + optimizer,
                   .hint = "load it into the optimizer that the checkpoint was made with"});
}

// LibTorch writes a list as the attributes PREFIX/0, PREFIX/1 and so on, and their number as
// PREFIX/size.
std::vector<const Value*> list_of_module(StateFile& file, const Members& members,
                                         const std::string& prefix) {
  const double size = file.number(file.member(members, prefix + "/size", Kind::tensor));
  const bool is_possible = size >= 0 && size < static_cast<double>(members.size());
  if (!is_possible) file.fail(str("the number ", size, " of ", prefix));
  std::vector<const Value*> list;
  while (static_cast<double>(list.size()) < size) {
    const auto found = members.find(str(prefix, '/', list.size()));
    if (found == members.end()) file.fail(str("no ", prefix, '/', list.size()));
    list.push_back(found->second);
  }
  return list;
}

std::vector<const Value*> group_list(StateFile& file) {
  if (!file.is_module()) return file.member(file.root(), "param_groups", Kind::list).items;
  const Value& groups = file.member(file.root(), "param_groups", Kind::object);
  return list_of_module(file, file.members(groups), "param_groups");
}

// A group of parameters in a file.
struct FileGroup {
  Members options;
  std::vector<const Value*> parameters;
};

FileGroup group_of(StateFile& file, const Value& group) {
  const Members members = file.members(group);
  if (!file.is_module())
    return {.options = members, .parameters = file.member(members, "params", Kind::list).items};
  return {.options = file.members(file.member(members, "options", Kind::object)),
          .parameters = list_of_module(file, members, "params")};
}

// Returns the key of a parameter's state. Python numbers the parameters of all groups, and LibTorch
// writes their addresses in the process that saved them.
std::string key_of(const StateFile& file, const Value& parameter) {
  if (parameter.kind != (file.is_module() ? Kind::text : Kind::integer))
    file.fail("a parameter without a number");
  return file.is_module() ? std::string(parameter.text) : str(parameter.integer);
}

// The groups of the file, and checks that they match the optimizer's groups.
class SavedGroups {
 public:
  SavedGroups(StateFile& file, torch::optim::Optimizer& optimizer) {
    const std::vector<const Value*> saved = group_list(file);
    auto& groups = optimizer.param_groups();
    if (saved.size() != groups.size())
      throw_options_mismatch(file, str(saved.size(), " groups of parameters"), str(groups.size()));
    options = options_of(optimizer);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const FileGroup group = group_of(file, *saved[g]);
      check_supported(file, group.options, name_of_optimizer(optimizer), options.at(g));
      for (auto& [name, current] : options.at(g).items()) {
        if (is_added_option(name)) continue;
        current = option_of(file, find_option(file, group.options, name), current);
      }
      add_parameters(file, group.parameters, groups[g].params(), g);
    }
    check_options(optimizer, options, file.path());
  }

  GroupJson options;
  ParameterNames parameters;
  std::map<std::string, std::string> names;  // by the key of the parameter's state

 private:
  void add_parameters(const StateFile& file, const std::vector<const Value*>& saved,
                      const std::vector<at::Tensor>& own, std::size_t group) {
    if (saved.size() != own.size())
      throw_options_mismatch(file, str(saved.size(), " parameters in group ", group),
                             str(own.size()));
    for (std::size_t p = 0; p < own.size(); ++p) {
      const std::string name = str("group.", group, ".parameter.", p);
      parameters.emplace(name, own[p]);
      if (!names.emplace(key_of(file, *saved[p]), name).second)
        file.fail("a parameter that is in two places");
    }
  }
};

// Python counts steps in floating-point numbers.
at::Tensor step_of(StateFile& file, const Value& value) {
  const double step = file.number(value);
  const bool is_whole = step >= 0 && step <= kMaxSteps && std::floor(step) == step;
  if (!is_whole) file.fail(str("the step ", step));
  return at::scalar_tensor(static_cast<std::int64_t>(step), at::kLong);
}

TensorDict state_tensors(StateFile& file, const SavedGroups& groups) {
  const Value& state =
      file.member(file.root(), "state", file.is_module() ? Kind::object : Kind::dict);
  TensorDict tensors;
  // A dictionary may be the state of one parameter only: a small file could otherwise give its
  // entries to every parameter and need much memory.
  std::set<const Value*> seen;
  for (const auto& [key, of_parameter] : file.members(state)) {
    const auto name = groups.names.find(key);
    if (name == groups.names.end()) file.fail(str("the state of parameter ", key));
    if (!seen.insert(of_parameter).second) file.fail("one state of two parameters");
    for (const auto& [member, value] : file.members(*of_parameter)) {
      at::Tensor& tensor = tensors[str(name->second, '.', member)];
      if (member == "step") {
        tensor = step_of(file, *value);
      } else if (member == "mu_product") {  // NAdam's number, which Python keeps in a tensor
        tensor = at::scalar_tensor(file.number(*value), at::kDouble);
      } else if (value->kind == Kind::tensor) {
        tensor = file.tensor(*value);
      } else if (value->kind == Kind::integer) {
        tensor = at::scalar_tensor(value->integer, at::kLong);
      } else if (value->kind == Kind::real) {
        tensor = at::scalar_tensor(value->real, at::kDouble);
      } else if (value->kind == Kind::none) {  // a momentum before the first step
        tensors.erase(str(name->second, '.', member));
      } else {
        file.fail(str("the state \"", member, "\", which is neither a tensor nor a number"));
      }
    }
  }
  return tensors;
}

}  // namespace

void load_pytorch_optimizer(const fs::path& path, torch::optim::Optimizer& optimizer,
                            const PyTorchFileOptions& options) {
  StateFile file(path, options);
  const SavedGroups groups(file, optimizer);
  const TensorDict tensors = state_tensors(file, groups);
  auto before = std::move(optimizer.state());
  try {
    restore_optimizer(optimizer, groups.parameters, tensors, path);
  } catch (...) {
    optimizer.state() = std::move(before);
    throw;
  }
  set_options(optimizer, groups.options);
}

PyTorchSchedule load_pytorch_schedule(const fs::path& path, const PyTorchFileOptions& options) {
  StateFile file(path, options);
  const Members root = file.root();
  return {.last_epoch = file.member(root, "last_epoch", Kind::integer).integer,
          .base_lrs = numbers_of(file, root, "base_lrs"),
          .last_lrs = numbers_of(file, root, "_last_lr")};
}

}  // namespace hasten
