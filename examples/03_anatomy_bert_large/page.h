#pragma once

// Predicts what Hugging Face's documentation measured on a V100 and prints both side by side. Then
// prints the effect of each change since then.
void compare_with_page();
