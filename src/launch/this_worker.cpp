// A file of its own, because worker.cpp needs no option engine: a fuzz target compiles it without.
#include "hasten/launch/worker.h"

namespace hasten {

Worker this_worker() { return worker_of(config::whole_environment()); }

}  // namespace hasten
