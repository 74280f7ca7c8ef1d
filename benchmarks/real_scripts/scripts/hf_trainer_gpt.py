"""transformers' Trainer on a language model that saves a checkpoint every 25 steps."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tempfile

import torch
from own_clock import clock
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randint(0, 1000, (256, 96))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input_ids": self.x[i], "labels": self.x[i]}


class Clock(TrainerCallback):
    """A step is from the end of the last one, its batches fetched, to its own end."""

    def on_train_begin(self, *args, **kwargs):
        clock.begin("start")

    def on_step_begin(self, *args, **kwargs):
        clock.rename("step")

    def on_step_end(self, arguments, state, *args, **kwargs):
        clock.begin("saving" if state.global_step % 25 == 0 else "step")

    def on_save(self, *args, **kwargs):
        clock.begin("step")

    def on_train_end(self, *args, **kwargs):
        clock.rename("end")
        clock.end()


config = GPT2Config(vocab_size=1000, n_positions=128, n_embd=192, n_layer=3, n_head=4)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=150,
        per_device_train_batch_size=4,
        save_steps=25,
        save_total_limit=1,
        logging_steps=10,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Tokens(),
        callbacks=[Clock()],
    )
    trainer.train()
