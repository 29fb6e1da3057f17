#include "checkpoint/gradient_bytes.h"

#include <ATen/core/Tensor.h>

#include <string>

#include "base/parse_number.h"
#include "base/process_state.h"
#include "hasten/base/text.h"

namespace hasten {

std::uintmax_t bytes_of_gradients(const Group& group, const TensorDict& own,
                                  bool folder_of_each_machine) {
  std::uintmax_t bytes = 0, all = 0;
  for (const auto& [name, tensor] : own) bytes += tensor.nbytes();
  const std::string host = host_name();
  for (const std::string& of_rank : group.gather_object(str(bytes, ' ', host))) {
    const std::size_t space = of_rank.find(' ');
    if (folder_of_each_machine && of_rank.substr(space + 1) != host) continue;
    all += parse_number<std::uintmax_t>(of_rank.substr(0, space)).value_or(0);
  }
  return all;
}

}  // namespace hasten
