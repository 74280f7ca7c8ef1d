"""Lightning: a recurrent network on letters, with a validation at the end of each epoch."""

import os

import lightning
import torch
from python_text import rows
from step_clock import ready, step_done
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Letters(lightning.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, 256)

    def loss_of(self, batch):
        (letters,) = batch
        found, _ = self.lstm(self.embed(letters[:, :-1]))
        return nn.functional.cross_entropy(self.head(found).flatten(0, 1), letters[:, 1:].flatten())

    def training_step(self, batch, index):
        loss = self.loss_of(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss_of(batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Clock(lightning.Callback):
    def on_train_start(self, *args, **kwargs):
        step_done()

    def on_train_batch_end(self, *args, **kwargs):
        step_done()


def main():
    ready()
    device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
    width, length, batch = (32, 32, 4) if small else (512, 128, 64)
    steps = int(os.environ.get("STEPS", "100"))
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu" if device == "cpu" else "gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[Clock()] if os.environ.get("STEP_CLOCK") else [],
    )
    train = DataLoader(TensorDataset(rows(length, batch * steps // 2)), batch, shuffle=True)
    trainer.fit(Letters(width), train, DataLoader(TensorDataset(rows(length, 8 * batch)), batch))


if __name__ == "__main__":
    main()
