"""The rows of the step benchmarks: random token ids, attention masks of ones, and a label for each row.

This is a separate module because importing it imports torch. The programs do that only after they have read their options.
"""
import torch


class TokenRows(torch.utils.data.Dataset):
    """The data set of `ids` [rows, length] and `labels` [rows], or [rows, length] for a language model."""

    def __init__(self, ids, labels):
        self.ids, self.labels = ids, labels
        self.mask = torch.ones(ids.shape[1], dtype=torch.long)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return dict(input_ids=self.ids[index], attention_mask=self.mask, labels=self.labels[index])
