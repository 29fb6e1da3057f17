// The command that starts processes; `hasten` runs it itself.
#pragma once

namespace hasten::cli {

int launch(int argc, char** argv);

}  // namespace hasten::cli
