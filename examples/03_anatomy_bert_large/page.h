#pragma once

// Predicts what Hugging Face's documentation measured on a V100, prints both side by side, and then
// the effect of each change since.
void compare_with_page();
