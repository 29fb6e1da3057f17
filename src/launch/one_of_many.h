// File: launch/one_of_many.h (internal)
// A launcher that another launcher has started several times: mpirun -n 2 hasten launch ...
#pragma once

#include "hasten/config/launch_options.h"
#include "hasten/config/sources.h"

namespace hasten {

// Each would start a job of its own, and both the same. Throws ConfigError "launch.one-of-many"
// where the variables of MPI, srun or Kubernetes say so, and neither flag nor variable says how
// many machines there are.
void check_not_one_of_many(const LaunchConfiguration& run, config::Environment environment);

}  // namespace hasten
