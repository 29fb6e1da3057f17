// File: process/symbol_table.h (internal)
// Names of a program's own functions, from the symbol table that its file carries unless it was
// stripped: the dynamic linker knows only those that are exported. Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace hasten {

// The mangled name of the function at `offset` from where the file is loaded; empty: not known, or
// no ELF file of this kind of machine.
std::string name_in(const std::filesystem::path& file, std::uint64_t offset);

}  // namespace hasten
