"""A learner whose loop is driven by callbacks: schedule, recorder, metrics."""

import math

import torch
from own_clock import mark
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def __call__(self, event, learner):
        method = getattr(self, event, None)
        if method is not None:
            method(learner)


class OneCycle(Callback):
    def before_batch(self, learner):
        if learner.training:
            done = learner.count / learner.total
            rate = 1e-2 * (0.5 - 0.5 * math.cos(2 * math.pi * done)) + 1e-4
            learner.opt.param_groups[0]["lr"] = rate


class Recorder(Callback):
    def __init__(self):
        self.losses, self.smooth = [], 0.0

    def after_batch(self, learner):
        if learner.training:
            self.smooth = 0.98 * self.smooth + 0.02 * learner.loss.item()
            self.losses.append(self.smooth)

    def after_epoch(self, learner):
        print(learner.epoch, self.smooth, learner.right / learner.seen)


class Learner:
    def __init__(self, train, valid, model, callbacks):
        self.train, self.valid, self.model, self.callbacks = train, valid, model, callbacks
        self.opt = torch.optim.Adam(model.parameters())

    def call(self, event):
        for callback in self.callbacks:
            callback(event, self)

    def one_batch(self, xb, yb):
        self.call("before_batch")
        pred = self.model(xb)
        self.loss = nn.functional.cross_entropy(pred, yb)
        if self.training:
            self.loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            self.count += 1
            mark()
        else:
            self.right += (pred.argmax(1) == yb).sum().item()
            self.seen += len(yb)
        self.call("after_batch")

    def fit(self, epochs):
        self.count, self.total = 0, epochs * len(self.train)
        for self.epoch in range(epochs):
            self.right = self.seen = 0
            for self.training, loader in ((True, self.train), (False, self.valid)):
                self.model.train(self.training)
                with torch.set_grad_enabled(self.training):
                    for xb, yb in loader:
                        self.one_batch(xb, yb)
            self.call("after_epoch")
            mark("evaluation")


torch.manual_seed(0)
x = torch.randn(12_000, 64)
data = TensorDataset(x, (x[:, :2].sum(1) > 0).long())
train, valid = torch.utils.data.random_split(data, [10_240, 1_760])
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.BatchNorm1d(256), nn.Linear(256, 2))
loaders = DataLoader(train, 128, shuffle=True), DataLoader(valid, 256)
Learner(*loaders, model, [OneCycle(), Recorder()]).fit(4)
