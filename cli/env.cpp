// `hasten env`: prints what a problem report should say about this machine.
#include <cstdio>

#include "commands/config_options.h"
#include "core_commands.h"
#include "env_facts.h"
#include "hasten/base/text.h"
#include "options/help.h"

namespace hasten::cli {
namespace {

std::string text_of(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> items;
  for (const auto& item : value) items.push_back(text_of(item));
  return items.empty() ? "none" : join(items, ", ");
}

std::string lines_of(const nlohmann::ordered_json& facts) {
  std::string out;
  for (const auto& [name, value] : facts.items()) {
    out += "- " + name + ":";
    if (!value.is_object()) {
      out += " " + text_of(value) + "\n";
      continue;
    }
    out += value.empty() ? " none\n" : "\n";
    for (const auto& [key, item] : value.items())
      out += "    - " + key + ": " + text_of(item) + "\n";
  }
  return out;
}

}  // namespace

int environment(int argc, char** argv) {
  const EnvCommand run = parse_env({argv + 2, argv + argc}, config::whole_environment());
  if (run.help) {
    std::fputs(env_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  const nlohmann::ordered_json facts = env_facts(run.path, !run.config_file.empty());
  using Json = nlohmann::ordered_json;
  const std::string text =
      run.json ? facts.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
               : "Copy the lines below into a problem report.\n\n" + lines_of(facts);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace hasten::cli
