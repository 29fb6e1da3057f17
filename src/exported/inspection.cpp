#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <tuple>
#include <variant>

#include "exported/exported_parts.h"
#include "exported/json_cursor.h"
#include "exported/program_reader.h"
#include "exported/schema_types.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/exported/inspect.h"
#include "hasten/exported/operator_library.h"

namespace hasten {
namespace {

using exported::JsonCursor;

// "Mul(Integer(2), Symbol('s0', positive=True))" becomes "Mul(2, s0)".
std::string readable_expression(const std::string& srepr) {
  static const std::regex symbol("Symbol\\('(\\w+)'[^)]*\\)"), integer("Integer\\((-?\\d+)\\)");
  return std::regex_replace(std::regex_replace(srepr, symbol, "$1"), integer, "$1");
}

std::string size_text(const exported::Size& size) {
  const auto* const number = std::get_if<std::int64_t>(&size);
  if (number != nullptr) return std::to_string(*number);
  const std::string& text = std::get<std::string>(size);
  return text.size() > 1000 ? text.substr(0, 1000) : readable_expression(text);
}

ExportedValue value_of(const std::string& name, const JsonCursor& json) {
  const exported::TensorMeta meta = exported::read_tensor_meta(json);
  ExportedValue value{name, c10::toString(meta.dtype), {}};
  for (const exported::Size& size : meta.sizes) value.sizes.push_back(size_text(size));
  return value;
}

// Counts the operators of a graph and of its nested graphs.
void count_operators(const JsonCursor& graph, std::map<std::string, std::int64_t>& counts) {
  for (const JsonCursor& node : graph["nodes"].items()) {
    ++counts[node["target"].text()];
    for (const JsonCursor& input : node["inputs"].items())
      if (const auto inner = input["arg"].find("as_graph"))
        count_operators((*inner)["graph"], counts);
  }
}

ExportedProgramContents program_contents(const JsonCursor& root, const std::string& name) {
  ExportedProgramContents contents;
  contents.name = name;
  const JsonCursor graph_module = root["graph_module"], graph = graph_module["graph"];
  for (const JsonCursor& spec : graph_module["signature"]["input_specs"].items()) {
    const auto input = spec.find("user_input");
    if (!input) continue;
    const auto [tag, value] = (*input)["arg"].alternative();
    if (tag != "as_tensor") {
      const auto number = value.find("as_name");
      const std::string type = starts_with(tag, "as_") ? tag.substr(3) : tag;
      contents.inputs.push_back({number ? number->text() : "", type, {}});
      continue;
    }
    const std::string input_name = value["name"].text();
    if (const auto meta = graph["tensor_values"].find(input_name))
      contents.inputs.push_back(value_of(input_name, *meta));
  }
  count_operators(graph, contents.operators);
  for (const auto& [symbol, range] : root["range_constraints"].members()) {
    const auto min = range.find("min_val"), max = range.find("max_val");
    contents.ranges[symbol] = str(min ? std::to_string(min->integer()) : "any", " to ",
                                  max ? std::to_string(max->integer()) : "any");
  }
  if (const auto guards = root.find("guards_code"))
    for (const JsonCursor& guard : guards->items()) contents.guards.push_back(guard.text());
  contents.outputs = exported::read_output_names(graph_module);
  return contents;
}

// Adds the tensors that state_dict() contains.
void add_state(const JsonCursor& root, const std::vector<exported::Payload>& payloads,
               ExportedContents& contents) {
  std::set<std::string> parameters;
  for (const JsonCursor& spec : root["graph_module"]["signature"]["input_specs"].items())
    if (const auto parameter = spec.find("parameter"))
      parameters.insert((*parameter)["parameter_name"].text());
  std::set<std::tuple<std::string, std::int64_t>> counted;
  for (const exported::Payload& payload : payloads) {
    ExportedValue value{payload.name, c10::toString(payload.dtype), {}};
    std::int64_t numbers = 1;
    for (const std::int64_t size : payload.sizes) {
      value.sizes.push_back(std::to_string(size));
      if (__builtin_mul_overflow(numbers, size, &numbers)) numbers = 0;
    }
    if (!parameters.contains(payload.name)) {
      contents.buffers.push_back(std::move(value));
      continue;
    }
    contents.parameters.push_back(std::move(value));
    if (counted.emplace(payload.record, payload.offset).second) contents.parameter_count += numbers;
  }
}

std::string shape_text(const ExportedValue& value) {
  return str(value.type, " [", join(value.sizes, ", "), "]");
}

nlohmann::json json_of(const std::vector<ExportedValue>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const ExportedValue& value : values)
    list.push_back({{"name", value.name}, {"type", value.type}, {"sizes", value.sizes}});
  return list;
}

std::string program_text(const ExportedProgramContents& program) {
  std::string out = "\nprogram " + program.name + "\n";
  for (const ExportedValue& input : program.inputs)
    out += "  input       " + input.name + ": " + shape_text(input) + "\n";
  for (const std::string& output : program.outputs) out += "  output      " + output + "\n";
  for (const auto& [symbol, range] : program.ranges)
    out += "  size        " + symbol + ": " + range + "\n";
  for (const std::string& guard : program.guards) out += "  guard       " + guard + "\n";
  std::int64_t calls = 0;
  for (const auto& [name, count] : program.operators) calls += count;
  out += str("  operators   ", calls, " calls of ", program.operators.size(), "\n");
  for (const auto& [name, count] : program.operators)
    out += str("    ",
               std::string(count < 10     ? 3
                           : count < 100  ? 2
                           : count < 1000 ? 1
                                          : 0,
                           ' '),
               count, "  ", name, "\n");
  for (const std::string& problem : program.evaluation_problems)
    out += "  eval() is refused: " + problem + "\n";
  return out;
}

}  // namespace

ExportedContents inspect_exported(const std::filesystem::path& path,
                                  const ExportedOptions& options) {
  for (const std::filesystem::path& library : options.libraries) load_operator_library(library);
  const ZipArchive archive(path);
  ExportedContents contents;
  contents.file = archive.file();
  const std::vector<std::string> names = exported::program_names(archive);
  for (const std::string& name : names) {
    const std::string record = "models/" + name + ".json";
    const auto document =
        exported::JsonDocument::parse(archive.record(record), archive.file() + ": " + record);
    const JsonCursor root = document.root(), version = root["schema_version"];
    contents.schema_version = str(version["major"].integer(), '.', version["minor"].integer());
    if (const auto torch = root.find("torch_version")) contents.torch_version = torch->text();
    contents.programs.push_back(program_contents(root, name));
    if (name == names.front())
      add_state(root, exported::read_payloads(archive, "data/weights/", name), contents);
  }
  try {
    const auto parts = std::make_shared<const ExportedModule::Parts>(path, options, at::kMeta);
    const ExportedModule module(parts);
    if (parts->programs.size() == 1)
      contents.programs[0].evaluation_problems = parts->programs[0]->evaluation_problems;
  } catch (const Error& error) {
    contents.refusal_code = error.code();
    contents.refusal = error.what();
  }
  return contents;
}

std::string to_text(const ExportedContents& contents) {
  std::string out =
      str(contents.file, ": schema ", contents.schema_version,
          contents.torch_version.empty() ? "" : ", PyTorch " + contents.torch_version, "\n",
          contents.parameter_count, " parameters in ", contents.parameters.size(), " tensors, ",
          contents.buffers.size(), " buffers\n");
  for (const ExportedValue& value : contents.parameters)
    out += "  parameter   " + value.name + ": " + shape_text(value) + "\n";
  for (const ExportedValue& value : contents.buffers)
    out += "  buffer      " + value.name + ": " + shape_text(value) + "\n";
  for (const ExportedProgramContents& program : contents.programs) out += program_text(program);
  if (contents.refusal.empty()) return out + "\nhasten loads and trains it.\n";
  return out + "\nhasten refuses it [" + contents.refusal_code + "]: " + contents.refusal + "\n";
}

std::string to_json(const ExportedContents& contents) {
  nlohmann::json programs = nlohmann::json::array();
  for (const ExportedProgramContents& program : contents.programs)
    programs.push_back({{"name", program.name},
                        {"inputs", json_of(program.inputs)},
                        {"outputs", program.outputs},
                        {"operators", program.operators},
                        {"ranges", program.ranges},
                        {"guards", program.guards},
                        {"evaluation_problems", program.evaluation_problems}});
  const nlohmann::json all = {{"file", contents.file},
                              {"schema_version", contents.schema_version},
                              {"torch_version", contents.torch_version},
                              {"parameter_count", contents.parameter_count},
                              {"parameters", json_of(contents.parameters)},
                              {"buffers", json_of(contents.buffers)},
                              {"programs", programs},
                              {"is_accepted", contents.refusal.empty()},
                              {"refusal_code", contents.refusal_code},
                              {"refusal", contents.refusal}};
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace hasten
