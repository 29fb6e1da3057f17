// File: exported/exported_parts.h (internal)
// The parts that the modules of one exported file share: the file, its programs, and the places of
// its tensors.
//
//   auto parts = std::make_shared<const ExportedModule::Parts>("model.pt2", options);
//   ExportedModule module(parts);
//
// Throws what load_exported throws. Thread rule: immutable.
#pragma once

#include <memory>
#include <vector>

#include "exported/payloads.h"
#include "exported/program.h"
#include "formats/zip_archive.h"
#include "hasten/exported/exported_module.h"

namespace hasten {

struct ExportedModule::Parts {
  // The modules have their tensors on `device`: the CPU, or Meta for modules that never run.
  Parts(const std::filesystem::path& path, const ExportedOptions& options,
        at::Device device = at::kCPU);

  ZipArchive archive;
  at::Device device;
  // One program, or one for training and one for evaluation.
  std::vector<std::shared_ptr<const exported::Program>> programs;
  // For each program, the tensors that state_dict() contains, and the other tensors.
  std::vector<std::vector<exported::Payload>> weights, constants;

 private:
  void check_same_state() const;
};

}  // namespace hasten
