#pragma once

// Predicts what the documentation measured on its V100, prints both side by side, and says where
// each difference comes from.
void compare_with_page();
