// File: hasten/exported/inspect.h
// Describes the contents of a file of torch.export and says whether hasten accepts it. It runs no
// part of the program.
//
//   const hasten::ExportedContents contents = hasten::inspect_exported("model.pt2");
//   std::cout << hasten::to_text(contents);            // what `hasten inspect model.pt2` prints
//   if (!contents.refusal.empty()) return 1;           // load_exported would throw this
//
// Throws DataError "exported.archive", "exported.version", "exported.graph" for a file that cannot
// be read at all. If a file can be read but load_exported refuses it, the result describes the file
// and gives the reason. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/exported/exported_module.h"

namespace hasten {

// A tensor or a number; a size is a number, or the name or formula of a dynamic size.
struct ExportedValue {
  std::string name, type;
  std::vector<std::string> sizes;
};

struct ExportedProgramContents {
  std::string name;
  std::vector<ExportedValue> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, std::int64_t> operators;  // the number of calls in the graph
  std::map<std::string, std::string> ranges;      // the range of each dynamic size: "2 to 64"
  std::vector<std::string> guards;
  // The reasons why eval() would be refused; empty if there are none.
  std::vector<std::string> evaluation_problems;
};

struct ExportedContents {
  std::string file;
  std::string schema_version, torch_version;  // "8.17", "2.11.0"
  std::vector<ExportedProgramContents> programs;
  std::vector<ExportedValue> parameters, buffers;
  std::int64_t parameter_count = 0;  // the elements of all parameters; shared ones count once
  // The code and the message of the error that load_exported throws; empty if it loads the file.
  std::string refusal_code, refusal;
};

HASTEN_API ExportedContents inspect_exported(const std::filesystem::path& path,
                                             const ExportedOptions& options = {});

HASTEN_API std::string to_text(const ExportedContents& contents);
HASTEN_API std::string to_json(const ExportedContents& contents);

}  // namespace hasten
