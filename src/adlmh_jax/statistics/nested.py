"""Nested R-hat: how far superchains are apart, for how much their chains vary."""

import numpy as np


def nested_r_hats(means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return nested R-hat, ``[...]``, of chains with these moments, ``[..., superchain, chain]``.

    Equations 6 to 8 of Margossian et al. (2022). NaN for a single superchain, and where nothing
    varies; infinite where superchains differ and nothing varies within them.
    """
    if means.shape[-2] < 2:
        return np.full(means.shape[:-2], np.nan)
    within = np.mean(variances, axis=(-2, -1))
    if means.shape[-1] > 1:
        within = within + np.mean(np.var(means, axis=-1, ddof=1), axis=-1)
    between = np.var(np.mean(means, axis=-1), axis=-1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1 + between / within)
