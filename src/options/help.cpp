#include "options/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "hasten/base/text.h"

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

// Breaks the text at spaces into lines of at most `width` columns. `used` columns of the first line
// are already taken; later lines start at column `margin`.
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
  const std::string later = names_of_status(table, Status::not_yet, width);
  if (!later.empty()) out += "\nKnown, not supported yet\n" + later;
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

}  // namespace hasten::config
