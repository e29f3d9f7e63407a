"""PyMC's compound step: NUTS, and Metropolis or Gibbs steps for discrete choices.

CategoricalGibbsMetropolis proposes uniformly; its "proportional" proposals are biased.
"""

import os
import tempfile
import time

from benchmarks.peers.cell import Run

NUM_DRAWS, PILOT = 1000, 3


def run(model, data, limit, clock):
    # Compiled code of earlier runs would make the start a warm one.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTENSOR_FLAGS"] = f"compiledir={folder}"
        return _run(model, data, limit, clock)


def _run(model, data, limit, clock):
    import pymc

    with clock.outside():
        from benchmarks.peers.samplers.pymc_models import MODELS, OUTPUTS
    with pymc.Model():
        MODELS[model](data)
        steps = _choose_steps()
        started = clock.seconds()
        # The pilot compiles all that is compiled: its start is the cold one.
        compiling, each = _time_draw(steps)
        num = min(NUM_DRAWS, max(10, int(limit / 2 / each)))
        begun = []  # of each draw, in the order in which they arrive

        def note(trace, draw):
            del trace
            begun.append((time.monotonic(), draw.tuning))

        trace = pymc.sample(
            num, tune=num, step=steps, callback=note, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    first, last = begun[0][0], begun[-1][0]
    kept = next(moment for moment, is_tuning in begun if not is_tuning)
    names = [name for name in OUTPUTS[model] if name in trace.posterior]
    chains = trace.posterior.sizes["chain"]
    return Run(
        draws={name: trace.posterior[name].to_numpy() for name in names},
        startup=started + compiling,
        warmup=kept - first,
        sampling=last - kept,
        settings=f"PyMC {pymc.__version__}: sample({num}, tune={num}), {chains} chains, "
        f"{_describe(steps)}",
    )


def _choose_steps():
    """Return the steps of categorical choices; those of the others PyMC chooses itself."""
    import pymc

    free = pymc.modelcontext(None).free_RVs
    chosen = [v for v in free if type(v.owner.op).__name__ == "CategoricalRV"]
    return [pymc.CategoricalGibbsMetropolis(chosen, proposal="uniform")] if chosen else None


def _describe(steps):
    return "CategoricalGibbsMetropolis (uniform) and defaults" if steps else "default steps"


def _time_draw(steps):
    """Return the seconds until a pilot run begins to draw, and those of a draw."""
    import pymc

    times, started = [], time.monotonic()

    def note(trace, draw):
        del trace, draw
        times.append(time.monotonic())

    pymc.sample(
        PILOT, tune=PILOT, step=steps, chains=1, cores=1, progressbar=False, random_seed=2,
        compute_convergence_checks=False, callback=note,
    )  # fmt: skip
    return times[0] - started, max(1e-6, (times[-1] - times[0]) / (len(times) - 1))
