"""Two ranks with sentences of very different lengths; each is the late one as often."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SHORT, LONG = 60, 24, 232


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    width = 96
    layer = nn.TransformerEncoderLayer(width, 4, 3 * width, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(500, width),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Linear(width, 500),
    )
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        first = bool(torch.randint(0, 2, (), generator=source))
        # Each rank gets half of the long sentences and half of the short ones.
        halves = [(4, LONG), (4, SHORT)] if first else [(4, SHORT), (4, LONG)]
        losses = []
        for sentences, length in halves:
            tokens = torch.randint(0, 500, (sentences, length))
            scores = model(tokens)[:, :-1].flatten(0, 1)
            losses.append(nn.functional.cross_entropy(scores, tokens[:, 1:].flatten()))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


main()
