"""The text, its vocabulary, each rank's own share of it, and the masks. Plain Python: no torch in here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "data"
PAD, MASK = 0, 1
SPECIAL = ["[PAD]", "[MASK]"]
IGNORED = -100  # the label of a word that is not to be guessed, as cross_entropy knows it


@dataclass(frozen=True)
class Corpus:
    """All stories as lists of word numbers."""

    lines: list[list[int]]
    vocabulary: list[str]
    length: int

    @classmethod
    def load(cls, folder: Path = FOLDER) -> Corpus:
        """Read both files; a word of the text that the vocabulary lacks is an error."""
        vocabulary = [*SPECIAL, *(folder / "vocabulary.txt").read_text().split()]
        number = {word: i for i, word in enumerate(vocabulary)}
        try:
            lines = [[number[word] for word in line.split()] for line in (folder / "stories.txt").open()]
        except KeyError as word:
            raise SystemExit(f"{folder}/vocabulary.txt lacks {word}: run make_dataset.py again") from None
        return cls(lines, vocabulary, max(map(len, lines)))


def share(size: int, seed: int, epoch: int, rank: int, world: int) -> list[int]:
    """The lines that a rank reads in an epoch: disjoint, equally long, others in each epoch."""
    order = list(range(size))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order[rank : size - size % world : world]


def masked(line: list[int], words: int, rng: random.Random) -> tuple[list[int], list[int]]:
    """BERT's rule: guess 15% of the words, at least one; of those 80% are masked, 10% replaced, 10% left."""
    inputs, labels = list(line), [IGNORED] * len(line)
    chosen = [i for i in range(len(line)) if rng.random() < 0.15] or [rng.randrange(len(line))]
    for i in chosen:
        labels[i] = line[i]
        fate = rng.random()
        if fate < 0.8:
            inputs[i] = MASK
        elif fate < 0.9:
            inputs[i] = rng.randrange(len(SPECIAL), words)
    return inputs, labels


def batches(
    corpus: Corpus, batch: int, seed: int, rank: int, world: int, start: int = 0
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Endless padded batches (inputs, labels) of one rank, from number START on, for a resumed run."""
    per_epoch = len(corpus.lines) // world // batch
    if per_epoch == 0:
        raise SystemExit(f"{len(corpus.lines)} lines are too few for {world} ranks with batches of {batch}")
    number = start
    while True:
        epoch, skip = divmod(number, per_epoch)
        mine = share(len(corpus.lines), seed, epoch, rank, world)
        for i in range(skip, per_epoch):
            rows = []
            for line in mine[i * batch : (i + 1) * batch]:
                rng = random.Random(f"{seed}/{epoch}/{line}")
                rows.append(masked(corpus.lines[line], len(corpus.vocabulary), rng))
            yield (
                [inputs + [PAD] * (corpus.length - len(inputs)) for inputs, _ in rows],
                [labels + [IGNORED] * (corpus.length - len(labels)) for _, labels in rows],
            )
            number += 1
