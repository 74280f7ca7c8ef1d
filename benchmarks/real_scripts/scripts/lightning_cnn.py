"""A Lightning module with validation after each epoch, a scheduler and metrics."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tempfile

import lightning
import torch
from own_clock import clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, 10),
        )

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        out = self.net(x)
        self.log("val_loss", nn.functional.cross_entropy(out, y))
        self.log("val_accuracy", (out.argmax(-1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class Clock(lightning.Callback):
    def on_train_batch_start(self, *args, **kwargs):
        clock.begin("step")

    def on_validation_start(self, *args, **kwargs):
        clock.begin("evaluation")

    def on_validation_end(self, *args, **kwargs):
        clock.end()

    def on_train_epoch_end(self, *args, **kwargs):
        clock.end()


def data(n):
    return TensorDataset(torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            default_root_dir=folder,
            max_epochs=8,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            num_sanity_val_steps=0,
            callbacks=[Clock()],
        )
        train = DataLoader(data(512), batch_size=32, shuffle=True)
        trainer.fit(Classifier(), train, DataLoader(data(256), batch_size=32))
