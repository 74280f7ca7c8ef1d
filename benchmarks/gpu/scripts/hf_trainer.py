"""transformers' Trainer: a small GPT-2 on letters, in bfloat16 on a GPU, two loader workers."""

import os
import tempfile

import torch
from python_text import rows
from step_clock import ready, step_done
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Text(torch.utils.data.Dataset):
    def __init__(self, length, count):
        self.rows = rows(length, count)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Clock(TrainerCallback):
    def on_train_begin(self, *args, **kwargs):
        step_done()

    def on_step_end(self, *args, **kwargs):
        step_done()


def main():
    ready()
    device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
    width, layers, length, batch = (64, 2, 32, 4) if small else (768, 12, 512, 16)
    config = GPT2Config(
        vocab_size=256,
        n_positions=length,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        bos_token_id=0,
        eos_token_id=0,
    )
    steps = int(os.environ.get("STEPS", "80"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            bf16=device != "cpu",
            use_cpu=device == "cpu",
            dataloader_num_workers=2,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=arguments,
            train_dataset=Text(length, batch * steps),
            callbacks=[Clock()] if os.environ.get("STEP_CLOCK") else [],
        )
        trainer.train()


if __name__ == "__main__":
    main()
