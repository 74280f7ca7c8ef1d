"""Greedy decoding with a key-value cache of one's own."""

import torch
from torch import nn

REQUESTS, TOKENS, LAYERS, WIDTH, BATCH = 2, 500, 4, 512, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, cache, at):
        q, k, v = self.qkv(x).chunk(3, -1)
        if not at:
            cache["k"] = torch.empty(BATCH, TOKENS, WIDTH)
            cache["v"] = torch.empty(BATCH, TOKENS, WIDTH)
        cache["k"][:, at : at + 1], cache["v"][:, at : at + 1] = k, v
        k, v = cache["k"][:, : at + 1], cache["v"][:, : at + 1]
        weight = torch.softmax(q @ k.transpose(1, 2) / WIDTH**0.5, -1)
        return x + self.out(weight @ v)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(200, WIDTH)
        self.layers = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 200)

    def forward(self, token, caches, at):
        x = self.embed(token)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, at)
        return self.head(x)


def main():
    torch.manual_seed(0)
    model = Decoder().eval()
    with torch.inference_mode():
        for request in range(REQUESTS):
            caches = [{} for _ in range(LAYERS)]
            token = torch.randint(0, 200, (BATCH, 1))
            for at in range(TOKENS):
                token = model(token, caches, at).argmax(-1)
            print(request, token.flatten().tolist())


main()
