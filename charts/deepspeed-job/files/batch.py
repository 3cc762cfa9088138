"""DeepSpeed's batch equation: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks.

When an elastic run changes its number of ranks, the batch of a step must stay what the user chose, or the learning rate would no longer
suit it. So the accumulation is computed anew, as runtime/config.py of DeepSpeed computes what is left out.
"""

TOTAL, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


class BatchError(Exception):
    """The batch cannot be shared among so many ranks; the text has the numbers."""


def _number(config: dict, key: str):
    # "auto" is for the training to fill in; what DeepSpeed refuses is left for it to refuse.
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def fits(config: dict, ranks: int) -> bool:
    """Tell whether `fit` has a configuration for so many ranks."""
    total, micro = _number(config, TOTAL), _number(config, MICRO)
    if total is None:
        return True  # left out, or "auto": the batch follows the ranks, or the training computes it
    return total % (ranks * (micro or 1)) == 0


def fit(config: dict, ranks: int) -> dict:
    """Return the configuration for so many ranks: the same train_batch_size and micro batch, another accumulation.

    Without a micro batch DeepSpeed computes one from the accumulation, so that is left as it is. Raises BatchError with the numbers and
    the nearest numbers of ranks that fit.
    """
    total, micro, steps = (_number(config, key) for key in (TOTAL, MICRO, STEPS))
    if not fits(config, ranks):
        good = [one for one in range(1, total + 1) if fits(config, one)]
        near = sorted(good, key=lambda one: abs(one - ranks))[:4]
        share = f"{TOTAL} {total}" + (f" / {MICRO} {micro}" if micro else "")
        raise BatchError(
            f"{share} cannot be shared among {ranks} ranks; possible are {', '.join(map(str, sorted(near))) or 'none'}"
        )
    if total is None or steps is None:
        return config
    if micro:
        return {**config, STEPS: total // (micro * ranks)}
    if total % (ranks * steps):
        # The micro batch that DeepSpeed would compute is no whole number.
        return {**config, STEPS: 1}
    return config


def workers_that_fit(config: dict, slots: int, most: int, least: int) -> int:
    """Return the largest number of workers from `least` to `most` whose ranks can share the batch, or 0."""
    return next((count for count in range(most, least - 1, -1) if fits(config, count * slots)), 0)
