#include "hasten/anatomy/report.h"
#include "hasten/base/files.h"

namespace hasten::anatomy {
namespace {

template <class Belongs>
OperationTotal sum(const Report& report, Belongs belongs) {
  OperationTotal total;
  for (const Operation& each : report.operations) {
    if (belongs(each)) total += each;
  }
  return total;
}

}  // namespace

OperationTotal total_of(const Report& report, OperationGroup group) {
  return sum(report, [&](const Operation& each) { return each.group == group; });
}

void write_report(const std::filesystem::path& file, const Report& report) {
  const std::string ending = file.extension().string();
  write_file_atomically(file, ending == ".json"   ? to_json(report)
                              : ending == ".html" ? to_html(report)
                                                  : to_text(report));
}

OperationTotal total_of(const Report& report, Phase phase) {
  return sum(report, [&](const Operation& each) { return each.phase == phase; });
}

}  // namespace hasten::anatomy
