// File: exported/program_reader.h (internal)
// Reads the programs of an archive that torch.export.save or package_pt2 has written.
//
//   const ZipArchive archive("model.pt2");
//   for (const std::string& name : program_names(archive))
//     std::shared_ptr<const Program> program = read_program(archive, name, {});
//
// Supports archives of schema 8 with programs for training, as torch.export.export makes them.
// Throws DataError "exported.version", "exported.program", "exported.graph", "exported.operator".
// Thread rule: pure functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exported/json_cursor.h"
#include "exported/program.h"
#include "formats/zip_archive.h"

namespace hasten::exported {

// Checks the format of the archive, and returns the names of its programs.
std::vector<std::string> program_names(const ZipArchive& archive);

// Returns the names of the outputs in the field "graph_module". A name consists of keys and
// indices.
std::vector<std::string> read_output_names(const JsonCursor& graph_module);

// Reads a program, which may call operators of aten and of `namespaces`.
std::shared_ptr<const Program> read_program(const ZipArchive& archive, const std::string& name,
                                            const std::vector<std::string>& namespaces);

}  // namespace hasten::exported
