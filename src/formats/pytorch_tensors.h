// File: formats/pytorch_tensors.h (internal)
// Makes tensors from the values in an archive of torch.save.
//
//   require_pickle_allowed(options, "model.bin");
//   PyTorchTensors tensors(std::make_shared<PickleArchive>("model.bin"));
//   at::Tensor weight = tensors.tensor(value);
//
// Tensors of one storage share their memory. Throws DataError "pickle.*". Thread rule: one thread
// at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "formats/pickle_archive.h"
#include "hasten/formats/pytorch_file.h"

namespace hasten {

// Throws UsageError "pickle.not-allowed" unless the options allow pickles.
void require_pickle_allowed(const PyTorchFileOptions& options, const std::filesystem::path& file);

class PyTorchTensors {
 public:
  explicit PyTorchTensors(std::shared_ptr<const PickleArchive> archive)
      : archive_(std::move(archive)) {}
  at::Tensor tensor(const pickle::Value& value);

 private:
  at::Tensor storage(const pickle::Value& value);

  std::shared_ptr<const PickleArchive> archive_;
  std::map<std::string, at::Tensor> storages_;  // by key and type
};

}  // namespace hasten
