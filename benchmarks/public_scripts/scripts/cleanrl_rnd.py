"""PPO with random network distillation: a frozen and a predicting network give the bonus."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim
from torch.distributions.categorical import Categorical


def trunk(outputs):
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, outputs),
    )


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = trunk(128)
        self.actor, self.critic = nn.Linear(128, 4), nn.Linear(128, 1)

    def forward(self, x):
        hidden = F.relu(self.network(x))
        return Categorical(logits=self.actor(hidden)), self.critic(hidden)


torch.manual_seed(1)
agent, predictor, fixed = Agent(), trunk(128), trunk(128).requires_grad_(False)
optimizer = optim.Adam([*agent.parameters(), *predictor.parameters()], lr=1e-4)
mark("setup")
for update in range(4):
    rows, frame = [], torch.rand(8, 1, 48, 48)
    for _ in range(64):
        with torch.no_grad():
            probs, value = agent(frame)
            action = probs.sample()
            bonus = (fixed(frame) - predictor(frame)).square().mean(1)
        rows.append((frame, action, probs.log_prob(action), value[:, 0], bonus))
        frame = (0.8 * frame + 0.2 * torch.rand(8, 1, 48, 48)).clamp(0, 1)
    obs, actions, logprobs, values, rewards = (torch.cat(x) for x in zip(*rows))
    advantages = rewards + 0.999 * values.roll(-8) - values
    mark("rollout")
    for _ in range(3):
        for mb in torch.randperm(512).split(64):
            forward_loss = F.mse_loss(predictor(obs[mb]), fixed(obs[mb]).detach())
            probs, newvalue = agent(obs[mb])
            ratio = (probs.log_prob(actions[mb]) - logprobs[mb]).exp()
            pg_loss = torch.max(
                -advantages[mb] * ratio, -advantages[mb] * ratio.clamp(0.9, 1.1)
            ).mean()
            v_loss = (newvalue[:, 0] - (advantages + values)[mb]).square().mean()
            loss = pg_loss - 0.001 * probs.entropy().mean() + 0.5 * v_loss + forward_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mark()
    print(update, loss.item())
