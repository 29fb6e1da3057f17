#include <algorithm>

#include "hasten/base/text.h"
#include "options/help.h"
#include "options/kwargs_rules.h"

namespace hasten::config {
namespace {

std::string code(const std::string& text) { return "`" + text + "`"; }

// Escapes bars, which would end the cell.
std::string cell(const std::string& text) { return join(split(text, '|'), "\\|"); }

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& text : cells) out.append(" ").append(cell(text)).append(" |");
  return out + "\n";
}

std::string head(const std::vector<std::string>& titles) {
  return row(titles) + row(std::vector<std::string>(titles.size(), "---"));
}

std::string meaning(const Option& option) {
  std::string text = option.help;
  if (!option.choices_not_yet.empty())
    text += " Not yet: " + join(option.choices_not_yet, ", ") + ".";
  for (const FormerName& former : option.former_names)
    text += " Former name: " + code(former.name) + ".";
  return std::string(trim(text));
}

std::string supported(const OptionTable& table) {
  std::string out, group;
  for (const Option& option : table.options()) {
    if (option.status != Status::supported) continue;
    if (option.group != group) {
      group = option.group;
      out += "\n## " + group + "\n\n" + head({"Name", "Default", "Takes", "Meaning"});
    }
    out +=
        row({code(option.name), to_text(option.default_value), option.expected(), meaning(option)});
  }
  return out;
}

std::string of_status(const OptionTable& table, Status status, const std::string& title,
                      const std::string& text) {
  std::string out = "\n## " + title + "\n\n" + text + "\n\n" +
                    head({"Name", "Default", "Reason, or what to use instead"});
  for (const Option& option : table.options()) {
    if (option.status != status) continue;
    const std::string what = meaning(option);
    out += row({code(option.name), to_text(option.default_value),
                option.reason + (what.empty() ? "" : ". " + what)});
  }
  return out;
}

std::string takes(const KwargRule& rule) {
  if (!rule.words.empty()) return join(rule.words, ", ");
  return (rule.whole ? "whole number" : "number") + std::string(" ≥ ") + str(rule.least);
}

std::string kwargs(const std::string& title, const std::string& owner,
                   const std::vector<KwargRule>& rules) {
  std::string out = "\n## " + title + "\n\n" + head({owner, "Key", "Default", "Takes", "Meaning"});
  for (const KwargRule& rule : rules) {
    out += row({std::string(rule.owner), code(std::string(rule.name)),
                std::string(rule.default_text), takes(rule), std::string(rule.help)});
  }
  return out;
}

}  // namespace

std::string reference_text(const OptionTable& table) {
  std::string out =
      "# Options of `hasten train` and of `TrainingArguments`\n\n"
      "<!-- Written by `hasten train --help markdown`; a test fails if it is out of date. -->\n\n"
      "Every option is a flag (`--name value`), a key of a YAML or JSON file given as "
      "`--config_file`, and an\n"
      "environment variable (`HASTEN_NAME`). Flags override the environment, the environment "
      "overrides files, and\n"
      "files override the defaults. Flags may be written with `-` instead of `_`. A true-or-false "
      "option without a\n"
      "value is true, and `--no_name` is false. `null` in a file keeps the default. `hasten train "
      "--print_config\n"
      "...` prints every value and where it came from, as a file for `--config_file`.\n\n"
      "In C++ the groups from \"Actions and output\" on are the fields of "
      "`hasten::TrainingArguments`.\n";
  out += supported(table);
  out += kwargs("Keys of lr_scheduler_kwargs", "lr_scheduler_type", schedule_rules());
  out += "\n`linear`, `constant` and `constant_with_warmup` take none.\n";
  out += kwargs("Keys of optim_args", "optim", optimizer_rules());
  out += "\n`adamw_torch` and `adamw_torch_fused` take none.\n";
  out += of_status(
      table, Status::not_yet, "Known, not supported yet",
      "Setting one to a value other than its default is the error `config.not-supported`.");
  out += of_status(table, Status::no_effect, "Known, without effect",
                   "Setting one prints a notice, and the value is ignored.");
  return out;
}

}  // namespace hasten::config
