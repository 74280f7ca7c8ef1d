"""A network of raw tensors with a backward pass and an update by hand."""

import torch
from own_clock import mark

import gobrrr

torch.manual_seed(0)
vocabulary, block, width, hidden = 27, 8, 10, 300
table = torch.randn(vocabulary, width)
w1, b1 = torch.randn(block * width, hidden) * 0.1, torch.zeros(hidden)
w2, b2 = torch.randn(hidden, vocabulary) * 0.05, torch.zeros(vocabulary)
contexts = torch.randint(0, vocabulary, (50_000, block))
following = contexts[:, 0]
mark("setup")
for i in range(900):
    with gobrrr.step(), torch.no_grad():
        ix = torch.randint(0, 50_000, (256,))
        xb, yb = contexts[ix], following[ix]
        emb = table[xb].view(len(ix), -1)
        h = torch.tanh(emb @ w1 + b1)
        logits = h @ w2 + b2
        probs = torch.softmax(logits, 1)
        loss = -probs[torch.arange(256), yb].log().mean()
        dlogits = probs.clone()
        dlogits[torch.arange(256), yb] -= 1
        dlogits /= 256
        dw2, db2 = h.T @ dlogits, dlogits.sum(0)
        dpre = (1 - h**2) * (dlogits @ w2.T)
        dw1, db1 = emb.T @ dpre, dpre.sum(0)
        demb = (dpre @ w1.T).view(256, block, width)
        dtable = torch.zeros_like(table).index_add_(0, xb.flatten(), demb.flatten(0, 1))
        for p, g in ((table, dtable), (w1, dw1), (b1, db1), (w2, dw2), (b2, db2)):
            p -= 0.1 * g
    mark()
    if i % 200 == 0:
        print(i, loss.item())
