// File: process/watch/symbol_table.h (internal)
// Finds the names of a program's own functions in the symbol table of its file, which a stripped
// file does not have. The dynamic linker only knows exported functions. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace hasten {

// Returns the mangled name of the function at `offset` bytes after the address at which the file is
// loaded. The name is empty if it is unknown, or if this is not an ELF file of this process's word
// size.
std::string symbol_name_at(const std::filesystem::path& file, std::uint64_t offset);

}  // namespace hasten
