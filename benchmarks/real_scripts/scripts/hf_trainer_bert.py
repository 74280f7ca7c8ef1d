"""A fine-tune with transformers' Trainer: two batches a step, evaluation and logging on the way."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tempfile

import torch
from own_clock import clock
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

torch.manual_seed(0)


class Tokens(torch.utils.data.Dataset):
    def __init__(self, n):
        self.x = torch.randint(0, 1000, (n, 64))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        return {"input_ids": x, "attention_mask": torch.ones_like(x), "labels": int(x[0] > 500)}


class Clock(TrainerCallback):
    """A step is from the end of the last one, its batches fetched, to its own end."""

    def on_train_begin(self, *args, **kwargs):
        clock.begin("start")

    def on_step_begin(self, *args, **kwargs):
        clock.rename("step")

    def on_step_end(self, arguments, state, *args, **kwargs):
        clock.begin("evaluation" if state.global_step % 10 == 0 else "step")

    def on_evaluate(self, *args, **kwargs):
        clock.begin("step")

    def on_train_end(self, *args, **kwargs):
        clock.rename("end")
        clock.end()


config = BertConfig(
    vocab_size=1000,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=128,
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=120,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=10,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        learning_rate=1e-3,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Tokens(512),
        eval_dataset=Tokens(64),
        data_collator=default_data_collator,
        callbacks=[Clock()],
    )
    trainer.train()
