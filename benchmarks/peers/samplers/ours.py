"""``adlmh.sample`` at all defaults."""

import warnings

from benchmarks.peers.cell import Compilation, Run, read_case


def run(model, data, limit, clock):
    del data, limit
    import adlmh_jax as adlmh

    case, compilation = read_case(model, clock), Compilation()
    imported = clock.seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adlmh.ConvergenceWarning)  # the table judges
        result = adlmh.sample(
            0, case.classic.model, case.classic.args,
            outputs=list(case.classic.outputs), progress=False,
        )  # fmt: skip
    total, compiling = clock.seconds(), compilation.seconds()
    num_draws = result.num_chains * result.num_draws
    updates = num_draws * len(result.schedule.names) * 2  # as many draws of warm-up
    # Warm-up and sampling are one call, of as many draws each.
    half = (total - imported - compiling) / 2
    return Run(
        draws=result.draws,
        startup=imported + compiling,
        warmup=half,
        sampling=half,
        settings=f"adlmh_jax {adlmh.__version__}: sample(0, model, data, outputs=...), "
        "no compilation cache",
        updates=updates,
        is_whole=True,
    )
