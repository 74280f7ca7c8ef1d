"""PPO with a normal policy and a learned spread."""

import torch
from own_clock import mark
from torch import nn, optim
from torch.distributions.normal import Normal


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(11, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor_mean = nn.Sequential(nn.Linear(11, 64), nn.Tanh(), nn.Linear(64, 3))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 3))

    def forward(self, x, action=None):
        mean = self.actor_mean(x)
        probs = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


torch.manual_seed(1)
agent = Agent()
optimizer = optim.Adam(agent.parameters(), lr=3e-4)
state = torch.zeros(1, 11)
mark("setup")
for iteration in range(4):
    rows = []
    for _ in range(1024):
        with torch.no_grad():
            action, logprob, _, value = agent(state)
        reward = -action.square().sum()
        rows.append((state[0], action[0], logprob[0], value[0, 0], reward))
        state = 0.9 * state + 0.3 * torch.randn(1, 11)
    states, actions, logprobs, values, rewards = map(torch.stack, zip(*rows))
    returns = rewards + 0.99 * values.roll(-1)
    advantages = returns - values
    mark("rollout")
    for _ in range(10):
        for mb in torch.randperm(1024).split(64):
            _, newlogprob, entropy, newvalue = agent(states[mb], actions[mb])
            ratio = (newlogprob - logprobs[mb]).exp()
            adv = (advantages[mb] - advantages[mb].mean()) / (advantages[mb].std() + 1e-8)
            policy_loss = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
            value_loss = (newvalue.view(-1) - returns[mb]).square().mean()
            loss = policy_loss + 0.5 * value_loss - 0.0 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            mark()
    print(iteration, loss.item())
