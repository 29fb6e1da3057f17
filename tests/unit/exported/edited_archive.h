// Copies of an exported file with changed records, for tests of damaged and hostile files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/crc32.h"
#include "formats/zip_archive.h"
#include "hasten/base/files.h"

namespace hasten {

struct EditedArchive {
  std::map<std::string, std::string> records;  // names below the common folder
  std::string folder = "model";

  // The code in an archive of torch::save may be compressed, and is left out.
  explicit EditedArchive(const std::filesystem::path& path,
                         const ArchiveKind& kind = kExportedArchive) {
    const ZipArchive archive(path, kind);
    for (const std::string& name : archive.names()) {
      if (!kind.may_compress || !name.starts_with("code/")) records[name] = archive.record(name);
    }
  }

  nlohmann::json json(const std::string& name) const {
    return nlohmann::json::parse(records.at(name));
  }
  nlohmann::json program() const { return json("models/model.json"); }
  void set_program(const nlohmann::json& program) { records["models/model.json"] = program.dump(); }

  // Returns the bytes of a zip archive without compression.
  std::string bytes(std::uint16_t method = 0) const {
    std::string out, directory;
    for (const auto& [name, content] : records) {
      const std::string path = folder + "/" + name;
      const std::size_t offset = out.size();
      const std::string common = number(20, 2) + number(0, 2) + number(method, 2) + number(0, 4) +
                                 number(crc32(content), 4) + number(content.size(), 4) +
                                 number(content.size(), 4) + number(path.size(), 2) + number(0, 2);
      out += number(0x04034b50, 4) + common + path + content;
      directory += number(0x02014b50, 4) + number(20, 2) + common + number(0, 2) + number(0, 2) +
                   number(0, 2) + number(0, 4) + number(offset, 4) + path;
    }
    const std::size_t begin = out.size();
    return out + directory + number(0x06054b50, 4) + number(0, 4) + number(records.size(), 2) +
           number(records.size(), 2) + number(directory.size(), 4) + number(begin, 4) +
           number(0, 2);
  }

 private:
  static std::string number(std::uint64_t value, int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
    return text;
  }
};

}  // namespace hasten
