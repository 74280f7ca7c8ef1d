"""Cross-validation: a new model and optimizer for each of five folds."""

import torch
from own_clock import mark
from torch import nn

torch.manual_seed(0)
values = torch.randn(2000, 128)
labels = (values[:, :3].sum(1) > 0).long()
folds = torch.randperm(2000).chunk(5)
scores = []
for number, held in enumerate(folds):
    kept = torch.cat([fold for i, fold in enumerate(folds) if i != number])
    model = nn.Sequential(
        nn.Linear(128, 256),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    mark("fold")
    for epoch in range(6):
        model.train()
        for chosen in kept[torch.randperm(len(kept))].split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(values[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            mark()
        model.eval()
        with torch.no_grad():
            score = (model(values[held]).argmax(1) == labels[held]).float().mean().item()
        mark("evaluation")
    scores.append(score)
    print(number, score)
print(sum(scores) / 5)
