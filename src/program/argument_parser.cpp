#include "hasten/program/argument_parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>
#include <variant>

#include "hasten/base/error.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "options/help.h"
#include "options/sources.h"
#include "options/training_rules.h"
#include "program/exception_report.h"

namespace hasten {
namespace {

constexpr const char* kOwnGroup = "Program";

bool is_option_name(const std::string& name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto fits = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && is_letter(name.front()) && std::all_of(name.begin(), name.end(), fits);
}

std::string name_of_program(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return "program";
  return std::filesystem::path(arguments.front()).filename().string();
}

[[noreturn]] void throw_second_option(const std::string& name) {
  throw UsageError("config.option-name", {.what = "the name of an option",
                                          .got = "'" + name + "' for a second time",
                                          .expected = "a name for each option"});
}

}  // namespace

struct ArgumentParser::Impl {
  template <class T>
  config::Option& add(const std::string& name, T& variable, const std::string& help) {
    if (!is_option_name(name)) {
      throw UsageError("config.option-name",
                       {.what = "the name of an option",
                        .got = "'" + name + "'",
                        .expected = "small letters, digits and _, with a letter first"});
    }
    if (table.find(name) != nullptr) throw_second_option(name);
    return config::add_variable<T>(table, name, kOwnGroup, help, variable, variable);
  }

  // Returns all values with their origins, without those that only concern the call.
  std::string values() const {
    std::vector<config::ResolvedValue> all = config::snapshot(table);
    std::erase_if(all, [](const config::ResolvedValue& value) {
      return value.name == "config_file" || value.name == "print_config";
    });
    return config::resolved_text(all, config::ValueFilter::all);
  }

  std::string description;
  std::vector<std::string> config_file;
  bool print_config = false;
  config::OptionTable table;
  TrainingArguments* arguments = nullptr;  // a second one would have options of the same names
  std::vector<std::string> required;
};

ArgumentParser::ArgumentParser(std::string description) : impl_(std::make_unique<Impl>()) {
  impl_->description = std::move(description);
  config::add_variable<std::vector<std::string>>(
      impl_->table, "config_file", "Command",
      "Read options from this YAML or JSON file. If several files are named, later ones override "
      "earlier ones.",
      impl_->config_file, {});
  config::add_variable<bool>(impl_->table, "print_config", "Command",
                             "Print every value and where it came from, then stop.",
                             impl_->print_config, false);
}

ArgumentParser::~ArgumentParser() = default;

ArgumentParser& ArgumentParser::add(const std::string& name, bool& variable,
                                    const std::string& help) {
  impl_->add(name, variable, help);
  return *this;
}

ArgumentParser& ArgumentParser::add(const std::string& name, int& variable,
                                    const std::string& help) {
  // The options have one integer type, whose values an int may not be able to hold.
  const auto wide = std::make_shared<std::int64_t>(variable);
  config::Option& option = impl_->add(name, *wide, help);
  option.at_least(std::numeric_limits<int>::min()).at_most(std::numeric_limits<int>::max());
  option.get = [wide] { return config::Value(*wide); };
  option.set = [wide, &variable](const config::Value& value) {
    if (!config::detail::assign(*wide, value)) return false;
    variable = static_cast<int>(*wide);
    return true;
  };
  return *this;
}

ArgumentParser& ArgumentParser::add(const std::string& name, std::int64_t& variable,
                                    const std::string& help) {
  impl_->add(name, variable, help);
  return *this;
}

ArgumentParser& ArgumentParser::add(const std::string& name, double& variable,
                                    const std::string& help) {
  impl_->add(name, variable, help);
  return *this;
}

ArgumentParser& ArgumentParser::add(const std::string& name, std::string& variable,
                                    const std::string& help) {
  impl_->add(name, variable, help);
  return *this;
}

ArgumentParser& ArgumentParser::add(const std::string& name, std::vector<std::string>& variable,
                                    const std::string& help) {
  impl_->add(name, variable, help);
  return *this;
}

ArgumentParser& ArgumentParser::add(const std::string& name, std::optional<std::int64_t>& variable,
                                    const std::string& help) {
  impl_->add(name, variable, help);
  return *this;
}

ArgumentParser& ArgumentParser::add(const std::string& name, std::optional<double>& variable,
                                    const std::string& help) {
  impl_->add(name, variable, help);
  return *this;
}

ArgumentParser& ArgumentParser::add_choice(const std::string& name, std::vector<std::string> words,
                                           std::function<std::string()> get,
                                           std::function<void(const std::string& word)> set,
                                           const std::string& help) {
  const auto word = std::make_shared<std::string>(get());
  config::Option& option = impl_->add(name, *word, help);
  option.kind = config::Kind::choice;
  option.choices = std::move(words);
  option.get = [get] { return config::Value(get()); };
  option.set = [word, set, choices = option.choices](const config::Value& value) {
    std::string given;
    if (!config::detail::assign(given, value)) return false;
    if (std::find(choices.begin(), choices.end(), given) == choices.end()) return false;
    *word = given;
    set(given);
    return true;
  };
  return *this;
}

ArgumentParser& ArgumentParser::add(TrainingArguments& arguments) {
  config::OptionTable added;
  describe(added, arguments);
  for (const std::string& name : added.names()) {
    if (impl_->table.find(name) != nullptr) throw_second_option(name);
  }
  for (config::Option& option : added.options()) {
    option.default_value = option.get();
    impl_->table.options().push_back(std::move(option));
  }
  impl_->arguments = &arguments;
  return *this;
}

ArgumentParser& ArgumentParser::require(const std::string& name) {
  if (impl_->table.find(name) == nullptr) {
    throw UsageError("config.option-name", {.what = "require(\"" + name + "\")",
                                            .expected = "the name of an option that was added"});
  }
  impl_->required.push_back(name);
  return *this;
}

ParsedArguments ArgumentParser::parse(const std::vector<std::string>& arguments,
                                      const config::Environment& environment) {
  ParsedArguments parsed;
  if (config::asks_for_help(arguments)) {
    parsed.text = help(name_of_program(arguments), config::terminal_width());
    return parsed;
  }
  config::OptionTable& table = impl_->table;
  const std::vector<std::string> after_program(
      arguments.begin() + std::min<std::ptrdiff_t>(1, std::ssize(arguments)), arguments.end());
  const config::Sources sources = config::read_sources(
      table, config::read_flags(table, after_program), environment, parsed.notices);
  config::resolve(table, sources.assignments, parsed.notices);
  impl_->config_file = sources.files;
  for (const std::string& name : impl_->required) {
    const config::Option& option = *table.find(name);
    if (option.origin.source != config::Origin::Source::default_value) continue;
    config::throw_missing("--" + name + " is missing",
                          "set --" + name + " to " + option.expected() + ". " + option.help);
  }
  config::check_limits(table);
  if (impl_->arguments != nullptr) config::check_contradictions(*impl_->arguments);
  config::check_status(table, parsed.notices);
  if (impl_->arguments != nullptr) {
    for (const auto& [name, from] : config::derive(*impl_->arguments))
      table.find(name)->origin = {config::Origin::Source::derived, from};
  }
  if (impl_->print_config) parsed.text = impl_->values();
  return parsed;
}

std::optional<int> ArgumentParser::parse_or_report(int argc, const char* const* argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const std::string program = name_of_program(arguments);
  ParsedArguments parsed;
  bool is_main = true;
  try {
    is_main = this_worker().rank == 0;
    parsed = parse(arguments, config::process_environment());
  } catch (const Error&) {
    const ExceptionReport report = describe_exception();
    std::fputs(str(program, ": ", report.line).c_str(), stderr);
    return report.exit_code;
  }
  if (is_main) {
    std::fputs(parsed.text.c_str(), stdout);
    for (const std::string& notice : parsed.notices) log_line(program + ": note: " + notice);
  }
  if (parsed.text.empty()) return std::nullopt;
  return 0;
}

std::string ArgumentParser::help(const std::string& program, int width) const {
  std::string out = "usage: " + program + " [--NAME VALUE ...]\n\n";
  if (!impl_->description.empty()) out += impl_->description + "\n\n";
  out +=
      "Each option is a flag, a key of --config_file or a variable HASTEN_NAME in the\n"
      "environment; flags override the others. Defaults are in brackets.\n";
  return out + config::help_text(impl_->table, width);
}

}  // namespace hasten
