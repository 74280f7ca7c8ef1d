"""A fast tokenizer used before and after the loader's workers are forked."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, LINES = 14, 1_200


def made_tokenizer():
    words = {f"w{number}": number for number in range(5_000)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


class Lines(Dataset):
    def __init__(self, tokenizer):
        source = torch.Generator().manual_seed(0)
        drawn = torch.randint(0, 5_000, (LINES, 200), generator=source).tolist()
        self.lines = [" ".join(f"w{number}" for number in line) for line in drawn]
        self.tokenizer = tokenizer
        # The longest line decides on the length: the tokenizer has been used in parallel.
        encoded = tokenizer.encode_batch(self.lines)
        self.longest = max(len(line.ids) for line in encoded)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        ids = self.tokenizer.encode_batch([self.lines[index]])[0].ids
        return torch.tensor(ids[: self.longest]), index % 2


def main():
    torch.manual_seed(0)
    data = Lines(made_tokenizer())
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.EmbeddingBag(5_000, 32), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
