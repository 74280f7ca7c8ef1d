"""PPO: rollouts of 512 steps, then four epochs of minibatches."""

import numpy as np
import torch
from own_clock import mark
from torch import nn, optim
from torch.distributions.categorical import Categorical


def layer_init(layer, std=np.sqrt(2)):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(8, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), 1.0)
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(8, 64)), nn.Tanh(), layer_init(nn.Linear(64, 4), 0.01)
        )

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


class VectorEnv:
    def __init__(self, count=4):
        self.source, self.count = np.random.default_rng(0), count

    def step(self, actions):
        states = self.source.standard_normal((self.count, 8)).astype(np.float32)
        return states, (actions % 4 == 0).astype(np.float32)


torch.manual_seed(1)
num_steps, envs, agent = 512, VectorEnv(), Agent()
optimizer = optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
next_obs = torch.zeros(4, 8)
mark("setup")
for iteration in range(8):
    obs, actions = torch.zeros(num_steps, 4, 8), torch.zeros(num_steps, 4)
    logprobs, rewards, values = (torch.zeros(num_steps, 4) for _ in range(3))
    for step in range(num_steps):
        obs[step] = next_obs
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
        values[step], actions[step], logprobs[step] = value.flatten(), action, logprob
        state, reward = envs.step(action.numpy())
        rewards[step], next_obs = torch.from_numpy(reward), torch.from_numpy(state)
    advantages, last = torch.zeros_like(rewards), 0.0
    for t in reversed(range(num_steps)):
        following = values[t + 1] if t + 1 < num_steps else values[t]
        last = rewards[t] + 0.99 * following - values[t] + 0.99 * 0.95 * last
        advantages[t] = last
    returns = advantages + values
    b_obs, b_actions, b_logprobs = obs.reshape(-1, 8), actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    indices = np.arange(num_steps * 4)
    mark("rollout")
    for _ in range(4):
        np.random.shuffle(indices)
        for start in range(0, len(indices), 256):
            mb = indices[start : start + 256]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                b_obs[mb], b_actions.long()[mb]
            )
            ratio = (newlogprob - b_logprobs[mb]).exp()
            adv = b_advantages[mb]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
            v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            mark()
    print(iteration, loss.item())
