// Reads a search space from a YAML or JSON file.
#include <map>
#include <optional>

#include "base/did_you_mean.h"
#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/search/detail/search_space.h"
#include "options/sources.h"
#include "options/value.h"
#include "options/yaml_document.h"

namespace hasten {
namespace {

constexpr const char* kForms =
    "one of {uniform: [LOW, HIGH]}, {log_uniform: [LOW, HIGH]}, {int: [LOW, HIGH]}, "
    "{log_int: [LOW, HIGH]} and {choice: [VALUE, ...]}";

// A place in the file and the key, for messages.
struct SpaceEntry {
  std::string place, name;
};

[[noreturn]] void throw_entry(const SpaceEntry& entry, const std::string& got,
                              const std::string& expected, const std::string& hint = "") {
  throw ConfigError(
      "search.space",
      {.what = entry.place + ": " + entry.name, .got = got, .expected = expected, .hint = hint});
}

std::string short_text(const YAML::Node& node) {
  if (node.IsScalar()) return "'" + node.Scalar() + "'";
  return node.IsMap() ? "a map" : node.IsSequence() ? "a list" : "nothing";
}

double number_in(const YAML::Node& node, const SpaceEntry& entry) {
  const auto number = node.IsScalar() ? config::parse_finite(node.Scalar()) : std::nullopt;
  if (!number) throw_entry(entry, short_text(node), "a number");
  return *number;
}

void read_range(SearchDimension& dimension, const YAML::Node& node, const SpaceEntry& entry) {
  if (!node.IsSequence() || node.size() != 2)
    throw_entry(entry, node.IsSequence() ? str("a list of ", node.size()) : short_text(node),
                "a list of two numbers", "write [LOW, HIGH]");
  dimension.low = number_in(node[0], entry);
  dimension.high = number_in(node[1], entry);
  if (dimension.kind == DimensionKind::integer) dimension.step = 1;
}

void read_choices(SearchDimension& dimension, const YAML::Node& node, const SpaceEntry& entry) {
  if (!node.IsSequence()) throw_entry(entry, short_text(node), "a list of values");
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) throw_entry(entry, short_text(item) + " in the list", "words or numbers");
    dimension.choices.emplace_back(item.Scalar());
  }
}

SearchDimension dimension_in(const YAML::Node& node, const std::string& name,
                             const SpaceEntry& entry) {
  SearchDimension dimension{.name = entry.name, .place = entry.place};
  if (!node.IsMap()) {
    throw_entry(entry, short_text(node), kForms,
                node.IsSequence() ? "write {choice: [...]} for a list of values" : "");
  }
  std::optional<DimensionKind> kind;
  YAML::Node step;
  std::map<std::string, std::string> places;
  for (const auto& item : node) {
    const std::string key = item.first.IsScalar() ? item.first.Scalar() : short_text(item.first);
    const SpaceEntry here{config::yaml_location(item.first, name), entry.name + "." + key};
    const auto [first, is_new] = places.emplace(key, here.place);
    if (!is_new) config::throw_duplicate(here.place, here.name, first->second);
    if (key == "step") {
      step.reset(item.second);
      continue;
    }
    const auto found = from_name<DimensionKind>(key);
    if (!found) {
      std::vector<std::string> names(std::begin(Names<DimensionKind>::text),
                                     std::end(Names<DimensionKind>::text));
      throw_entry(here, "an unknown kind", kForms, did_you_mean(nearest(key, names)));
    }
    if (kind) throw_entry(here, "a second kind", "one kind for each parameter");
    kind = dimension.kind = *found;
    if (*kind == DimensionKind::choice) {
      read_choices(dimension, item.second, here);
    } else {
      read_range(dimension, item.second, here);
    }
  }
  if (!kind) throw_entry(entry, "no kind", kForms);
  if (!places.count("step")) return dimension;
  const SpaceEntry at_step{places["step"], entry.name + ".step"};
  if (*kind != DimensionKind::uniform && *kind != DimensionKind::integer)
    throw_entry(at_step, str("a step of ", name_of(*kind)), "no step",
                "only uniform and int have steps");
  dimension.step = number_in(step, at_step);
  if (dimension.step <= 0) throw_entry(at_step, str(dimension.step), "a number above 0");
  return dimension;
}

}  // namespace

SearchSpace read_search_space(const std::string& path) {
  const YAML::Node root = config::load_yaml_document(config::read_configuration(path), path);
  if (!root.IsMap() || root.size() == 0)
    throw ConfigError("search.space",
                      {.what = path,
                       .got = root.IsMap() ? "an empty map" : short_text(root),
                       .expected = "a map from parameter names to values, such "
                                   "as learning_rate: {log_uniform: [1e-5, 1e-3]}"});
  SearchSpace space;
  std::map<std::string, std::string> places;
  for (const auto& item : root) {
    const SpaceEntry entry{config::yaml_location(item.first, path),
                           item.first.IsScalar() ? item.first.Scalar() : short_text(item.first)};
    const auto [first, is_new] = places.emplace(entry.name, entry.place);
    if (!is_new) config::throw_duplicate(entry.place, entry.name, first->second);
    space.add(dimension_in(item.second, path, entry));
  }
  return space;
}

}  // namespace hasten
