"""Games of a small board against itself, then a round of training on them."""

import random

import torch
from own_clock import mark
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 9, 128),
            nn.ReLU(),
        )
        self.policy, self.value = nn.Linear(128, 9), nn.Linear(128, 1)

    def forward(self, board):
        hidden = self.body(board.view(-1, 1, 3, 3))
        return self.policy(hidden), torch.tanh(self.value(hidden))


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def play(net):
    board, player, moves = [0.0] * 9, 1.0, []
    while True:
        seen = torch.tensor([player * cell for cell in board])
        with torch.no_grad():
            policy, _ = net(seen)
        free = [i for i in range(9) if board[i] == 0]
        weights = torch.softmax(policy[0][free], 0).tolist()
        move = random.choices(free, weights)[0]
        board[move] = player
        moves.append((seen, move, player))
        if any(all(board[i] == player for i in line) for line in LINES):
            return [(s, m, 1.0 if p == player else -1.0) for s, m, p in moves]
        if len(free) == 1:
            return [(s, m, 0.0) for s, m, _ in moves]
        player = -player


random.seed(0)
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
mark("setup")
for iteration in range(4):
    examples = [example for _ in range(80) for example in play(net)]
    mark("games")
    for _ in range(90):
        chosen = random.sample(examples, 64)
        boards = torch.stack([board for board, _, _ in chosen])
        wanted = torch.tensor([move for _, move, _ in chosen])
        outcome = torch.tensor([value for _, _, value in chosen])
        policy, value = net(boards)
        loss = nn.functional.cross_entropy(policy, wanted)
        loss = loss + (value.squeeze(1) - outcome).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mark()
    print(iteration, len(examples), loss.item())
