#include "formats/pickle_archive.h"

#include <set>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using PickledTensors = std::vector<std::pair<std::string, const pickle::Value*>>;

constexpr int kMaxModuleDepth = 64;

// Returns the path. Throws if the file was written by a PyTorch before 1.6, which did not use
// archives.
const std::filesystem::path& checked_path(const std::filesystem::path& path) {
  const detail::MappedFile file(path);  // throws unless it is a regular file
  if (!file.bytes().starts_with('\x80')) return path;
  throw DataError("pickle.archive", {.what = path.string(),
                                     .got = "a pickle that is in no archive",
                                     .expected = "a file of torch.save of PyTorch 1.6 or later",
                                     .hint = "load it in Python and save it again"});
}

// Collects the tensors of a module of LibTorch, which stores its modules as attributes. Every full
// name repeats the names of the outer modules, so all names share the memory that further values
// may take.
class ModuleTensorCollector {
 public:
  ModuleTensorCollector(const pickle::Program& program, PickledTensors& found)
      : program_(program), bytes_left_(program.memory_left()), found_(found) {}

  void add(const pickle::Value& object, const std::string& prefix, int depth) {
    if (depth > kMaxModuleDepth) program_.fail_damaged("modules in modules, more than 64 deep");
    if (!seen_.insert(&object).second) program_.fail_damaged("a module that occurs twice");
    program_.for_each_member(object, [&](const std::string& key, const pickle::Value& value) {
      if (value.kind == pickle::Kind::tensor) found_.emplace_back(full_name(prefix, key), &value);
      if (value.kind == pickle::Kind::object) add(value, full_name(prefix, key), depth + 1);
    });
  }

 private:
  std::string full_name(const std::string& prefix, const std::string& key) {
    const std::size_t bytes = prefix.size() + 1 + key.size();
    if (bytes > bytes_left_)
      program_.fail_damaged("longer names than a file of this size may have");
    bytes_left_ -= bytes;
    return prefix.empty() ? key : str(prefix, '.', key);
  }

  const pickle::Program& program_;
  std::size_t bytes_left_;
  PickledTensors& found_;
  std::set<const pickle::Value*> seen_;
};

}  // namespace

PickleArchive::PickleArchive(const std::filesystem::path& path)
    : archive_(checked_path(path), kPickleArchive),
      program_(
          checked_pickle(), archive_.file(),
          [this](std::string_view key) { return storage(key).size(); }, archive_.bytes()) {}

std::string_view PickleArchive::checked_pickle() const {
  if (archive_.contains("byteorder") && archive_.record("byteorder") != "little") {
    throw DataError("pickle.archive", {.what = archive_.file(),
                                       .got = "the file of a big-endian machine",
                                       .expected = "little endian",
                                       .hint = "load it in Python and save it again"});
  }
  return archive_.record("data.pkl");
}

PickledTensors PickleArchive::tensors() const {
  const pickle::Value& root = program_.root();
  PickledTensors found;
  const auto throw_not_weights = [&](const std::string& entry, const char* got) {
    throw DataError("pickle.not-weights",
                    {.what = archive_.file(),
                     .got = str("the entry \"", entry, "\", ", got),
                     .expected = "a state_dict of tensors, or a module of LibTorch",
                     .hint = "save model.state_dict() alone in Python. The state of an optimizer "
                             "is read by load_pytorch_optimizer"});
  };
  if (root.kind == pickle::Kind::object) {
    // Modules have no texts. The archive of an optimizer has this one.
    program_.for_each_member(root, [&](const std::string& key, const pickle::Value& value) {
      if (key == "pytorch_version" && value.kind == pickle::Kind::text)
        throw_not_weights(key, "which belongs to an optimizer");
    });
    ModuleTensorCollector(program_, found).add(root, "", 0);
    return found;
  }
  if (root.kind != pickle::Kind::dict) program_.fail_damaged("no dictionary of tensors");
  program_.for_each_member(root, [&](const std::string& key, const pickle::Value& value) {
    if (value.kind != pickle::Kind::tensor) throw_not_weights(key, "which is not a tensor");
    found.emplace_back(key, &value);
  });
  return found;
}

char* PickleArchive::bytes_of(const pickle::Value& tensor) const {
  return archive_.mutable_record(str("data/", tensor.text));
}

std::size_t PickleArchive::storage_size(const pickle::Value& tensor) const {
  return storage(tensor.text).size();
}

std::string_view PickleArchive::storage(std::string_view key) const {
  if (const auto found = storages_.find(key); found != storages_.end()) return found->second;
  return storages_.emplace(std::string(key), archive_.record(str("data/", key))).first->second;
}

}  // namespace hasten
