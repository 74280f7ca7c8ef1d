"""The library's Trainer fits a tiny BERT to pairs of sentences."""

import tempfile

import torch
from own_clock import mark
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Pairs(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, index):
        source = torch.Generator().manual_seed(index)
        ids = torch.randint(1, 1000, (32,), generator=source)
        return {"input_ids": ids, "attention_mask": torch.ones(32).long(), "labels": index % 2}


class Clock(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        mark()

    def on_epoch_begin(self, *args, **kwargs):
        mark("epoch")


config = BertConfig(
    vocab_size=1000,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=128,
)
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=16,
    num_train_epochs=2,
    logging_steps=50,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=arguments,
    train_dataset=Pairs(),
    callbacks=[Clock()],
)
trainer.train()
