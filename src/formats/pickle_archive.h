// File: formats/pickle_archive.h (internal)
// An archive of torch.save or torch::save: the pickle in it, and the bytes of its tensors. Needs no
// torch.
//
//   const PickleArchive archive("pytorch_model.bin");
//   for (const auto& [name, tensor] : archive.tensors()) archive.bytes_of(*tensor);
//
// Throws DataError "pickle.*", IoError "io.*". Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/pickle.h"
#include "formats/zip_archive.h"

namespace hasten {

class PickleArchive {
 public:
  explicit PickleArchive(const std::filesystem::path& path);

  const std::string& file() const { return archive_.file(); }
  const pickle::Program& program() const { return program_; }
  // Returns the tensors of a state_dict by its keys, or the tensors of a module of LibTorch by
  // their full names. Everything else is refused.
  std::vector<std::pair<std::string, const pickle::Value*>> tensors() const;
  // Returns the bytes of the tensor's storage. Writing to them changes only memory.
  char* bytes_of(const pickle::Value& tensor) const;
  std::size_t storage_size(const pickle::Value& tensor) const;

 private:
  // Returns a storage. Its checksum is compared only once.
  std::string_view storage(std::string_view key) const;
  std::string_view checked_pickle() const;

  ZipArchive archive_;
  mutable std::map<std::string, std::string_view, std::less<>> storages_;
  pickle::Program program_;
};

}  // namespace hasten
