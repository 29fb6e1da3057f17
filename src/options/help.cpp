#include "options/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "hasten/base/text.h"
#include "options/kwarg_rules.h"
#include "options/training_rules.h"
#include "options/value.h"

namespace hasten::config {
namespace {

constexpr int kIndent = 34;  // column of the explanations; longer names have their own line

// The placeholder for a flag's value.
std::string placeholder(const Option& option) {
  switch (option.kind) {
    case Kind::boolean:
      return "[BOOL]";
    case Kind::integer:
      return "INT";
    case Kind::number:
      return "NUMBER";
    case Kind::text:
      return "TEXT";
    case Kind::choice:
      return "NAME";
    case Kind::list:
      return "LIST";
    case Kind::kwargs:
      return "PAIRS";
  }
  return "";
}

std::string explanation(const Option& option) {
  std::string text = option.help;
  if (option.kind == Kind::choice) text += " One of " + join(option.choices, ", ") + ".";
  return text + " [" + to_text(option.default_value) + "]";
}

// Breaks the text at spaces into lines of at most `width` columns. The first line already has
// `used` columns of text; later lines start at column `margin`.
std::string wrapped(const std::string& text, int used, int margin, int width) {
  std::string out;
  int column = used;
  for (const std::string& word : split(text, ' ')) {
    const int length = static_cast<int>(word.size());
    if (column > margin && column + 1 + length > width) {
      out += '\n';
      out.append(static_cast<std::size_t>(margin), ' ');
      column = margin;
    } else if (column > margin) {
      out += ' ';
      ++column;
    }
    out += word;
    column += length;
  }
  return out;
}

std::string entry(const Option& option, int width) {
  std::string out = "  --" + option.name + " " + placeholder(option);
  if (static_cast<int>(out.size()) + 2 <= kIndent) {
    out.resize(kIndent, ' ');
  } else {
    out += '\n';
    out.append(kIndent, ' ');
  }
  return out + wrapped(explanation(option), kIndent, kIndent, width) + "\n";
}

std::string names_of_status(const OptionTable& table, Status status, int width) {
  std::vector<std::string> names;
  for (const Option& option : table.options()) {
    if (option.status == status) names.push_back(option.name);
  }
  return names.empty() ? "" : "  " + wrapped(join(names, " "), 2, 2, width) + "\n";
}

// --- The reference page

std::string code(const std::string& text) { return "`" + text + "`"; }

// Escapes vertical bars, which would end the cell.
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
  if (!option.choices_unimplemented.empty())
    text += " Not yet: " + join(option.choices_unimplemented, ", ") + ".";
  std::vector<std::string> refused;
  for (const auto& [word, hint] : option.choices_refused) refused.push_back(word);
  if (!refused.empty()) text += " Not supported: " + join(refused, ", ") + ".";
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
  if (rule.is_text) return "text";
  if (!rule.choices.empty()) return join(rule.choices, ", ");
  const std::string range = str(rule.above ? " > " : " ≥ ", rule.minimum);
  const std::string limit = rule.below ? ", < " + str(*rule.below) : "";
  return (rule.whole ? "whole number" : "number") + range + limit;
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

// --- Values with their origins

// A boolean in a map becomes the text true or false.
std::string yaml_scalar_of(const KwargValue& value) {
  const std::string text = value.text();
  const bool is_bare = value.is_number() || text == "true" || text == "false";
  return is_bare ? text : yaml_scalar(text);
}

struct YamlWriter {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return str(value); }
  std::string operator()(const std::string& value) const { return yaml_scalar(value); }
  std::string operator()(const std::vector<std::string>& value) const {
    std::vector<std::string> items;
    for (const std::string& item : value) items.push_back(yaml_scalar(item));
    return str('[', join(items, ", "), ']');
  }
  std::string operator()(const Kwargs& value) const {
    std::vector<std::string> items;
    for (const auto& [name, item] : value.items())
      items.push_back(yaml_scalar(name) + ": " + yaml_scalar_of(item));
    return str('{', join(items, ", "), '}');
  }
};

std::string yaml_line(const ResolvedValue& value) {
  const bool unset = to_text(value.value) == "unset" && to_text(value.default_value) == "unset";
  const std::string text = unset ? "null" : std::visit(YamlWriter{}, value.value);
  return value.name + ": " + text;
}

}  // namespace

int terminal_width() {
  winsize size{};
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return 100;
  return std::max<int>(60, size.ws_col);
}

std::string help_text(const OptionTable& table, int width) {
  std::string out, group;
  for (const Option& option : table.options()) {
    if (option.status != Status::supported) continue;
    if (option.group != group) {
      group = option.group;
      out += "\n" + group + "\n";
    }
    out += entry(option, width);
  }
  const std::string later = names_of_status(table, Status::unimplemented, width);
  if (!later.empty()) out += "\nKnown, not supported yet\n" + later;
  const std::string refused = names_of_status(table, Status::refused, width);
  if (!refused.empty()) out += "\nKnown, not supported\n" + refused;
  const std::string meaningless = names_of_status(table, Status::no_effect, width);
  if (!meaningless.empty()) out += "\nKnown, ignored with a notice\n" + meaningless;
  return out;
}

std::vector<ResolvedValue> snapshot(const OptionTable& table) {
  std::vector<ResolvedValue> values;
  for (const Option& option : table.options()) {
    if (!option.has_field || option.status != Status::supported) continue;
    values.push_back({option.name, option.get(), option.origin, option.default_value});
  }
  return values;
}

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
  out += kwargs("Keys of activation_checkpointing_kwargs", "argument", recomputation_rules());
  out += kwargs("Keys of accelerator_config", "argument", sharing_rules());
  out +=
      "\n`adamw_torch`, `adamw_torch_fused`, `lion_32bit` and `adamax` take none. `adafactor` uses "
      "learning_rate, not\na rate of its own.\n";
  out += of_status(
      table, Status::unimplemented, "Known, not supported yet",
      "Setting one to a value other than its default is the error `config.not-supported`.");
  out += of_status(
      table, Status::refused, "Known, not supported",
      "Setting one to a value other than its default is the error `config.not-supported`.");
  out += of_status(table, Status::no_effect, "Known, without effect",
                   "Setting one prints a notice, and the value is ignored.");
  return out;
}

std::string resolved_text(const std::vector<ResolvedValue>& values, ValueFilter filter) {
  std::vector<std::pair<std::string, std::string>> lines;
  std::size_t widest = 0;
  for (const ResolvedValue& value : values) {
    if (filter == ValueFilter::changed && value.value == value.default_value) continue;
    lines.emplace_back(yaml_line(value), to_text(value.origin));
    widest = std::max(widest, std::min<std::size_t>(lines.back().first.size(), 48));
  }
  std::string out;
  for (auto& [line, origin] : lines) {
    if (line.size() < widest) line.resize(widest, ' ');
    out += line + "  # " + origin + "\n";
  }
  return out;
}

}  // namespace hasten::config
