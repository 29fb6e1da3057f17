#include "prepare/registered_objects.h"

#include <cstddef>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "prepare/state_files.h"

namespace hasten {

namespace fs = std::filesystem;

void call_with(const std::vector<std::shared_ptr<CheckpointFunction>>& functions,
               const fs::path& folder) {
  // A function may register others, or remove itself while it runs.
  const std::vector<std::shared_ptr<CheckpointFunction>> registered(functions.begin(),
                                                                    functions.end());
  for (const auto& each : registered) {
    const CheckpointFunction function = *each;
    if (function) function(folder);
  }
}

std::map<std::string, TensorDict> object_states(const SavedObjects& saved) {
  std::map<std::string, TensorDict> states;
  for (std::size_t i = 0; i < saved.objects.size(); ++i)
    states[object_file(i)] = saved.objects[i]->state_dict();
  return states;
}

void check_object_count(const SavedObjects& saved, const fs::path& folder) {
  std::size_t before = 0;
  while (fs::exists(folder / object_file(before))) ++before;
  if (saved.objects.size() == before) return;
  throw UsageError(
      "checkpoint.other-objects",
      {.what = folder.string(),
       .got = str(saved.objects.size(), " objects that are registered now"),
       .expected = str(before, ", as when the checkpoint was saved"),
       .hint = "register the same objects, in the same order, before the run resumes"});
}

void restore_objects(const SavedObjects& saved, const std::map<std::string, TensorDict>& states) {
  for (std::size_t i = 0; i < saved.objects.size(); ++i) {
    const auto found = states.find(object_file(i));
    if (found != states.end()) saved.objects[i]->load_state_dict(found->second);
  }
}

void load_objects(const SavedObjects& saved, const fs::path& folder) {
  for (std::size_t i = 0; i < saved.objects.size(); ++i)
    saved.objects[i]->load_state_dict(load_safetensors(folder / object_file(i)));
}

}  // namespace hasten
