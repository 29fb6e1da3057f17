#include "formats/pytorch_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "base/file_calls.h"
#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

void require_pickle_allowed(const PyTorchFileOptions& options, const std::filesystem::path& file) {
  if (!path_exists(file))
    throw IoError("io.not-found", {.what = file.string() + ": no such file or folder"});
  if (options.allow_pickle) return;
  throw UsageError("pickle.not-allowed",
                   {.what = file.string(),
                    .got = "a pickle",
                    .expected = "allow_pickle, which is off by default",
                    .hint = "hasten executes nothing of it; pass --allow_pickle or "
                            "{.allow_pickle = true} to read its tensors"});
}

at::Tensor PyTorchTensors::storage(const pickle::Value& value) {
  at::Tensor& storage = storages_[str(value.type->text, ' ', value.text)];
  if (storage.defined()) return storage;
  const at::ScalarType type = safetensors::dtype_named(value.type->text)->type;
  const std::size_t bytes = archive_->storage_size(value);
  const auto elements = static_cast<std::int64_t>(bytes / value.type->bytes);
  const auto options = at::TensorOptions().dtype(type);
  if (bytes == 0) return storage = at::empty({0}, options);
  char* const data = archive_->bytes_of(value);
  if (type == at::kBool &&
      !std::all_of(data, data + bytes, [](unsigned char byte) { return byte <= 1; }))
    archive_->program().fail_damaged("a boolean that is neither 0 nor 1");
  if (reinterpret_cast<std::uintptr_t>(data) % value.type->bytes != 0) {
    storage = at::empty({elements}, options);
    std::memcpy(storage.mutable_data_ptr(), data, bytes);
  } else {
    storage = at::from_blob(
        data, {elements}, [archive = archive_](void*) {}, options);
  }
  return storage;
}

at::Tensor PyTorchTensors::tensor(const pickle::Value& value) {
  return storage(value).as_strided(pickle::sizes_of(value), pickle::strides_of(value),
                                   value.integer);
}

}  // namespace hasten
