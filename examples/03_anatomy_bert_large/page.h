#pragma once

// Predicts what Hugging Face's documentation measured on a V100 and prints both side by side. Then
// predicts the same for today's PyTorch, one change after the other.
void compare_with_page();
