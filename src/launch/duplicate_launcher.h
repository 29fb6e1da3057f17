// File: launch/duplicate_launcher.h (internal)
// Refuses a launcher that another launcher has started several times: mpirun -n 2 hasten launch ...
#pragma once

#include "hasten/options/detail/environment.h"
#include "hasten/options/launch_options.h"

namespace hasten {

// Throws ConfigError "launch.one-of-many" if the variables of MPI, srun or Kubernetes say that this
// launcher is one of several, and the user has not said how many machines there are. Each launcher
// would start the same job on its own.
void check_not_duplicate_launcher(const LaunchConfiguration& run, config::Environment environment);

}  // namespace hasten
