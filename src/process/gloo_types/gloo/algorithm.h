// Included by c10d/ProcessGroupGloo.hpp, which uses nothing of it. See the README two folders up.
#pragma once
