"""A small BERT: word and position embeddings, a few encoder layers, and the guess of each masked word."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data import IGNORED, PAD

# width, layers, heads
SIZES = {"tiny": (128, 2, 4), "small": (512, 6, 8), "base": (768, 12, 12)}


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to what it read."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """X is [batch, length, width]; WORDS says which places hold a word, [batch, 1, 1, length]."""
        batch, length, width = x.shape
        parts = self.query_key_value(self.before_attention(x))
        query, key, value = parts.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=words)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(x)


class MaskedLanguageModel(nn.Module):
    """Returns the mean loss of the guesses, which is all that training needs."""

    def __init__(self, size: str, vocabulary: int, length: int) -> None:
        super().__init__()
        width, layers, heads = SIZES[size]
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for embedding in (self.words, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """INPUTS and LABELS are word numbers, [batch, length]."""
        x = self.words(inputs) + self.positions.weight[: inputs.shape[1]]
        words = (inputs != PAD)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, words)
        # Only the masked places are compared with all words: the same embeddings are read backwards.
        guessed = labels != IGNORED
        scores = F.linear(self.norm(x[guessed]), self.words.weight, self.bias)
        return F.cross_entropy(scores.float(), labels[guessed])
