"""The parts of examples/hello-deepspeed that need no torch, and what the image's files must agree on."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "hello-deepspeed"


def load(name: str) -> ModuleType:
    """One module of the example, which is a folder of scripts and no package."""
    spec = importlib.util.spec_from_file_location(f"hello_{name}", EXAMPLE / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


checkpoint, config, data, make_dataset = (
    load(name) for name in ("checkpoint", "config", "data", "make_dataset")
)


@pytest.fixture(scope="module")
def corpus() -> Any:
    return data.Corpus.load()


# The dataset


def test_the_committed_dataset_is_what_the_generator_writes() -> None:
    stories, words = make_dataset.make()
    assert (EXAMPLE / "data" / "stories.txt").read_text().splitlines() == stories
    assert (EXAMPLE / "data" / "vocabulary.txt").read_text().splitlines() == words


def test_a_masked_word_follows_from_the_others() -> None:
    stories, _ = make_dataset.make(lines=500)
    sums = [
        re.search(r"has (\w+) coins and finds (\w+) \. now \w+ has (\w+) coins", story) for story in stories
    ]
    numbers = {word: i for i, word in enumerate(make_dataset.NUMBERS, start=2)}
    found = [[numbers[word] for word in match.groups()] for match in sums if match]
    assert len(found) > 100
    assert all(first + second == total for first, second, total in found)


def test_a_word_that_the_vocabulary_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.txt").write_text("a\nb\n")
    (tmp_path / "stories.txt").write_text("a b\na zebra\n")
    with pytest.raises(SystemExit, match="zebra"):
        data.Corpus.load(tmp_path)


# Each rank's share


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_shares_are_disjoint_and_equally_long(world: int) -> None:
    shares = [data.share(100, seed=1, epoch=0, rank=rank, world=world) for rank in range(world)]
    assert {len(share) for share in shares} == {100 // world}
    together = list(itertools.chain(*shares))
    assert len(set(together)) == len(together) == 100 // world * world


def test_epochs_differ_and_repeat_with_the_seed() -> None:
    assert data.share(100, 1, 0, 0, 2) != data.share(100, 1, 1, 0, 2)
    assert data.share(100, 1, 5, 0, 2) == data.share(100, 1, 5, 0, 2)
    assert data.share(100, 2, 0, 0, 2) != data.share(100, 1, 0, 0, 2)


def test_a_resumed_run_reads_on_where_it_was(corpus: Any) -> None:
    per_epoch = len(corpus.lines) // 3 // 512
    count = per_epoch + 2  # over the end of the first epoch
    whole = list(itertools.islice(data.batches(corpus, 512, seed=1, rank=2, world=3), count))
    for start in (0, 1, per_epoch, per_epoch + 1):
        rest = itertools.islice(
            data.batches(corpus, 512, seed=1, rank=2, world=3, start=start), count - start
        )
        assert list(rest) == whole[start:]


def test_too_many_ranks_for_the_data(corpus: Any) -> None:
    with pytest.raises(SystemExit, match="too few for 1000 ranks"):
        next(data.batches(corpus, 32, seed=1, rank=0, world=1000))


# Masks


def test_masks_follow_berts_rule(corpus: Any) -> None:
    words, rng = len(corpus.vocabulary), random.Random(1)
    guessed = masked = replaced = total = 0
    for line in corpus.lines[:3000]:
        inputs, labels = data.masked(line, words, rng)
        assert len(inputs) == len(labels) == len(line)
        chosen = [i for i, label in enumerate(labels) if label != data.IGNORED]
        assert chosen
        assert all(labels[i] == line[i] for i in chosen)
        assert all(inputs[i] == line[i] for i in set(range(len(line))) - set(chosen))
        total += len(line)
        guessed += len(chosen)
        masked += sum(inputs[i] == data.MASK for i in chosen)
        replaced += sum(inputs[i] not in (data.MASK, line[i]) for i in chosen)
    assert guessed / total == pytest.approx(0.15, abs=0.01)
    assert masked / guessed == pytest.approx(0.8, abs=0.02)
    assert replaced / guessed == pytest.approx(0.1, abs=0.02)


def test_batches_are_padded_to_one_length(corpus: Any) -> None:
    inputs, labels = next(data.batches(corpus, 16, seed=1, rank=0, world=3))
    assert {len(row) for row in inputs + labels} == {corpus.length}
    for row, wanted in zip(inputs, labels, strict=True):
        assert all(label == data.IGNORED for word, label in zip(row, wanted, strict=True) if word == data.PAD)


# Checkpoints


def finish(folder: Path, step: int, model: str = "tiny", world: int = 3, **keep: int) -> None:
    """Write a whole checkpoint, as the ranks and then rank 0 do."""
    saved = checkpoint.Checkpoint(step, world, model)
    (folder / saved.tag).mkdir()
    (folder / saved.tag / "rank0.pt").write_text("weights")
    checkpoint.mark_whole(folder, saved, **keep)


def test_no_folder_and_an_empty_folder_have_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "none", "tiny") is None
    assert checkpoint.newest(tmp_path, "tiny") is None


def test_a_half_written_checkpoint_is_skipped(tmp_path: Path) -> None:
    finish(tmp_path, 40)
    (tmp_path / "step-000080").mkdir()
    (tmp_path / "step-000080" / "rank0.pt").write_text("half")
    assert checkpoint.newest(tmp_path, "tiny") == checkpoint.Checkpoint(40, 3, "tiny")
    assert (tmp_path / "latest").read_text() == "step-000040"


@pytest.mark.parametrize(
    "marker", ["", "{", "[]", '{"step": 80}', '{"step": 81, "world": 3, "model": "tiny"}']
)
def test_a_broken_marker_is_no_marker(tmp_path: Path, marker: str) -> None:
    finish(tmp_path, 40)
    (tmp_path / "step-000080").mkdir()
    (tmp_path / "step-000080" / checkpoint.MARKER).write_text(marker)
    assert checkpoint.newest(tmp_path, "tiny").step == 40


def test_the_newest_is_by_number_and_of_the_same_model(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000):
        finish(tmp_path, step)
    finish(tmp_path, 2_000_000, model="small")
    assert checkpoint.newest(tmp_path, "tiny").step == 1_000_000
    assert checkpoint.newest(tmp_path, "base") is None


def test_old_checkpoints_go_and_half_written_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "step-000010").mkdir()
    for step in (20, 40, 60):
        finish(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-000010",
        "step-000040",
        "step-000060",
    ]


def test_checkpoints_of_another_model_are_left_alone(tmp_path: Path) -> None:
    for step in (40, 60):
        finish(tmp_path, step, model="tiny", keep=1)
    finish(tmp_path, 20, model="small", keep=1)
    assert checkpoint.newest(tmp_path, "small").step == 20
    assert checkpoint.newest(tmp_path, "tiny").step == 60


def test_a_checkpoint_that_is_overwritten_is_not_whole_meanwhile(tmp_path: Path) -> None:
    finish(tmp_path, 40)
    checkpoint.unmark(tmp_path, "step-000040")
    checkpoint.unmark(tmp_path, "step-000080")  # not there yet
    assert checkpoint.newest(tmp_path, "tiny") is None


# DeepSpeed's configuration


def test_the_default_is_the_seeds_with_fp16_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSPEED_CONFIG", raising=False)
    settings, _ = config.load(None, "small", "cuda")
    assert settings["fp16"] == {"enabled": True}
    assert settings["optimizer"] == {"type": "Adam", "params": {"lr": 1e-4}}
    assert settings["zero_optimization"] == {"stage": 1, "offload_optimizer": {"device": "cpu"}}


def test_fp16_is_switched_off_on_a_cpu_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 8, "fp16": {"enabled": True}}))
    monkeypatch.setenv("DEEPSPEED_CONFIG", str(path))
    settings, said = config.load(None, "tiny", "cpu")
    assert settings["fp16"] == {"enabled": False}
    assert settings["train_micro_batch_size_per_gpu"] == 8
    assert any("fp16 is switched off" in line for line in said)
    assert config.DEFAULT["fp16"] == {"enabled": True}


def test_the_named_file_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 4}')
    monkeypatch.setenv("DEEPSPEED_CONFIG", "/not/there")
    assert config.load(str(path), "tiny", "cuda")[0]["train_micro_batch_size_per_gpu"] == 4


@pytest.mark.parametrize(
    ("text", "says"), [(None, "No such file"), ("{", "is not JSON"), ("[]", "holds a list")]
)
def test_a_bad_configuration_ends_with_a_sentence(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "ds.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=says):
        config.load(str(path), "tiny", "cpu")


# The image


def test_dockerfile_has_the_versions_of_versions_env() -> None:
    versions = dict(re.findall(r"^(\w+)=(\S+)$", (ROOT / "versions.env").read_text(), flags=re.M))
    defaults = re.findall(r"^ARG (\w+_VERSION)=(\S+)$", (ROOT / "Dockerfile.base").read_text(), flags=re.M)
    assert {name for name, _ in defaults} == {"TORCH_VERSION", "DEEPSPEED_VERSION", "TENSORBOARD_VERSION"}
    assert all(versions[name] == value for name, value in defaults)


def test_image_dependencies_are_pinned() -> None:
    lines = (ROOT / "image" / "requirements.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|[a-z0-9-]+==[0-9.]+", line) for line in lines)
