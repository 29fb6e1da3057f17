// Writes the tensors of an exported module: into a copy of its file, or as safetensors.
#include <caffe2/serialize/inline_container.h>

#include <cstring>
#include <exception>
#include <set>

#include "exported/exported_parts.h"
#include "hasten/base/files.h"
#include "hasten/formats/weights.h"

namespace hasten {
namespace {

// The writer of the archive adds these itself.
const std::set<std::string> kWriterRecords = {"version", "byteorder", ".data/version",
                                              ".data/serialization_id"};
// Version 6 is the first with the record `.data/version`, as torch.export.save writes it.
constexpr std::uint64_t kArchiveVersion = 6;

// Copies the module's tensors over a record. Each tensor keeps its place in it.
void overwrite(const std::vector<exported::Payload>& payloads, const TensorDict& tensors,
               const std::string& record, const at::Tensor& bytes, const std::string& file) {
  for (const exported::Payload& payload : payloads) {
    const auto tensor = tensors.find(payload.name);
    if (payload.record == record && tensor != tensors.end())
      exported::view_payload(payload, bytes, file).copy_(tensor->second.detach());
  }
}

}  // namespace

TensorDict ExportedModule::state_dict() const {
  TensorDict state;
  for (const exported::Payload& payload : parts_->weights.front()) {
    const auto tensor = tensors_.find(payload.name);
    if (tensor != tensors_.end()) state[payload.name] = tensor->second.detach();
  }
  return state;
}

void ExportedModule::save(const std::filesystem::path& path) const {
  const torch::NoGradGuard no_grad;
  const ZipArchive& archive = parts_->archive;
  AtomicFile file(path);
  // The first error of a write. The writer's destructor writes too and may not throw, so no
  // exception may leave the function that writes.
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, std::size_t size) {
    try {
      if (!failure) file.write(bytes, size);
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  });
  writer.setMinVersion(kArchiveVersion);
  for (const std::string& name : archive.names()) {
    if (failure) break;
    if (kWriterRecords.contains(name)) continue;
    const std::string_view record = archive.record(name);
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(record.size())}, at::kByte);
    if (!record.empty()) std::memcpy(bytes.data_ptr(), record.data(), record.size());
    for (std::size_t i = 0; i < parts_->programs.size(); ++i) {
      overwrite(parts_->weights[i], tensors_, name, bytes, archive.file());
      overwrite(parts_->constants[i], tensors_, name, bytes, archive.file());
    }
    writer.writeRecord(name, bytes.data_ptr(), record.size());
  }
  writer.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
  file.commit();
}

void ExportedModule::save_weights(const std::filesystem::path& folder) const {
  const auto parameters = named_parameters(), buffers = named_buffers();
  TensorDict weights;
  for (const auto& [name, tensor] : state_dict())
    if (parameters.contains(name) || buffers.contains(name)) weights[name] = tensor;
  hasten::save_weights(folder, weights);
}

}  // namespace hasten
