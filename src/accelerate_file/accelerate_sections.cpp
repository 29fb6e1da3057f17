#include "accelerate_file/accelerate_sections.h"

#include <algorithm>
#include <map>

#include "accelerate_file/accelerate_names.h"
#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "options/value.h"

namespace hasten::config {
namespace {

const Kwargs kNoKwargs;

const Kwargs& kwargs_of(const Assignment& assignment) {
  const auto* kwargs = std::get_if<Kwargs>(&assignment.value);
  return kwargs ? *kwargs : kNoKwargs;
}

const std::string& place_of(const Assignment& assignment, const std::string& key) {
  const auto found = assignment.places.find(key);
  return found == assignment.places.end() ? assignment.origin.where : found->second;
}

std::vector<std::string> names_inside(const Assignment& assignment) {
  std::vector<std::string> names;
  for (const auto& [name, value] : kwargs_of(assignment).items()) names.push_back(name);
  return names;
}

std::string hint_for(const Section& section, const std::string& key) {
  const std::string word = lower(key);
  if (!section.prefix_may_be_missing && !section.full_name(section.prefix + word).empty())
    return did_you_mean(section.prefix + word);
  if (const auto near = nearest(word, section.names)) return did_you_mean(near);
  // The name may both lack its prefix and be misspelt.
  if (const auto near = nearest(section.prefix + word, section.names)) return did_you_mean(near);
  if (const Section* other = find_section_with_key(word)) return "it belongs in " + other->name;
  return "the keys of " + section.name + " are " + join(section.names, ", ");
}

void check_names(const Section& section, const Assignment& assignment) {
  const bool map = std::holds_alternative<Kwargs>(assignment.value);
  if (!map && is_set(assignment.value)) {
    throw ConfigError("config.bad-value",
                      {.what = key_with_location(assignment.origin, section.name),
                       .got = "'" + to_text(assignment.value) + "'",
                       .expected = "a map with keys such as " + section.names.front()});
  }
  for (const auto& [key, value] : kwargs_of(assignment).items()) {
    if (!section.full_name(key).empty()) continue;
    throw ConfigError(
        "config.unknown-key",
        {.what = str(place_of(assignment, key), ": unknown key ", key, " in ", section.name),
         .hint = hint_for(section, key)});
  }
}

[[noreturn]] void throw_unknown_key(const OptionTable& table, const Assignment& assignment) {
  if (const Section* section = find_section_with_key(lower(assignment.key))) {
    throw ConfigError("config.unknown-key",
                      {.what = assignment.origin.where + ": unknown key " + assignment.key,
                       .hint = "it belongs in " + section->name});
  }
  std::vector<std::string> names = table.names();
  const std::vector<std::string> more = accelerate_keys();
  names.insert(names.end(), more.begin(), more.end());
  const auto near = nearest(lower(assignment.key), names);
  if (!near) throw_unknown(table, assignment.key, assignment.origin);
  throw ConfigError("config.unknown-key",
                    {.what = assignment.origin.where + ": unknown key " + assignment.key,
                     .hint = did_you_mean(near)});
}

// Processes the files one after the other and takes out the keys that are not options. Later files
// override earlier ones.
class AccelerateKeyHandler {
 public:
  AccelerateKeyHandler(const OptionTable& table, std::vector<std::string>& notices)
      : table_(table), notices_(notices) {}

  void take(std::vector<Assignment>& file) {
    std::vector<Assignment> options;
    for (const Assignment& assignment : file) {
      if (take(assignment)) continue;
      if (assignment.key == "fp16" && !table_.find("fp16")) {
        if (auto precision = precision_of(assignment, file)) options.push_back(*precision);
        continue;
      }
      if (!table_.find(assignment.key)) throw_unknown_key(table_, assignment);
      if (assignment.key == "distributed_type") tpus_ = is_tpu_type(to_text(assignment.value));
      options.push_back(assignment);
    }
    file = std::move(options);
  }

  void check_keys() {
    check_environment();
    for (const Section& section : sections()) check_keys(section);
    report_empty();
    for (const KeyGroup& group : key_groups()) check_keys(group);
  }

 private:
  bool take(const Assignment& assignment) {
    const Section* const section = find_section(assignment.key);
    if (section) check_names(*section, assignment);
    if (!section && !find_group(assignment.key) && assignment.key != "compute_environment")
      return false;
    accelerate_keys_[assignment.key] = assignment;
    return true;
  }

  // Returns the assignment that replaces fp16, a key of Accelerate's first files. Returns nothing
  // if fp16 has no effect.
  std::optional<Assignment> precision_of(const Assignment& fp16,
                                         const std::vector<Assignment>& file) {
    const std::string text = to_text(fp16.value);
    const auto flag = is_set(fp16.value) ? parse_bool(text) : false;
    if (!flag) {
      throw ConfigError("config.bad-value", {.what = key_with_location(fp16.origin, "fp16"),
                                             .got = "'" + text + "'",
                                             .expected = "true or false"});
    }
    const bool newer = std::any_of(file.begin(), file.end(), [](const Assignment& assignment) {
      return assignment.key == "mixed_precision";
    });
    if (newer || !*flag) return std::nullopt;
    notices_.push_back(key_with_location(fp16.origin, "fp16") +
                       " is read as mixed_precision: fp16");
    return Assignment{"mixed_precision", std::string("fp16"), fp16.origin, {}};
  }

  const Assignment* find_key(const std::string& key) const {
    const auto found = accelerate_keys_.find(key);
    return found == accelerate_keys_.end() ? nullptr : &found->second;
  }

  void check_environment() const {
    const Assignment* const assignment = find_key("compute_environment");
    if (!assignment || !is_set(assignment->value)) return;
    const std::string word = to_text(assignment->value);
    if (word == "LOCAL_MACHINE") return;
    const std::string where = key_with_location(assignment->origin, "compute_environment");
    if (word == "AMAZON_SAGEMAKER")
      throw_not_supported(where + " " + word,
                          "hasten launch starts processes on this machine only");
    throw ConfigError(
        "config.bad-value",
        {.what = where, .got = "'" + word + "'", .expected = "LOCAL_MACHINE or AMAZON_SAGEMAKER"});
  }

  void check_keys(const Section& section) {
    const Assignment* const assignment = find_key(section.name);
    if (!assignment) return;
    if (!is_set(assignment->value)) {
      empty_.push_back(assignment);
      return;
    }
    if (section.name == "parallelism_config") reject_parallel_sizes(*assignment);
    if (section.name == "mpirun_config") reject_hostfile(*assignment);
    notices_.push_back(str(key_with_location(assignment->origin, section.name), " (",
                           join(names_inside(*assignment), ", "),
                           ") is ignored: ", section.reason));
  }

  void reject_parallel_sizes(const Assignment& assignment) const {
    for (const auto& [key, value] : kwargs_of(assignment).items()) {
      if (!ends_with(key, "_size") || value.text() == "null") continue;
      const auto size = parse_integer(value.text());
      const std::string where = place_of(assignment, key) + ": " + key;
      if (!size || *size < 1) {
        throw ConfigError("config.bad-value", {.what = where,
                                               .got = "'" + value.text() + "'",
                                               .expected = "a whole number of at least 1"});
      }
      if (*size > 1)
        throw_not_supported(str(where, " ", *size), "each process holds the whole model");
    }
  }

  void reject_hostfile(const Assignment& assignment) const {
    const std::string key = "mpirun_hostfile";
    const std::string hosts = kwargs_of(assignment).text(key, "");
    if (hosts.empty() || hosts == "null") return;
    throw_not_supported(place_of(assignment, key) + ": " + key,
                        "start the program with mpirun directly");
  }

  void report_empty() {
    if (empty_.empty()) return;
    std::vector<std::string> names;
    for (const Assignment* assignment : empty_) names.push_back(assignment->key);
    notices_.push_back(
        str(empty_.front()->origin.where, ": ", join(names, ", "),
            names.size() == 1 ? " is ignored: it is empty" : " are ignored: they are empty"));
  }

  // In a file for TPUs, these keys are for hasten tpu-config. The keys listed here are the
  // exceptions.
  void check_pod_keys() {
    for (const char* name : {"tpu_use_cluster", "tpu_vm"}) {
      const Assignment* const assignment = find_key(name);
      if (assignment && is_set(assignment->value))
        throw_not_supported(key_with_location(assignment->origin, name), kOverSshReason);
    }
    const Assignment* const sudo = find_key("tpu_use_sudo");
    if (sudo && is_set(sudo->value))
      notices_.push_back(key_with_location(sudo->origin, sudo->key) +
                         " is ignored: " + kSudoReason);
  }

  void check_keys(const KeyGroup& group) {
    if (tpus_ && group.reason == kTpuReason) return check_pod_keys();
    std::vector<std::string> names;
    std::string where;
    for (const std::string& name : group.names) {
      const Assignment* const assignment = find_key(name);
      if (!assignment || !is_set(assignment->value)) continue;
      if (name == "main_training_function" && to_text(assignment->value) == "main") continue;
      if (names.empty()) where = assignment->origin.where;
      names.push_back(name);
    }
    if (names.empty()) return;
    notices_.push_back(str(where, ": ", join(names, ", "), names.size() == 1 ? " is" : " are",
                           " ignored: ", group.reason));
  }

  const OptionTable& table_;
  std::vector<std::string>& notices_;
  std::map<std::string, Assignment> accelerate_keys_;
  std::vector<const Assignment*> empty_;
  bool tpus_ = false;  // true if distributed_type means TPUs
};

}  // namespace

bool is_set(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  // accelerate config writes an empty list as a list of one empty text.
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    return std::any_of(list->begin(), list->end(), [](const auto& item) { return !item.empty(); });
  if (const auto* kwargs = std::get_if<Kwargs>(&value)) return !kwargs->empty();
  if (const auto* text = std::get_if<std::string>(&value)) {
    const std::string word = lower(trim(*text));
    return !word.empty() && word != "false" && word != "no" && word != "none" && word != "null";
  }
  return !std::holds_alternative<std::monostate>(value);
}

void check_accelerate_keys(const OptionTable& table, const std::vector<Assignment>& file) {
  const std::vector<std::string> others = accelerate_keys();
  for (const Assignment& assignment : file) {
    if (const Section* section = find_section(assignment.key)) {
      check_names(*section, assignment);
    } else if (!table.find(assignment.key) &&
               std::find(others.begin(), others.end(), assignment.key) == others.end()) {
      throw_unknown_key(table, assignment);
    }
  }
}

void remove_accelerate_keys(const OptionTable& table, std::vector<std::vector<Assignment>>& files,
                            std::vector<std::string>& notices) {
  AccelerateKeyHandler handler(table, notices);
  for (std::vector<Assignment>& file : files) handler.take(file);
  handler.check_keys();
}

}  // namespace hasten::config
