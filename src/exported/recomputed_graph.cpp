#include "exported/recomputed_graph.h"

#include <algorithm>
#include <functional>
#include <set>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"

namespace hasten::exported {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the path and the paths above it, the shortest first.
std::vector<std::string> paths_to(const std::string& path) {
  std::vector<std::string> paths;
  if (path.empty()) return paths;
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    paths.push_back(path.substr(0, end));
    if (end == std::string::npos) return paths;
  }
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// True if the instruction only changes how the instructions of its graph run.
bool is_wrapper(const Instruction& instruction) {
  return (instruction.action == Action::set_grad_mode && instruction.grad_enabled) ||
         instruction.action == Action::autocast;
}

void for_each_path(const Graph& graph, const std::function<void(const std::string&)>& f) {
  for (const Instruction& instruction : graph.code) {
    if (is_wrapper(instruction)) for_each_path(*instruction.graphs.front(), f);
    f(instruction.module_path);
  }
}

// Checks each path of the graph together with the paths above it, and returns the shortest one for
// which `is_wanted` is true. Each result occurs once.
template <class Predicate>
std::vector<std::string> shortest_paths(const Graph& graph, Predicate is_wanted) {
  std::vector<std::string> found;
  std::set<std::string> seen;
  for_each_path(graph, [&](const std::string& path) {
    const std::vector<std::string> all = paths_to(path);
    const auto wanted = std::find_if(all.begin(), all.end(), is_wanted);
    if (wanted != all.end() && seen.insert(*wanted).second) found.push_back(*wanted);
  });
  return found;
}

void add_slots(const Operand& operand, std::vector<int>& slots) {
  if (operand.kind == Operand::Kind::slot) slots.push_back(operand.slot);
  for (const Operand& item : operand.items) add_slots(item, slots);
}

std::vector<int> changed_slots(const Instruction& instruction);

// Returns the indices of the inputs that a graph changes.
std::vector<std::size_t> changed_inputs(const Graph& graph) {
  std::set<int> changed;
  for (const Instruction& instruction : graph.code) {
    const std::vector<int> slots = changed_slots(instruction);
    changed.insert(slots.begin(), slots.end());
  }
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    if (changed.contains(graph.inputs[i])) positions.push_back(i);
  return positions;
}

// Returns the slots of the values that an instruction passes to its graphs, in order. A value
// without a slot has kNoSlot.
std::vector<int> passed_slots(const Instruction& instruction) {
  const auto slot_of = [](const Operand& operand) {
    return operand.kind == Operand::Kind::slot ? operand.slot : kNoSlot;
  };
  std::vector<int> slots;
  // The first operand of a branch is its condition.
  for (std::size_t i = instruction.action == Action::branch ? 1 : 0;
       i < instruction.operands.size(); ++i) {
    const Operand& operand = instruction.operands[i];
    if (operand.kind != Operand::Kind::tensors) {
      slots.push_back(slot_of(operand));
      continue;
    }
    for (const Operand& item : operand.items) slots.push_back(slot_of(item));
  }
  return slots;
}

// Returns the slots of the operands that an instruction, or one of the graphs that it runs,
// changes.
std::vector<int> changed_slots(const Instruction& instruction) {
  std::vector<int> slots;
  const std::vector<int> passed = passed_slots(instruction);
  for (const auto& graph : instruction.graphs) {
    for (const std::size_t position : changed_inputs(*graph))
      if (position < passed.size() && passed[position] != kNoSlot)
        slots.push_back(passed[position]);
  }
  if (!instruction.op) return slots;
  const auto& arguments = instruction.op->schema().arguments();
  for (std::size_t i = 0; i < std::min(arguments.size(), instruction.operands.size()); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    // LibTorch does not declare that batch norms change their statistics.
    const bool is_statistic =
        arguments[i].name() == "running_mean" || arguments[i].name() == "running_var";
    if (is_statistic || (alias != nullptr && alias->isWrite()))
      add_slots(instruction.operands[i], slots);
  }
  return slots;
}

Operand operand_of(int slot) {
  Operand operand;
  operand.kind = Operand::Kind::slot;
  operand.slot = slot;
  return operand;
}

// Collects the instructions of one region.
class RegionBuilder {
 public:
  explicit RegionBuilder(int slots) { graph_.slots = slots; }

  bool is_empty() const { return graph_.code.empty(); }
  void add(const Instruction& instruction) {
    std::vector<int> read;
    for (const Operand& operand : instruction.operands) add_slots(operand, read);
    for (const int slot : read) {
      if (!defined_slots_.contains(slot) && input_slots_.insert(slot).second)
        graph_.inputs.push_back(slot);
    }
    for (const int slot : changed_slots(instruction)) {
      if (!defined_slots_.contains(slot)) changed_.insert(slot);
    }
    for (const Output& output : instruction.outputs) {
      for (const int slot : output.slots) {
        if (slot != kNoSlot && defined_slots_.insert(slot).second) results_.push_back(slot);
      }
    }
    freed_.insert(instruction.frees.begin(), instruction.frees.end());
    graph_.code.push_back(instruction);
  }

  // Returns the region as one instruction.
  Instruction finish(const std::string& path, const CheckpointOptions& options) {
    Instruction region;
    region.action = Action::recompute;
    region.target = "checkpoint";
    region.name = path;
    region.module_path = path;
    region.checkpoint = options;
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const int slot = graph_.inputs[i];
      region.operands.push_back(operand_of(slot));
      if (changed_.contains(slot)) region.mutated_operands.push_back(i);
      if (freed_.contains(slot)) region.frees.push_back(slot);
    }
    Output output;
    for (const int slot : results_) {
      if (freed_.contains(slot)) continue;
      output.slots.push_back(slot);
      graph_.outputs.push_back(operand_of(slot));
    }
    region.outputs.push_back(std::move(output));
    region.graphs.push_back(std::make_shared<const Graph>(std::move(graph_)));
    return region;
  }

 private:
  Graph graph_;
  std::set<int> defined_slots_, input_slots_, changed_, freed_;
  std::vector<int> results_;
};

}  // namespace

std::vector<std::string> layer_paths(const Graph& graph) {
  return shortest_paths(graph, [](const std::string& path) { return is_number(last_part(path)); });
}

std::vector<std::string> matching_paths(const Graph& graph,
                                        const std::vector<std::string>& patterns) {
  std::set<std::string> all;
  for_each_path(graph, [&](const std::string& path) {
    for (const std::string& each : paths_to(path)) all.insert(each);
  });
  if (all.empty()) return {};
  // Refuses patterns that match nothing.
  select_layers({all.begin(), all.end()}, {.modules = patterns});
  return shortest_paths(graph,
                        [&](const std::string& path) { return is_selected_path(path, patterns); });
}

Graph with_recomputation(const Graph& graph, const std::vector<std::string>& paths,
                         const CheckpointOptions& options) {
  const std::set<std::string> wanted(paths.begin(), paths.end());
  const auto region_of = [&](const Instruction& instruction) -> std::string {
    const std::vector<std::string> all = paths_to(instruction.module_path);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const std::string& path) { return wanted.contains(path); });
    return found == all.end() ? "" : *found;
  };
  Graph changed{.slots = graph.slots, .inputs = graph.inputs, .code = {}, .outputs = graph.outputs};
  std::string current;
  RegionBuilder builder(graph.slots);
  const auto finish_region = [&] {
    if (builder.is_empty()) return;
    changed.code.push_back(builder.finish(current, options));
    builder = RegionBuilder(graph.slots);
  };
  for (const Instruction& instruction : graph.code) {
    const std::string region = region_of(instruction);
    if (region != current) finish_region();
    current = region;
    if (!region.empty()) {
      builder.add(instruction);
      continue;
    }
    changed.code.push_back(instruction);
    if (!is_wrapper(instruction)) continue;
    for (auto& inner : changed.code.back().graphs)
      inner = std::make_shared<const Graph>(with_recomputation(*inner, paths, options));
  }
  finish_region();
  return changed;
}

}  // namespace hasten::exported
