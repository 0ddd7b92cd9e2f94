"""How many tokens are computed at once, in one place: for each kind of work on a CPU and on a GPU, with the reason.

On a CPU, activations of a thousand tokens or so stay in cache, and more brings no speed; a GPU wants to be filled, and
what else a batch holds there (logits, every layer) decides how far.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TokenBudget:
    """Tokens a batch, padding inside attention included; a single longer sequence is computed all the same."""

    cpu: int
    gpu: int
    large_gpu: int = 0  # with LARGE bytes of memory; 0: as any other

    def on(self, device: torch.device) -> int:
        """The one for this device."""
        if device.type == "cpu":
            return self.cpu
        if not self.large_gpu or device.type != "cuda":
            return self.gpu
        return self.large_gpu if torch.cuda.get_device_properties(device).total_memory >= LARGE else self.gpu


LARGE = 64 << 30
# Of one layer, and nothing else is held. On an H200 1,024 tokens for each of its cores, so that none waits for the last tiles.
VECTORS = TokenBudget(cpu=1024, gpu=65536, large_gpu=135168)
PREDICTIONS = TokenBudget(cpu=1024, gpu=32768)  # logits beside them, perhaps while a run that trains holds its memory
TRAINING = TokenBudget(cpu=1536, gpu=65536)  # activations are kept anyway; a GPU's memory may allow fewer
LIKELIHOODS = TokenBudget(cpu=2048, gpu=49152)  # many copies of short texts, and MLM logits of their masked rows
ALL_LAYERS = TokenBudget(cpu=1024, gpu=16384)  # the vectors of every layer are held
