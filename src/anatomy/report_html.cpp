// Writes the report as one self-contained HTML page.
#include "anatomy/web/report.js.h"
#include "base/page.h"
#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

std::string to_html(const Report& report) {
  return render_page("Training anatomy", to_json(report), embedded::kReportScript);
}

}  // namespace hasten::anatomy
