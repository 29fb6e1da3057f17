#include "process/watch/symbol_table.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

namespace hasten {
namespace {

using Header = ElfW(Ehdr);
using Section = ElfW(Shdr);
using Segment = ElfW(Phdr);
using Symbol = ElfW(Sym);

// Reads entries at a position of the file. Returns an empty vector if the file ends before that.
template <class Entry>
std::vector<Entry> entries(std::ifstream& file, std::uint64_t at, std::uint64_t bytes) {
  file.clear();
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::uint64_t>(std::max<std::streamoff>(0, file.tellg()));
  if (at > size || bytes > size - at) return {};
  std::vector<Entry> all(bytes / sizeof(Entry));
  const auto wanted = static_cast<std::streamsize>(all.size() * sizeof(Entry));
  file.seekg(static_cast<std::streamoff>(at));
  if (!file.read(reinterpret_cast<char*>(all.data()), wanted)) return {};
  return all;
}

std::optional<Header> header_of(std::ifstream& file) {
  const auto first = entries<Header>(file, 0, sizeof(Header));
  if (first.empty() || std::memcmp(first[0].e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  const bool ours = first[0].e_ident[EI_CLASS] == (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32);
  const bool sized =
      first[0].e_shentsize == sizeof(Section) && first[0].e_phentsize == sizeof(Segment);
  return ours && sized ? std::optional(first[0]) : std::nullopt;
}

// Returns the address of the page in which the first loaded segment begins; offsets count from it.
std::uint64_t first_address(std::ifstream& file, const Header& header) {
  for (const Segment& segment :
       entries<Segment>(file, header.e_phoff, header.e_phnum * sizeof(Segment))) {
    if (segment.p_type == PT_LOAD) return segment.p_vaddr & ~std::uint64_t{0xFFF};
  }
  return 0;
}

}  // namespace

std::string symbol_name_at(const std::filesystem::path& path, std::uint64_t offset) {
  std::ifstream file(path, std::ios::binary);
  const auto header = header_of(file);
  if (!header) return "";
  const std::uint64_t address = offset + first_address(file, *header);
  const auto sections = entries<Section>(file, header->e_shoff, header->e_shnum * sizeof(Section));
  for (const Section& table : sections) {
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= sections.size()) continue;
    for (const Symbol& symbol : entries<Symbol>(file, table.sh_offset, table.sh_size)) {
      const bool holds = address >= symbol.st_value && address - symbol.st_value < symbol.st_size;
      if (!holds || (symbol.st_info & 0xF) != STT_FUNC) continue;
      const Section& names = sections[table.sh_link];
      if (symbol.st_name >= names.sh_size) return "";
      file.clear();
      file.seekg(static_cast<std::streamoff>(names.sh_offset + symbol.st_name));
      std::string name;
      std::getline(file, name, '\0');
      return name;
    }
  }
  return "";
}

}  // namespace hasten
