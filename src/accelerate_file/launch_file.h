// File: accelerate_file/launch_file.h (internal)
// Writes configuration files for `hasten launch`. They use Accelerate's keys and value formats, so
// that Accelerate can read them too.
//
//   // For the GPUs, TPUs or CPU found here:
//   config::LaunchFile file = config::launch_file_for(config::installed_gpus().size(),
//                                                     config::installed_tpus().size());
//   file.mixed_precision = Precision::bf16;
//   config::write_launch_file(path, config::launch_file_text(file, /*json=*/false));
//   const config::UpdatedFile now = config::updated_launch_file(read_configuration(path), path);
//
// Needs no torch. Throws ConfigError "config.*", IoError "io.*". Thread rule: values and pure
// functions, except that write_launch_file writes a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/launch_options.h"

namespace hasten::config {

// The content of a configuration file. The defaults describe one process on one machine.
struct LaunchFile {
  std::int64_t num_machines = 1;
  std::int64_t machine_rank = 0;  // Counts from 0.
  // The next four are written only if there are several machines.
  std::string main_process_ip;
  std::int64_t main_process_port = 29500;
  std::string rdzv_backend = "static";  // Or c10d.
  bool same_network = true;
  bool use_cpu = false;
  std::int64_t num_processes = 1;  // On all machines together.
  std::string gpu_ids = "all";
  bool enable_cpu_affinity = false;
  Precision mixed_precision = Precision::no;
  bool debug = false;
  // Processes run on TPUs; use_cpu and gpu_ids have no effect then. The options from here to
  // command_file are written only with TPUs.
  bool tpu = false;
  bool downcast_bf16 = false;
  std::vector<std::string> tpu_env;  // NAME=value.
  std::string tpu_name;              // This and the next three are for `hasten tpu-config`.
  std::string tpu_zone;
  std::vector<std::string> commands;
  std::string command_file;
  // Accelerate does not know the next two. They are written only if they are set.
  std::int64_t max_restarts = 0;
  std::string log_dir;
};

// Returns the file for a machine with these numbers of devices. It starts a process for each GPU;
// if there is no GPU, one for each TPU chip; and if there is neither, one process on the CPU.
HASTEN_INTERNAL_API LaunchFile launch_file_for(std::size_t gpus, std::size_t tpus);

using Document = nlohmann::ordered_json;

// Formats a document as JSON, or as YAML that every reader reads as the same values. It quotes
// words that YAML 1.1 reads as something else, such as no.
std::string document_text(const Document& document, bool json);

// Formats the file as YAML with comments, or as JSON, which has no comments.
HASTEN_INTERNAL_API std::string launch_file_text(const LaunchFile& file, bool json);
// Returns the keys of the file that would make Accelerate refuse it.
HASTEN_INTERNAL_API std::vector<std::string> keys_unknown_to_accelerate(const LaunchFile& file);

// Writes the file atomically and creates missing folders above it.
HASTEN_INTERNAL_API void write_launch_file(const std::string& path, const std::string& text);

struct UpdatedFile {
  std::string text;                  // In the same format as before: YAML or JSON.
  std::vector<std::string> changes;  // One line each: what was dropped, renamed or added, and why.
};

// Rewrites an older file of Accelerate with today's keys. `text` is its content; `path` selects the
// format by its ending (.json) and names the file in messages.
HASTEN_INTERNAL_API UpdatedFile updated_launch_file(const std::string& text,
                                                    const std::string& path);

}  // namespace hasten::config
