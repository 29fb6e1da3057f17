#include "options/common_sources.h"

#include "options/value.h"

namespace hasten::config {
namespace {

std::vector<std::string> files_of(const std::vector<Assignment>& assignments) {
  std::vector<std::string> files;
  for (const Assignment& assignment : assignments) {
    if (assignment.key != "config_file") continue;
    if (const auto* list = std::get_if<std::vector<std::string>>(&assignment.value)) {
      files.insert(files.end(), list->begin(), list->end());
    } else if (const auto* text = std::get_if<std::string>(&assignment.value)) {
      files.push_back(*text);
    }
  }
  return files;
}

}  // namespace

const std::vector<std::string>& internal_variables() {
  static const std::vector<std::string> names = {"HASTEN_CACHE",
                                                 "HASTEN_LIBTORCH",
                                                 "HASTEN_MINILM",
                                                 "HASTEN_LISTEN",
                                                 "HASTEN_LISTEN_STEPS",
                                                 "HASTEN_DRY_RUN",
                                                 "HASTEN_JOB_ID",
                                                 "HASTEN_STORE",
                                                 "HASTEN_JOB_TOKEN",
                                                 "HASTEN_HOME",
                                                 "HASTEN_NO_CONFIG_FILE",
                                                 "HASTEN_WATCHDOG",
                                                 "HASTEN_SHARED_MEMORY",
                                                 "HASTEN_ENCRYPT",
                                                 "HASTEN_LISTEN_BESIDE",
                                                 "HASTEN_LIBTPU",
                                                 "HASTEN_DRY_TPU_COMPILER",
                                                 "HASTEN_DRY_TPU_TOPOLOGY",
                                                 "HASTEN_PROCESS_GROUP_BACKEND"};
  return names;
}

std::vector<std::string> config_files(const std::vector<Assignment>& flags,
                                      const std::vector<Assignment>& variables) {
  auto files = files_of(flags);
  return files.empty() ? files_of(variables) : files;
}

bool takes_word(const Option* option, const std::string& word) {
  if (option != nullptr && option->kind != Kind::boolean) return true;
  return parse_bool(word) || (option != nullptr && option->optional && detail::means_unset(word));
}

}  // namespace hasten::config
