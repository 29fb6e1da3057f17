// `hasten config update`: keeps every key that launch would read or refuse, under the name that
// launch reads. It drops every key that launch would ignore, and reports it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "accelerate_file/accelerate_names.h"
#include "accelerate_file/accelerate_sections.h"
#include "accelerate_file/launch_file.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "options/value.h"
#include "options/yaml_document.h"

namespace hasten::config {
namespace {

// Returns the value that YAML 1.1 reads from a plain word.
Document value_of(const std::string& word) {
  const std::string plain = lower(word);
  if (plain.empty() || plain == "~" || plain == "null") return nullptr;
  if (const auto flag = parse_yaml_bool(word)) return *flag;
  if (const auto number = parse_integer(word)) return *number;
  if (const auto number = parse_finite(word)) return *number;
  return word;
}

// Converts the values of a file to a document. Counts the values, because aliases can make a short
// file expand without limit.
class DocumentReader {
 public:
  explicit DocumentReader(const std::string& path) : path_(path) {}

  Document read(const YAML::Node& node, bool words) {
    if (++values_ > kMaxValues) {
      throw ConfigError("config.syntax", {.what = str(path_, ':', node.Mark().line + 1),
                                          .got = str("more than ", kMaxValues, " values")});
    }
    if (node.IsNull()) return nullptr;
    if (node.IsScalar()) {
      const bool in_quotes = node.Tag() == "!";
      return in_quotes || words ? Document(node.Scalar()) : value_of(node.Scalar());
    }
    if (node.IsSequence()) {
      Document list = Document::array();
      for (const YAML::Node& item : node) list.push_back(read(item, /*words=*/false));
      return list;
    }
    Document map = Document::object();
    for (const auto& entry : node) map[entry.first.Scalar()] = read(entry.second, /*words=*/false);
    return map;
  }

 private:
  static constexpr int kMaxValues = 1000;
  const std::string& path_;
  int values_ = 0;
};

// Reads the text of a file with known keys. Scalars get the type that YAML 1.1 gives them, but
// plain words of the keys in `texts` stay words, so that `mixed_precision: no` is not false.
Document read_document(const std::string& text, const std::string& path,
                       const std::vector<Assignment>& keys, const std::vector<std::string>& texts) {
  if (ends_with(path, ".json")) return Document::parse(text);  // read_json() has checked the text
  const YAML::Node root = load_yaml_document(text, path);
  Document document = Document::object();
  DocumentReader reader(path);
  for (const Assignment& key : keys) {
    const bool words = std::find(texts.begin(), texts.end(), key.key) != texts.end();
    document[key.key] = reader.read(root[key.key], words);
  }
  return document;
}

// Returns the keys of launch that take words which YAML 1.1 would read as something else.
std::vector<std::string> text_keys(const OptionTable& table) {
  std::vector<std::string> keys = {"compute_environment"};
  for (const Option& option : table.options()) {
    if (option.has_field && (option.kind == Kind::text || option.kind == Kind::choice))
      keys.push_back(option.name);
  }
  return keys;
}

std::string text_of(const Document& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Throws ConfigError for a SageMaker file, because nothing in it applies to this machine.
void reject_sagemaker(const std::vector<Assignment>& keys) {
  for (const Assignment& key : keys) {
    if (key.key == "compute_environment" && to_text(key.value) == "AMAZON_SAGEMAKER")
      throw_not_supported(key_with_location(key.origin, key.key) + " AMAZON_SAGEMAKER",
                          "hasten config default writes a file for this machine");
  }
}

class LaunchFileUpdater {
 public:
  // `table` describes the options of launch, and outlives the updater.
  LaunchFileUpdater(const OptionTable& table, Document before, bool json)
      : table_(table), before_(std::move(before)), json_(json) {}

  UpdatedFile run() {
    for (const auto& [key, value] : before_.items()) take(key, value);
    complete();
    return {document_text(after_, json_), std::move(changes_)};
  }

 private:
  void drop(const std::string& key, const std::string& why) {
    changes_.push_back(key + " is dropped: " + why);
  }

  void take(const std::string& key, const Document& value) {
    if (const Section* section = find_section(key)) return take(*section, value);
    if (is_for_tpus(key)) return take_tpu_key(key, value);
    if (key == "distributed_type" && is_tpu_type(text_of(value))) return take_type(value);
    if (const KeyGroup* group = find_group(key)) return drop(key, "it is " + group->reason);
    if (key == "fp16") return take_fp16(value);
    if (value.is_null()) return drop(key, "it has no value");
    after_[key] = to_option_type(key, value);
    if (after_[key] != value)
      changes_.push_back(str(key, ": '", text_of(value), "' is now ", text_of(after_[key])));
  }

  static bool is_for_tpus(const std::string& key) {
    const KeyGroup* const group = find_group(key);
    return key == "downcast_bf16" || key == "tpu_env" || (group && group->reason == kTpuReason);
  }

  void take_tpu_key(const std::string& key, const Document& value) {
    const bool tpus =
        before_.contains("distributed_type") && is_tpu_type(text_of(before_["distributed_type"]));
    if (!tpus) return drop(key, str("it is ", kTpuReason));
    if (key == "tpu_use_sudo") return drop(key, kSudoReason);
    if (!has_content(value)) return drop(key, "it has no value");
    after_[key] = to_option_type(key, value);
    if (after_[key] != value)
      changes_.push_back(str(key, ": '", text_of(value), "' is now ", text_of(after_[key])));
  }

  static bool has_content(const Document& value) {
    if (value.is_array())
      return std::any_of(value.begin(), value.end(), [](const Document& item) {
        return !item.is_string() || !item.get<std::string>().empty();
      });
    return !value.is_null() &&
           is_set(value.is_boolean() ? Value(value.get<bool>()) : Value(text_of(value)));
  }

  void take_type(const Document& value) {
    after_["distributed_type"] = "XLA";
    if (after_["distributed_type"] != value)
      changes_.push_back(str("distributed_type: ", text_of(value), " is now XLA"));
  }

  // `use_cpu: 'no'` is false for launch but true for Accelerate, so it becomes a boolean.
  Document to_option_type(const std::string& key, const Document& value) const {
    const Option* const option = table_.find(key);
    if (option == nullptr || !value.is_string()) return value;
    if (option->kind == Kind::boolean) {
      if (const auto flag = parse_bool(text_of(value))) return *flag;
    }
    if (option->kind == Kind::integer) {
      if (const auto number = parse_integer(text_of(value))) return *number;
    }
    return value;
  }

  void take_fp16(const Document& value) {
    if (before_.contains("mixed_precision")) return drop("fp16", "mixed_precision replaces it");
    after_["mixed_precision"] = parse_bool(text_of(value)).value_or(false) ? "fp16" : "no";
    changes_.push_back("fp16 is now mixed_precision: " + text_of(after_["mixed_precision"]));
  }

  void take(const Section& section, const Document& value) {
    if (!value.is_object() || value.empty()) return drop(section.name, "it is empty");
    if (!is_read(section, value)) return drop(section.name, section.reason);
    Document inside = Document::object();
    for (const auto& [key, item] : value.items()) {
      const std::string name = section.full_name(key);
      if (name != key)
        changes_.push_back(
            str(section.name, ": ", key, " is now ", name, ", the name that launch reads"));
      inside[name] = item;
    }
    after_[section.name] = inside;
  }

  bool is_read(const Section& section, const Document& value) const {
    const auto has_value = [&](const char* key, const std::string& word) {
      return before_.contains(key) && text_of(before_[key]) == word;
    };
    if (!section.engine.empty()) return has_value("distributed_type", section.engine);
    if (section.name == "fp8_config") return has_value("mixed_precision", "fp8");
    if (section.name == "mpirun_config")
      return value.contains("mpirun_hostfile") && !value["mpirun_hostfile"].is_null();
    if (section.name != "parallelism_config") return false;
    return std::any_of(value.items().begin(), value.items().end(), [](const auto& item) {
      return ends_with(item.key(), "_size") && !item.value().is_null() &&
             item.value() != Document(1);
    });
  }

  // Adds the keys that Accelerate requires in every file.
  void complete() {
    add("compute_environment", "LOCAL_MACHINE");
    const bool cpu = after_.contains("use_cpu") && after_["use_cpu"] == Document(true);
    const auto processes = after_.find("num_processes");
    const bool several = processes != after_.end() && processes->is_number_integer() &&
                         processes->get<std::int64_t>() > 1;
    add("distributed_type", !several ? "NO" : cpu ? "MULTI_CPU" : "MULTI_GPU");
    add("mixed_precision", "no");
  }

  void add(const char* key, const Document& value) {
    if (after_.contains(key)) return;
    after_[key] = value;
    changes_.push_back(str(key, ": ", text_of(value), " is added"));
  }

  const OptionTable& table_;
  const Document before_;
  const bool json_;
  Document after_ = Document::object();
  std::vector<std::string> changes_;
};

}  // namespace

UpdatedFile updated_launch_file(const std::string& text, const std::string& path) {
  LaunchOptions options;
  OptionTable table;
  describe(table, options);
  const bool json = ends_with(path, ".json");
  // Reports the same errors as launch for a file that is not a flat map, repeats a key or has a
  // syntax error. Misspelt names are errors, so none of them reaches the new file.
  const auto keys = json ? read_json(text, path) : read_yaml(text, path);
  check_accelerate_keys(table, keys);
  reject_sagemaker(keys);
  return LaunchFileUpdater(table, read_document(text, path, keys, text_keys(table)), json).run();
}

}  // namespace hasten::config
