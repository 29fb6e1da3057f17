// File: process/openmp.h (internal)
#pragma once

namespace hasten {

// Ends the threads of every OpenMP library in the process; they come again when they are needed. A
// fork made while they wait would wait for them forever, as it has none of them.
void pause_openmp();

}  // namespace hasten
