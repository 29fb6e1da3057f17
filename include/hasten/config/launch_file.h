// File: hasten/config/launch_file.h
// Configuration files of `hasten launch` as they are written: Accelerate's keys and forms, so that
// Accelerate reads them too.
//
//   config::LaunchFile file = config::launch_file_here();   // this machine's GPUs, TPUs or CPU
//   file.mixed_precision = LaunchPrecision::bf16;
//   config::write_launch_file(path, config::launch_file_text(file, /*json=*/false));
//   const config::UpdatedFile now = config::updated_launch_file(read_file(path), path);
//
// Needs no torch. Thread rule: values and pure functions but for the file written. Throws
// ConfigError, IoError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hasten/config/launch_options.h"

namespace hasten::config {

struct LaunchFile {
  std::int64_t num_machines = 1;
  std::int64_t machine_rank = 0;  // these five only where there are more machines
  std::string main_process_ip;
  std::int64_t main_process_port = 29500;
  std::string rdzv_backend = "static";  // or c10d
  bool same_network = true;
  bool use_cpu = false;
  std::int64_t num_processes = 1;  // on all machines together
  std::string gpu_ids = "all";
  bool enable_cpu_affinity = false;
  LaunchPrecision mixed_precision = LaunchPrecision::no;
  bool debug = false;
  bool tpu = false;  // these only where there are TPUs; use_cpu and gpu_ids then do not count
  bool downcast_bf16 = false;
  std::vector<std::string> tpu_env;  // NAME=value
  std::string tpu_name;              // these four are for hasten tpu-config
  std::string tpu_zone;
  std::vector<std::string> commands;
  std::string command_file;
  std::int64_t max_restarts = 0;  // Accelerate does not know these two; written where they are set
  std::string log_dir;
};

// A process for each GPU, else for each TPU chip, else one on the CPU.
LaunchFile launch_file_here();
LaunchFile launch_file_for(std::size_t gpus, std::size_t tpus);

// YAML, or JSON. With comments, which JSON has none of.
std::string launch_file_text(const LaunchFile& file, bool json);
// Keys of the file that Accelerate would refuse it for.
std::vector<std::string> own_keys(const LaunchFile& file);

// Whole or not at all; folders above it are made.
void write_launch_file(const std::string& path, const std::string& text);

struct UpdatedFile {
  std::string text;                  // the same form, YAML or JSON
  std::vector<std::string> changes;  // one line each: what was dropped or renamed, and why
};

// An older file of Accelerate's in today's keys. `text` is the file's, `path` its name in messages.
UpdatedFile updated_launch_file(const std::string& text, const std::string& path);

}  // namespace hasten::config
