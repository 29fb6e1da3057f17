// c10d/ProcessGroupGloo.hpp includes this header but uses nothing of it. See gloo_types/README.md.
#pragma once
