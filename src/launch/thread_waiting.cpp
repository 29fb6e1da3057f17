#include "launch/thread_waiting.h"

#include <cstdlib>

namespace hasten {

std::optional<std::pair<std::string, std::string>> thread_waiting_variable() {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return std::nullopt;
  return std::pair<std::string, std::string>("GOMP_SPINCOUNT", "2000");
}

}  // namespace hasten
