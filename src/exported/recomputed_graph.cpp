#include "exported/recomputed_graph.h"

#include <algorithm>
#include <functional>
#include <map>
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

// The slots that are changed in place. The value is true if only views of the slot are changed. At
// run time such a view may be a copy, for example the result of reshape.
using Changes = std::map<int, bool>;

void add_change(Changes& changes, int slot, bool is_of_view) {
  const auto found = changes.emplace(slot, is_of_view).first;
  found->second = found->second && is_of_view;
}

// Knows which slots are views of other slots.
class Views {
 public:
  // Adds the views that the instruction makes.
  void follow(const Instruction& instruction) {
    if (!instruction.op) return;
    const auto& schema = instruction.op->schema();
    const auto has_alias = [](const c10::Argument& each) { return each.alias_info() != nullptr; };
    if (std::none_of(schema.returns().begin(), schema.returns().end(), has_alias)) return;
    const std::vector<Operand>& operands = instruction.operands;
    for (std::size_t i = 0; i < std::min(schema.arguments().size(), operands.size()); ++i) {
      if (!has_alias(schema.arguments()[i]) || operands[i].kind != Operand::Kind::slot) continue;
      const int origin = origin_of(operands[i].slot);
      for (const Output& output : instruction.outputs)
        for (const int view : output.slots)
          if (view != kNoSlot) origins_.emplace(view, origin);
    }
  }

  // Returns the slot that a slot is a view of, or the slot itself.
  int origin_of(int slot) const {
    const auto found = origins_.find(slot);
    return found == origins_.end() ? slot : found->second;
  }

  // Adds the changes of an instruction as changes of the slots that are not views.
  void add_origins(const Changes& changes, Changes& all) const {
    for (const auto& [slot, is_of_view] : changes) {
      const int origin = origin_of(slot);
      add_change(all, origin, is_of_view || origin != slot);
    }
  }

 private:
  std::map<int, int> origins_;
};

Changes changes_of(const Instruction& instruction);

// Returns the slots that the instructions of a graph change.
Changes changes_of(const Graph& graph) {
  Changes changes;
  Views views;
  for (const Instruction& instruction : graph.code) {
    views.add_origins(changes_of(instruction), changes);
    views.follow(instruction);
  }
  return changes;
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
Changes changes_of(const Instruction& instruction) {
  Changes changes;
  const std::vector<int> passed = passed_slots(instruction);
  for (const auto& graph : instruction.graphs) {
    const Changes inner = changes_of(*graph);
    for (std::size_t i = 0; i < std::min(graph->inputs.size(), passed.size()); ++i) {
      const auto found = inner.find(graph->inputs[i]);
      if (found != inner.end() && passed[i] != kNoSlot)
        add_change(changes, passed[i], found->second);
    }
  }
  if (!instruction.op) return changes;
  const auto& arguments = instruction.op->schema().arguments();
  for (std::size_t i = 0; i < std::min(arguments.size(), instruction.operands.size()); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    // LibTorch does not declare that batch norms change their statistics.
    const bool is_statistic =
        arguments[i].name() == "running_mean" || arguments[i].name() == "running_var";
    if (!is_statistic && (alias == nullptr || !alias->isWrite())) continue;
    std::vector<int> slots;
    add_slots(instruction.operands[i], slots);
    for (const int slot : slots) add_change(changes, slot, /*is_of_view=*/false);
  }
  return changes;
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
    views_.add_origins(changes_of(instruction), changes_);
    views_.follow(instruction);
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
      if (const auto changed = changes_.find(slot); changed != changes_.end()) {
        auto& places = changed->second ? region.mutated_views : region.mutated_operands;
        places.push_back(i);
      }
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
  Changes changes_;
  Views views_;
  std::set<int> defined_slots_, input_slots_, freed_;
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
