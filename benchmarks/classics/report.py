"""The table of the classics, beside the figures from before moves of coupled choices."""

import contextlib
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from benchmarks.classics import CLASSICS
from benchmarks.classics.measure import MAX_SD_ERROR, MAX_Z, measure_classic
from benchmarks.classics.nuts import NUM_CHAINS, measure_nuts
from benchmarks.results import HERE, machine, save, table

BEFORE = HERE / "classics_before.json"
HEAD = [
    "classic", "largest z", "worst sd ratio", "least ESS", "ESS per 1000 draws", "before",
    "s", "s again", "ESS/s", "before", "NUTS", "verdict", "verdict before",
]  # fmt: skip


def run_alone(function, name):
    """Call a function in a process of its own: memory and compiled code are not shared."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(function, name).result()


@contextlib.contextmanager
def devices_for_chains():
    """Let processes that are started now have a device for each chain of NUTS."""
    os.environ["JAX_NUM_CPU_DEVICES"] = str(NUM_CHAINS)
    try:
        yield
    finally:
        del os.environ["JAX_NUM_CPU_DEVICES"]


def run_classic(name, with_nuts):
    """Return the record of a classic."""
    record = run_alone(measure_classic, name)
    if with_nuts and CLASSICS[name].marginal is not None:
        with devices_for_chains():
            record["nuts"] = run_alone(measure_nuts, name)
    print(make_row(record, {}), flush=True)
    return record


def make_row(record, before):
    """Return the row of a classic in the table."""
    verdict = record["verdict"]
    if record["wrong_and_converged"]:
        verdict = f"**WRONG AND CONVERGED** ({', '.join(record['wrong_and_converged'])})"
    elif record["wrong"]:
        verdict = f"{verdict}; wrong"
    return [
        record["classic"],
        float(record["z"]),
        float(record["sd_ratio"]),
        round(record["ess"]),
        float(record["ess_per_1000_draws"]),
        before.get("ess_per_1000_draws"),
        float(record["seconds_first"]),
        float(record["seconds_again"]),
        float(record["ess_per_second"]),
        before.get("ess_per_second"),
        record.get("nuts", {}).get("ess_per_second"),
        verdict,
        before.get("verdict"),
    ]


def describe(records, before):
    """Return the report in Markdown."""
    parts = [
        "`python -m benchmarks.classics`: `adlmh.sample(seed, model, data, outputs=...)`, nothing "
        "tuned, for two seeds, each classic in a fresh process. z is the error of a mean in its "
        "standard errors, the ratio of sds is to the truth (enumeration, quadrature or forward "
        "recursions), both the worst of all outputs and seeds; ESS (bulk) is that of the worst "
        "output. The seconds are those of the first call, with compilation, and of a second; "
        "ESS/s counts warm-up and sampling without compilation. NUTS has the ESS/s of the worst "
        f"parameter of the model marginalised by hand, {NUM_CHAINS} chains, warm-up included. "
        f"Wrong: z above {MAX_Z:g}, or an sd off by more than {MAX_SD_ERROR:.0%} and {MAX_Z:g} "
        "standard errors of as many independent draws.",
        table(HEAD, [make_row(record, before.get(record["classic"], {})) for record in records]),
    ]
    parts.extend(describe_per_step(record) for record in records if "lmh" in record)
    doubts = [describe_doubts(record) for record in records if record["verdict"] != "converged"]
    if doubts:
        parts.append("What the verdicts other than *converged* are about:\n\n" + "\n".join(doubts))
    sites = [f"- {record['classic']}: {CLASSICS[record['classic']].about}." for record in records]
    parts.append("The models:\n\n" + "\n".join(sites))
    return "\n\n".join(parts)


def describe_doubts(record):
    """Return what speaks against convergence, run by run."""
    headlines = dict.fromkeys(run["headline"] for run in record["runs"])
    return f"- {record['classic']}: {' '.join(headlines)}"


def describe_per_step(record):
    """Return what a step is worth beside the paper's LMH."""
    ours, lmh = record["ess_per_1000_steps"], record["lmh"]["ess_per_1000_steps"]
    seconds = record["lmh"]["ess_per_second"]
    return (
        f"The paper's HMM as it stands: {ours:.3g} effective draws per 1000 steps of a chain, "
        f"LMH with prior proposals {lmh:.3g}: {ours / lmh:.3g} times as many per step, and "
        f"{record['ess_per_second'] / seconds:.3g} times as many per second."
    )


def load_before():
    """Return the figures from before, by classic."""
    return json.loads(BEFORE.read_text())["classics"] if BEFORE.exists() else {}


def keep_as_before(record):
    """Make these the figures of a classic that later ones are compared with."""
    classics = {**load_before(), record["classic"]: record}
    ordered = {name: classics[name] for name in CLASSICS if name in classics}
    content = {"machine": machine(), "classics": ordered}
    BEFORE.write_text(json.dumps(content, indent=1, default=float) + "\n")


def main(names=(), with_nuts=True, is_before=False):
    """Measure and print; keep the results of all classics."""
    records = []
    for name in names or CLASSICS:
        records.append(run_classic(name, with_nuts))
        if is_before:
            keep_as_before(records[-1])
    text = describe(records, {} if is_before else load_before())
    if names or is_before:
        print(f"\n{text}")
    else:
        save("classics", "Classics", text, {"records": records})
