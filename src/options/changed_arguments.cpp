#include "options/changed_arguments.h"

#include <nlohmann/json.hpp>

namespace hasten {

TrainingArguments with_changes(const TrainingArguments& arguments, const std::string& changes) {
  using Json = nlohmann::ordered_json;
  Json all = Json::parse(to_json(arguments));
  all.update(Json::parse(changes));
  return training_arguments_from_json(all.dump(), "changed training arguments");
}

}  // namespace hasten
