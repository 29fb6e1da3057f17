#include "exported/program_reader.h"

#include "base/strict_json.h"
#include "exported/compiler.h"
#include "exported/json_cursor.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::exported {
namespace {

constexpr std::int64_t kSchemaMajor = 8;
constexpr int kMaxOutputDepth = 32;

std::string text_record(const ZipArchive& archive, const std::string& name) {
  if (!archive.contains(name)) return "";
  return std::string(trim(archive.record(name).substr(0, 64)));
}

[[noreturn]] void fail_version(const std::string& file, const std::string& what,
                               const std::string& got, const std::string& expected) {
  throw DataError("exported.version",
                  {.what = file + ": " + what,
                   .got = got,
                   .expected = expected,
                   .hint = "export the model with torch.export of PyTorch 2.11 or near it"});
}

void check_root(const JsonCursor& root, const std::string& file) {
  const std::int64_t major = root["schema_version"]["major"].integer();
  if (major != kSchemaMajor)
    fail_version(file, "the version of the schema", std::to_string(major),
                 std::to_string(kSchemaMajor));
  const auto verifiers = root["verifiers"].items();
  if (verifiers.size() == 1 && verifiers[0].text() == "TRAINING") return;
  throw DataError("exported.program",
                  {.what = file + ": the program is not one for training",
                   .got = verifiers.empty() ? "no verifier" : verifiers[0].text(),
                   .expected = "TRAINING",
                   .hint = "save the result of torch.export.export without run_decompositions()"});
}

c10::IValue read_constant_input(const JsonCursor& value) {
  const auto [tag, inner] = value.alternative();
  if (tag == "as_none") return {};
  if (tag == "as_int") return inner.integer();
  if (tag == "as_float") return inner.number();
  if (tag == "as_bool") return inner.boolean();
  if (tag == "as_string") return inner.text();
  value.fail(tag, "a number, a text or nothing");
}

// Reads the inputs of the outermost graph.
struct SignatureReader {
  const JsonCursor& graph;
  Program& program;
  std::vector<UserInput> user_inputs;
  std::vector<GraphInput> inputs;

  void add_state(const JsonCursor& spec, StateInput::Kind kind, const char* name_field) {
    StateInput state{kind, spec[name_field].text(), {}};
    GraphInput input{spec["arg"]["name"].text(), ValueKind::tensor, "", ""};
    state.meta = meta_of(input.name, spec);
    if (kind == StateInput::Kind::parameter) input.parameter = state.name;
    if (kind == StateInput::Kind::buffer) input.buffer = state.name;
    program.state_position.push_back(static_cast<int>(inputs.size()));
    program.state.push_back(std::move(state));
    inputs.push_back(std::move(input));
  }

  TensorMeta meta_of(const std::string& name, const JsonCursor& place) const {
    const auto meta = graph["tensor_values"].find(name);
    if (!meta) place.fail("no tensor_values", "those of the input " + name);
    return read_tensor_meta(*meta);
  }

  void add_user(UserInput input, ValueKind kind) {
    program.user_position.push_back(static_cast<int>(inputs.size()));
    inputs.push_back({input.name, kind, "", ""});
    user_inputs.push_back(std::move(input));
  }

  void add_user_input(const JsonCursor& argument) {
    const auto [tag, value] = argument.alternative();
    UserInput input;
    if (tag == "as_tensor") {
      input.name = value["name"].text();
      input.meta = meta_of(input.name, value);
      return add_user(std::move(input), ValueKind::tensor);
    }
    if (tag != "as_sym_int") argument.fail(tag, "a tensor or an integer");
    input.kind = UserInput::Kind::integer;
    input.name = value["as_name"].text();
    add_user(std::move(input), ValueKind::integer);
  }

  void add(const JsonCursor& spec) {
    const auto [tag, value] = spec.alternative();
    if (tag == "parameter") return add_state(value, StateInput::Kind::parameter, "parameter_name");
    if (tag == "buffer") return add_state(value, StateInput::Kind::buffer, "buffer_name");
    if (tag == "tensor_constant")
      return add_state(value, StateInput::Kind::constant, "tensor_constant_name");
    if (tag == "user_input") return add_user_input(value["arg"]);
    if (tag != "constant_input")
      spec.fail(tag, "a parameter, a buffer, a constant or an input of the user");
    UserInput input;
    input.kind = UserInput::Kind::constant;
    input.name = value["name"].text();
    input.constant = read_constant_input(value["value"]);
    add_user(std::move(input), ValueKind::tensor);
  }
};

// Appends the name of each leaf of a tree of outputs. It consists of the keys and indices on the
// path to the leaf.
void append_output_names(const JsonCursor& tree, const std::string& path, int depth,
                         std::vector<std::string>& names) {
  if (depth > kMaxOutputDepth) tree.fail("more than 32 levels", "at most 32");
  if (!tree.find("type")) {
    names.push_back(path.empty() ? "output" : path);
    return;
  }
  const std::vector<JsonCursor> children = tree["children_spec"].items();
  // The context of a dictionary or a class has the keys. The context of a tuple has none.
  std::vector<std::string> keys;
  if (const auto context = tree.find("context")) {
    const auto json = parse_json_or_discard(context->text());
    if (json.is_array())
      for (const auto& key : json)
        if (key.is_string()) keys.push_back(key.get<std::string>());
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    const std::string key = keys.size() == children.size() ? keys[i] : std::to_string(i);
    const bool is_first_index = path.empty() && keys.size() != children.size();
    append_output_names(children[i],
                        is_first_index ? "output_" + key
                        : path.empty() ? key
                                       : path + "." + key,
                        depth + 1, names);
  }
}

// Returns the type and the sizes of each output. A number gets the type float and no sizes.
std::vector<TensorMeta> read_outputs(const JsonCursor& graph_module) {
  const JsonCursor tensors = graph_module["graph"]["tensor_values"];
  std::vector<TensorMeta> outputs;
  for (const JsonCursor& spec : graph_module["signature"]["output_specs"].items()) {
    const auto [tag, argument] = spec["user_output"]["arg"].alternative();
    const auto meta =
        tag == "as_tensor" ? tensors.find(argument["name"].text()) : std::optional<JsonCursor>();
    outputs.push_back(meta ? read_tensor_meta(*meta) : TensorMeta{});
  }
  return outputs;
}

// Maps a slot of a graph to its parameter.
using Parameters = std::map<int, const StateInput*>;

// Returns the parameter that an operand is, or null.
const StateInput* parameter_of(const Operand& operand, const Parameters& parameters) {
  const auto found = parameters.find(operand.slot);
  const bool is_slot = operand.kind == Operand::Kind::slot;
  return is_slot && found != parameters.end() ? found->second : nullptr;
}

// True for an instruction that runs its graph once, in another mode of autograd or autocast.
bool is_mode_region(const Instruction& instruction) {
  return instruction.action == Action::set_grad_mode || instruction.action == Action::autocast;
}

// Returns the entries of a map by slot for the graph of a region, which gets the operands of the
// instruction as inputs.
template <class Value>
std::map<int, Value> passed_values(const Instruction& region, const std::map<int, Value>& outer) {
  const std::vector<int>& inputs = region.graphs.front()->inputs;
  std::map<int, Value> passed;
  for (std::size_t i = 0; i < std::min(inputs.size(), region.operands.size()); ++i) {
    const Operand& operand = region.operands[i];
    const auto found = outer.find(operand.slot);
    if (operand.kind == Operand::Kind::slot && found != outer.end())
      passed.emplace(inputs[i], found->second);
  }
  return passed;
}

// Finds the parameters by which a graph multiplies its inputs, either directly or transposed.
class LinearWeightFinder {
 public:
  explicit LinearWeightFinder(std::map<std::string, bool>& found) : found_(found) {}

  void run(const Graph& graph, const Parameters& parameters) {
    Parameters transposed;
    for (const Instruction& instruction : graph.code) {
      if (instruction.op) {
        record_product(instruction, parameters, transposed);
      } else if (is_mode_region(instruction)) {
        run(*instruction.graphs.front(), passed_values(instruction, parameters));
      }
    }
  }

 private:
  static const StateInput* find(const Parameters& parameters, const Instruction& instruction,
                                std::size_t operand) {
    if (operand >= instruction.operands.size()) return nullptr;
    return parameter_of(instruction.operands[operand], parameters);
  }

  void record_product(const Instruction& instruction, const Parameters& parameters,
                      Parameters& transposed) {
    const std::string& name = instruction.op->schema().name();
    const bool transposes =
        name == "aten::t" || name == "aten::transpose" || name == "aten::permute";
    if (const StateInput* const weight = find(parameters, instruction, 0);
        transposes && weight != nullptr && weight->meta.sizes.size() == 2) {
      for (const Output& output : instruction.outputs)
        for (const int slot : output.slots) transposed[slot] = weight;
    }
    if (name == "aten::linear") {
      if (const StateInput* const weight = find(parameters, instruction, 1))
        found_.emplace(weight->name, false);
    }
    const bool multiplies = name == "aten::matmul" || name == "aten::mm";
    if (!multiplies && name != "aten::addmm") return;
    const std::size_t right = multiplies ? 1 : 2;
    if (const StateInput* const weight = find(transposed, instruction, right))
      found_.emplace(weight->name, false);
    if (const StateInput* const weight = find(parameters, instruction, right))
      found_.emplace(weight->name, true);
  }

  std::map<std::string, bool>& found_;
};

// Finds the parameters that operators use as embedding tables, in a layer norm or in products, and
// the inputs that are looked up in the tables.
class ParameterUseFinder {
 public:
  explicit ParameterUseFinder(Program& program) : program_(program) {
    const auto slot_of = [&](int position) {
      return program.graph.inputs[static_cast<std::size_t>(position)];
    };
    for (std::size_t i = 0; i < program.state.size(); ++i)
      if (program.state[i].kind == StateInput::Kind::parameter)
        parameters_[slot_of(program.state_position[i])] = &program.state[i];
    for (std::size_t i = 0; i < program.user_position.size(); ++i)
      inputs_[slot_of(program.user_position[i])] = program.user_inputs.inputs()[i].name;
  }

  void run() {
    record_graph(program_.graph, parameters_, inputs_);
    LinearWeightFinder(program_.linear_weights).run(program_.graph, parameters_);
  }

 private:
  // Maps a slot of a graph to the name of the user's input.
  using Inputs = std::map<int, std::string>;

  void record_graph(const Graph& graph, const Parameters& parameters, const Inputs& inputs) {
    for (const Instruction& instruction : graph.code) {
      if (instruction.op) {
        record_operator(instruction, parameters, inputs);
      } else if (is_mode_region(instruction)) {
        record_graph(*instruction.graphs.front(), passed_values(instruction, parameters),
                     passed_values(instruction, inputs));
      }
    }
  }

  void record_operator(const Instruction& instruction, const Parameters& parameters,
                       const Inputs& inputs) {
    const std::string& name = instruction.op->schema().name();
    if (name == "aten::embedding") record_embedding(instruction.operands, parameters, inputs);
    if (name != "aten::layer_norm") return;
    for (const Operand& operand : instruction.operands)
      if (const StateInput* const parameter = parameter_of(operand, parameters))
        program_.layer_norm_parameters.insert(parameter->name);
  }

  void record_embedding(const std::vector<Operand>& operands, const Parameters& parameters,
                        const Inputs& inputs) {
    if (operands.size() < 2) return;
    const StateInput* const table = parameter_of(operands[0], parameters);
    if (table == nullptr) return;
    program_.embedding_tables.insert(table->name);
    const auto input = inputs.find(operands[1].slot);
    if (input == inputs.end() || table->meta.sizes.empty()) return;
    if (const auto* const rows = std::get_if<std::int64_t>(&table->meta.sizes[0]))
      program_.vocabularies[input->second] = *rows;
  }

  Program& program_;
  Parameters parameters_;
  Inputs inputs_;
};

void read_checks(const JsonCursor& root, std::vector<UserInput> inputs, Program& program) {
  program.user_inputs = InputChecks(program.file, std::move(inputs), root.place());
  for (const auto& [symbol, range] : root["range_constraints"].members()) {
    const auto min = range.find("min_val"), max = range.find("max_val");
    program.user_inputs.add_range(symbol, min ? std::optional(min->integer()) : std::nullopt,
                                  max ? std::optional(max->integer()) : std::nullopt);
  }
  if (const auto guards = root.find("guards_code"))
    for (const JsonCursor& guard : guards->items())
      program.user_inputs.add_guard(guard.text(), guard.place());
}

}  // namespace

std::vector<std::string> read_output_names(const JsonCursor& graph_module) {
  for (const JsonCursor& spec : graph_module["signature"]["output_specs"].items()) {
    const auto [tag, value] = spec.alternative();
    if (tag != "user_output") spec.fail(tag, "an output of the user");
  }
  std::vector<std::string> names;
  for (const JsonCursor& call : graph_module["module_call_graph"].items()) {
    if (!call["fqn"].text().empty()) continue;
    const JsonCursor spec = call["signature"]["out_spec"];
    const JsonDocument tree = JsonDocument::parse(spec.text(), spec.place());
    const std::vector<JsonCursor> parts = tree.root().items();
    if (parts.size() != 2) spec.fail(spec.text().substr(0, 80), "a version and a tree");
    append_output_names(parts[1], "", 0, names);
  }
  return names;
}

std::vector<std::string> program_names(const ZipArchive& archive) {
  if (text_record(archive, "archive_format") != "pt2")
    fail_version(archive.file(), "the format of the archive",
                 "\"" + text_record(archive, "archive_format") + "\"", "pt2");
  if (text_record(archive, "archive_version") != "0")
    fail_version(archive.file(), "the version of the archive",
                 text_record(archive, "archive_version"), "0");
  if (archive.contains("byteorder") && text_record(archive, "byteorder") != "little")
    fail_version(archive.file(), "the order of bytes", text_record(archive, "byteorder"), "little");
  std::vector<std::string> names;
  for (const std::string& record : archive.names())
    if (starts_with(record, "models/") && ends_with(record, ".json"))
      names.push_back(record.substr(7, record.size() - 12));
  if (names.empty())
    throw DataError("exported.program",
                    {.what = archive.file() + ": the archive has no program",
                     .got = "",
                     .expected = "a record models/NAME.json",
                     .hint = "packages of AOTInductor have none; use torch.export.save"});
  return names;
}

std::shared_ptr<const Program> read_program(const ZipArchive& archive, const std::string& name,
                                            const std::vector<std::string>& namespaces) {
  const std::string record = "models/" + name + ".json";
  const JsonDocument document =
      JsonDocument::parse(archive.record(record), archive.file() + ": " + record);
  const JsonCursor root = document.root();
  check_root(root, archive.file());
  const JsonCursor graph_module = root["graph_module"], graph = graph_module["graph"];
  auto program = std::make_shared<Program>();
  program->file = archive.file();
  program->name = name;
  SignatureReader signature{graph, *program, {}, {}};
  for (const JsonCursor& spec : graph_module["signature"]["input_specs"].items())
    signature.add(spec);
  Compiler(archive.file(), namespaces).compile(graph, signature.inputs, *program);
  read_checks(root, std::move(signature.user_inputs), *program);
  program->output_names = read_output_names(graph_module);
  if (program->output_names.size() != program->graph.outputs.size())
    graph_module.fail(str(program->output_names.size(), " names of outputs"),
                      std::to_string(program->graph.outputs.size()));
  program->outputs = read_outputs(graph_module);
  if (program->outputs.size() != program->output_names.size())
    graph_module.fail(str(program->outputs.size(), " outputs in the signature"),
                      std::to_string(program->output_names.size()));
  ParameterUseFinder(*program).run();
  return program;
}

}  // namespace hasten::exported
