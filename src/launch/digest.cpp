#include "launch/digest.h"

#include "base/sha256.h"
#include "launch/programs.h"

namespace hasten {

std::string digest_of_program(const std::vector<std::string>& program) {
  return digest_of_file(find_program(program[0])).sha256;
}

}  // namespace hasten
