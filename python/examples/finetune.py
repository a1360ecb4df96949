"""Fine-tunes a small language model in one process, and goes on bit for bit after being killed.

    python examples/finetune.py --run runs/finetune --steps 60 --die-at 35
    python examples/finetune.py --run runs/finetune --steps 60

prints the same losses, from where it was saved last, as `--run runs/other --steps 60` does without dying. Lines marked
with `# <-` are all that saving and resuming take. Needs torch; the model is one of transformers where that is
installed.
"""

from __future__ import annotations

import argparse
import os
import signal

import torch
from torch import nn
from torch.utils.data import Dataset

from waystation import CheckpointManager
from waystation.torch import Progress, ResumableSampler, TrainingState, digest_of_dataset

TEXT = """The morning train was late again, and the people on the platform looked at the clock, then at one another,
then at the clock. A boy counted the carriages of a goods train that would not end. Somebody laughed. When at last the
signal
changed nobody saw it, for they had all begun to talk. """ * 20
LENGTH, BATCH, WIDTH = 32, 16, 64


class Letters(Dataset):
    """Pieces of the text, a letter a token."""

    def __init__(self) -> None:
        letters = sorted(set(TEXT))
        self.vocabulary = len(letters)
        self.tokens = torch.tensor([letters.index(letter) for letter in TEXT])

    def __len__(self) -> int:
        return len(self.tokens) // LENGTH - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index * LENGTH : index * LENGTH + LENGTH + 1]


class Small(nn.Module):
    """What is fine-tuned where transformers is not installed."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        places = torch.arange(tokens.shape[1])
        return self.head(self.layers(self.tokens(tokens) + self.places(places), mask=mask, is_causal=True))


def make_model(vocabulary: int) -> nn.Module:
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return Small(vocabulary)
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=4,
                                      bos_token_id=0, eos_token_id=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="runs/finetune", help="where checkpoints go (%(default)s)")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps in all (%(default)s)")
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints (%(default)s)")
    parser.add_argument("--die-at", type=int, help="end this process with SIGKILL after so many steps")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # so small a model is no faster on more
    torch.manual_seed(0)
    dataset = Letters()
    model = make_model(dataset.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    source = digest_of_dataset("letters", TEXT, LENGTH)
    data = ResumableSampler(len(dataset), BATCH, seed=1, source=source)  # <- the batch_sampler of the loader
    loader = data.loader(dataset)
    progress = Progress(samples=0)
    state = TrainingState(model, optimizer, schedulers=schedule, data={"train": data}, progress=progress)  # <-

    with CheckpointManager(arguments.run, every=arguments.every, keep_last=3, pool_bytes="auto") as manager:  # <-
        checkpoint = manager.resume()  # <-
        if checkpoint is not None:  # <-
            print(f"resumed from step {checkpoint.step}: {state.restore(checkpoint)}")  # <-
        while progress.optimizer_step < arguments.steps:
            for batch in loader:
                logits = model(batch[:, :-1])
                logits = getattr(logits, "logits", logits)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                loss.backward()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                state.step()  # <- counts the step, and the data that it consumed
                print(f"step {progress.optimizer_step} epoch {data.epoch} loss {loss.item():.9f}", flush=True)
                if manager.should_save(progress.optimizer_step):  # <- every so many steps, and on SIGTERM
                    state.save(manager)  # <- returns once all is copied; it is written meanwhile
                if progress.optimizer_step == arguments.die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if manager.preempted or progress.optimizer_step == arguments.steps:  # <-
                    return


if __name__ == "__main__":
    main()
