"""Whether so many ranks can share a batch, by DeepSpeed's own equation, and with which accumulation."""

import itertools

import pytest
from batch import MICRO, STEPS, TOTAL, BatchError, fit, fits, workers_that_fit


def config(total=None, micro=None, steps=None):
    """A configuration with those of the three keys that are not None, and something else."""
    keys = {TOTAL: total, MICRO: micro, STEPS: steps}
    return {
        "zero_optimization": {"stage": 2},
        **{key: value for key, value in keys.items() if value is not None},
    }


def as_deepspeed_reads(config, ranks):
    """Total, micro batch and steps as DeepSpeed completes them (_set_batch_related_parameters in runtime/config.py)."""
    total, micro, steps = (config.get(key) for key in (TOTAL, MICRO, STEPS))
    if total and micro and not steps:
        steps = total // micro // ranks
    elif total and steps and not micro:
        micro = total // ranks // steps
    elif micro and not total:
        steps = steps or 1
        total = micro * steps * ranks
    elif total and not micro:
        micro, steps = total // ranks, 1
    return total, micro, steps


@pytest.mark.parametrize(
    ("given", "ranks", "steps"),
    [
        (config(32, 4, 2), 4, 2),
        (config(32, 4, 2), 2, 4),
        (config(32, 4, 2), 8, 1),
        (config(32, 4, 2), 1, 8),
        (config(32, None, 4), 4, 4),  # the micro batch becomes 2
        (config(32, None, 16), 4, 1),  # with 16 steps it would be half a sample
    ],
)
def test_the_accumulation_follows_the_ranks(given, ranks, steps):
    assert fit(given, ranks) == {**given, STEPS: steps}


@pytest.mark.parametrize(
    "given",
    [
        config(32, 4),  # DeepSpeed computes the steps
        config(32),  # and the micro batch
        config(None, 4, 2),  # the batch is 8 for each rank, however many there are
        config(None, 4),
        config(),
        config("auto", "auto", "auto"),  # the training computes them
        config("auto", 3, 5),
        {},
    ],
)
def test_what_follows_the_ranks_by_itself_is_left_as_it_is(given):
    for ranks in (1, 2, 4, 8):
        assert fits(given, ranks)
        assert fit(given, ranks) == given


def test_a_micro_batch_that_the_training_computes_only_needs_whole_shares():
    assert fit(config(32, "auto", "auto"), 4) == config(32, "auto", "auto")
    assert fit(config(32, "auto", 2), 4) == config(32, "auto", 2)
    assert not fits(config(32, "auto", 2), 5)


def test_the_given_configuration_is_not_changed():
    given = config(32, 4, 2)
    fit(given, 2)
    assert given == config(32, 4, 2)


def test_the_numbers_and_the_nearest_that_fit_are_named():
    with pytest.raises(BatchError) as refused:
        fit(config(96, 4, 1), 5)
    assert str(refused.value) == (
        "train_batch_size 96 / train_micro_batch_size_per_gpu 4 cannot be shared among 5 ranks; possible are 2, 3, 4, 6"
    )


def test_without_a_micro_batch_none_is_named():
    with pytest.raises(
        BatchError, match=r"^train_batch_size 6 cannot be shared among 4 ranks; possible are 1, 2, 3, 6$"
    ):
        fit(config(6), 4)


def test_a_micro_batch_that_no_number_of_ranks_divides():
    with pytest.raises(BatchError, match=r"among 1 ranks; possible are none$"):
        fit(config(6, 4), 1)


def test_the_equation_holds_whenever_it_fits_and_the_batch_stays():
    tried = refused = 0
    for total, micro, steps, ranks in itertools.product(
        (1, 2, 6, 7, 8, 12, 30, 64, 96), (None, 1, 2, 3, 4, 8), (None, 1, 2, 3, 5, 16), range(1, 17)
    ):
        given = config(total, micro, steps)
        tried += 1
        if not fits(given, ranks):
            refused += 1
            assert total % (ranks * (micro or 1)), given
            with pytest.raises(BatchError):
                fit(given, ranks)
            continue
        found = fit(given, ranks)
        got_total, got_micro, got_steps = as_deepspeed_reads(found, ranks)
        assert got_micro * got_steps * ranks == got_total == total, (given, ranks, found)
        assert got_micro >= 1
        assert got_steps >= 1
        if micro:
            assert got_micro == micro, "the memory that a rank needs must stay"
        assert {**found, STEPS: None} == {**given, STEPS: None}, "nothing else changes"
    assert 0 < refused < tried


@pytest.mark.parametrize(
    ("given", "slots", "most", "least", "count"),
    [
        (config(32, 4), 1, 4, 1, 4),
        (config(32, 4), 1, 7, 1, 4),
        (config(32, 4), 2, 7, 1, 4),
        (config(32, 4), 4, 7, 1, 2),
        (config(32, 4), 1, 7, 5, 0),
        (config(32, 4), 16, 7, 1, 0),
        (config(30, 5), 1, 5, 2, 3),
        (config(), 8, 7, 1, 7),
        (config(), 8, 1, 2, 0),
        (config(), 8, 0, 1, 0),
    ],
)
def test_the_largest_number_of_workers_that_can_share_the_batch(given, slots, most, least, count):
    assert workers_that_fit(given, slots, most, least) == count


@pytest.mark.parametrize("key", [TOTAL, MICRO, STEPS])
@pytest.mark.parametrize("value", [0, -1, True, "8"])
def test_what_is_no_number_of_samples_is_left_for_deepspeed_to_refuse(key, value):
    assert fit({TOTAL: 8, MICRO: 2, STEPS: 4, key: value}, 2).get(key) is not None
