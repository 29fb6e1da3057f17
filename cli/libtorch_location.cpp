#include "libtorch_location.h"

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/environment_variable.h"
#include "base/first_line.h"
#include "hasten/base/text.h"

namespace hasten::cli {
namespace {

namespace fs = std::filesystem;

// Reads the folders of a program's libraries from its ELF file.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : file_(path, std::ios::binary) {
    if (!read(0, header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 ||
        header_.e_ident[EI_CLASS] != ELFCLASS64)
      return;
    segments_.resize(header_.e_phnum);
    for (std::size_t i = 0; i < segments_.size(); ++i)
      read(header_.e_phoff + i * sizeof(Elf64_Phdr), segments_[i]);
  }

  // Returns RUNPATH or RPATH, or an empty string if there is neither.
  std::string library_folders() {
    std::uint64_t folders = 0, strings = 0;
    bool found = false;
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_DYNAMIC) continue;
      Elf64_Dyn entry{};
      for (std::uint64_t at = 0; at + sizeof entry <= segment.p_filesz; at += sizeof entry) {
        if (!read(segment.p_offset + at, entry) || entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
        if (entry.d_tag != DT_RUNPATH && entry.d_tag != DT_RPATH) continue;
        folders = entry.d_un.d_val;
        found = true;
      }
    }
    return found ? text_at(offset_of(strings) + folders) : "";
  }

 private:
  template <class T>
  bool read(std::uint64_t offset, T& to) {
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file_.read(reinterpret_cast<char*>(&to), sizeof to));
  }
  std::uint64_t offset_of(std::uint64_t address) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
          address < segment.p_vaddr + segment.p_filesz)
        return address - segment.p_vaddr + segment.p_offset;
    }
    return address;
  }
  std::string text_at(std::uint64_t offset) {
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    std::string text;
    std::getline(file_, text, '\0');
    return text;
  }

  std::ifstream file_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
};

// Splits a list of folders at the colons; $ORIGIN is the program's own folder.
std::vector<fs::path> folders_in(const std::string& list, const fs::path& program) {
  std::vector<fs::path> folders;
  for (const std::string& folder : split(list, ':')) {
    if (folder.empty()) continue;
    const bool own = starts_with(folder, "$ORIGIN");
    folders.push_back(own ? fs::path(program.parent_path().string() + folder.substr(7))
                          : fs::path(folder));
  }
  return folders;
}

// Returns the version of LibTorch in a folder. A wheel has it in quotes after __version__ in
// version.py, and the archive for C++ has it as a line of build-version.
std::string version_in(const fs::path& folder) {
  std::ifstream wheel(folder / "version.py");
  for (std::string line; std::getline(wheel, line);) {
    const auto from = line.find('\'');
    const auto to = line.rfind('\'');
    if (starts_with(line, "__version__") && from < to) return line.substr(from + 1, to - from - 1);
  }
  return first_line(folder / "build-version");
}

}  // namespace

LibTorchLocation find_libtorch(const std::string& program) {
  std::vector<fs::path> folders = folders_in(environment_variable("LD_LIBRARY_PATH"), program);
  if (!program.empty()) {
    for (const fs::path& folder : folders_in(ElfFile(program).library_folders(), program))
      folders.push_back(folder);
  }
  folders.emplace_back(HASTEN_LIBTORCH_FOLDER "/lib");
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (!fs::exists(folder / "libtorch_cpu.so", error)) continue;
    const fs::path root = fs::absolute(folder).lexically_normal().parent_path();
    const std::string version = version_in(root);
    return {version.empty() ? HASTEN_LIBTORCH_VERSION : version, root.string()};
  }
  return {HASTEN_LIBTORCH_VERSION, ""};
}

}  // namespace hasten::cli
