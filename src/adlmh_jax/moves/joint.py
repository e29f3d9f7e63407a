"""What a step must compute that moves several sites, or some while others are summed out."""

from collections.abc import Sequence
from dataclasses import dataclass

from adlmh_jax.graph import (
    KEY_WORDS,
    Cutter,
    Fragment,
    Layout,
    Noise,
    Variable,
    noise_sources,
)
from adlmh_jax.model import Program, Traced, listed
from adlmh_jax.moves.alike import FactorFinder
from adlmh_jax.moves.branch import (
    ACCEPT_WORD,
    Branch,
    Cut,
    Read,
    all_constants,
    end_of,
    find_reads,
    proposal_numbers,
)
from adlmh_jax.moves.factors import Joint, Summed
from adlmh_jax.moves.rolling import RunFinder, cut_terms, is_next, run_finder
from adlmh_jax.moves.walk import Rider, Walk
from adlmh_jax.proposals import JointPlan, Variant


@dataclass(frozen=True)
class ValueRun:
    """Summed sites at consecutive places: their names, and the number of their joint value."""

    names: tuple[str, ...]
    number: int


def cut_joint(program: Program, plan: JointPlan, variant: Variant) -> Cut:
    """Cut out what a step needs that moves sites in the given variant, others summed out.

    Where no site moves, the summed ones are drawn, all at once.
    """
    traced, movers = program.traced, plan.movers
    cutter, propose, noise, walk = _cut_proposal(program, plan, variant)
    plain_names, factor_names = _split_terms(program, plan)
    layouts = (program.latent_layout, program.term_layout)
    finder = run_finder(traced, layouts, plan.moved)
    score, plain_terms, rolled = cut_terms(finder, plain_names, cutter, not variant.is_block)
    prior = None if walk else _cut_prior(traced, movers, plain_names, cutter, variant)
    _check_proposal(program, plan, cutter)
    factor_finder = _factor_finder(program, plan, finder)
    factors, factor_terms = factor_finder.cut(factor_names, cutter, rolled)
    runs = _value_runs(program, plan.summed, cutter)
    outputs, output_list = _cut_outputs(program, plan, cutter, runs)
    inside = _cut_supports(traced, plan, cutter)
    # Values of summed sites are read in runs.
    reads, read_names = find_reads(traced, program.sites, cutter, rolled, left_out=plan.summed)
    first_run, key_start = len(reads), end_of(noise)
    key_end = key_start + (KEY_WORDS if variant.is_block else 0) + (walk.num_words if walk else 0)
    joint = Joint(
        has_mover=bool(movers),
        variables=_variables(program, plan, runs, first_run, inside, cutter),
        factors=tuple(factors),
        elimination=factor_finder.eliminate(factors),
        runs=tuple((run.number, first_run + i) for i, run in enumerate(runs)),
        moved=tuple(range(first_run, first_run + len(runs))),
        draw_start=key_end,
    )
    own = [first for first, _ in plain_terms]
    branch = Branch(
        site=program.sites[(*movers, *plan.summed)[0]],
        variant=variant,
        propose=propose,
        score=score,
        outputs=outputs,
        prior=prior,
        reads=(*reads, *(_run_read(program, run) for run in runs)),
        noise=tuple((n, noise[value]) for n, value in cutter.inputs.items() if value in noise),
        scale=_scale(traced, movers, cutter),
        key_start=key_start,
        num_words=key_end + (joint.num_words if plan.summed else 0),
        own_term=own.index(movers[0]) if movers and movers[0] in own else 0,
        term_axes=_plain_axes(program, plan, plain_names) if variant.is_block else (),
        joint=joint if plan.summed else None,
        walk=walk,
        is_tempered=tuple(term not in traced.values for term in own),
    )
    constants, literals = all_constants(cutter, rolled)
    return Cut(
        branch=branch,
        read_names=(*read_names, *(run.names[0] for run in runs)),
        terms=(*plain_terms, *factor_terms),
        outputs=output_list,
        constants=constants,
        literals=literals,
        moved_names=(*plan.moved, *(run.names[0] for run in runs)),
    )


def _cut_proposal(
    program: Program, plan: JointPlan, variant: Variant
) -> tuple[Cutter, Fragment, dict[int, Noise], Walk | None]:
    """Return a cutter, what proposes values of the moved sites, and the random inputs of that."""
    traced, movers = program.traced, plan.movers
    given: dict[int, object] = dict.fromkeys(traced.values.values(), "value")
    if not movers:
        return Cutter(traced.graph, given), Fragment((), ()), {}, None
    if variant.is_walk:
        cutter = Cutter(traced.graph, given | {traced.frees[name]: "free" for name in movers})
        for name in plan.moved:
            cutter.number(traced.values[name])
        return cutter, Fragment((), ()), {}, _cut_walk(program, plan, cutter)
    (mover,) = movers
    wanted = proposal_numbers(traced, mover, variant)
    noise = noise_sources(traced.graph, wanted, traced.keys[mover], ACCEPT_WORD + 1)
    cutter = Cutter(traced.graph, given | noise | {traced.scales[mover]: "scale"})
    cutter.number(traced.values[mover])
    return cutter, cutter.cut(wanted), noise, None


def _cut_walk(program: Program, plan: JointPlan, cutter: Cutter) -> Walk:
    traced, movers = program.traced, plan.movers
    tables = (traced.to_free, traced.from_free, traced.log_jacobians)
    to_free, from_free, log_jacobians = (cutter.cut([t[name] for name in movers]) for t in tables)
    return Walk(
        walkers=tuple(program.sites[name] for name in movers),
        numbers=tuple(cutter.number(traced.values[name]) for name in movers),
        to_free=to_free,
        from_free=from_free,
        log_jacobians=log_jacobians,
        frees=tuple(cutter.number(traced.frees[name]) for name in movers),
        riders=tuple(
            Rider(
                site=program.sites[name],
                number=cutter.number(traced.values[name]),
                mean=cutter.cut([traced.means[name]]),
                inside=cutter.cut([traced.supports[name]]),
            )
            for name in plan.riders
        ),
        start=ACCEPT_WORD + 1,
    )


def _cut_supports(traced: Traced, plan: JointPlan, cutter: Cutter) -> dict[str, Fragment]:
    """Cut out, for each site with a window, whether its values are in the support."""
    windows = zip(plan.summed, plan.windows, strict=True)
    return {name: cutter.cut([traced.supports[name]]) for name, window in windows if window}


def _split_terms(program: Program, plan: JointPlan) -> tuple[list[str], list[str]]:
    """Return the touched terms that do not depend on summed sites, and those that do."""
    summed = {term for name in plan.summed for term in program.touches[name].terms}
    own = {term for name in plan.moved for term in program.touches[name].terms}
    order = program.term_layout.names
    return [t for t in order if t in own - summed], [t for t in order if t in summed]


def _cut_prior(
    traced: Traced,
    movers: Sequence[str],
    plain_names: Sequence[str],
    cutter: Cutter,
    variant: Variant,
) -> Fragment | None:
    """Cut out the log prior of the moved site, unless it is its own term or not needed."""
    if not movers:
        return None
    (mover,) = movers
    is_plain = mover in plain_names and traced.priors[mover] == traced.terms[mover]
    is_needed = (mover, variant.proposal) not in traced.log_q_ratios
    return cutter.cut([traced.priors[mover]]) if is_needed and not is_plain else None


def _check_proposal(program: Program, plan: JointPlan, cutter: Cutter) -> None:
    """Refuse a proposal that looks at what is summed out."""
    read = {value for value in cutter.inputs.values()}
    seen = [name for name in plan.summed if program.traced.values[name] in read]
    if seen:
        raise ValueError(
            f"Site {listed(plan.movers)} cannot move with {listed(seen)} summed out: its proposal "
            "depends on it. Give it `random_walk()`."
        )


def _factor_finder(program: Program, plan: JointPlan, finder: RunFinder) -> FactorFinder:
    kinds = []
    for name, window in zip(plan.summed, plan.windows, strict=True):
        site = program.sites[name]
        plate = site.batch_shape if site.num_components > 1 else ()
        values = () if window else site.candidates
        kinds.append((Variable(window or len(site.candidates), plate), (values, site.shape)))
    plated = [name for name in plan.summed if program.sites[name].num_components > 1]
    return FactorFinder(
        runs=finder,
        variables={name: number for number, name in enumerate(plan.summed)},
        kinds=kinds,
        axes={name: program.axes_by_term(name) for name in plated},
    )


def _plain_axes(
    program: Program, plan: JointPlan, names: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    (mover,) = plan.movers
    axes = program.axes_by_term(mover)
    return tuple(axes[name] for name in names)


def _value_runs(program: Program, names: Sequence[str], cutter: Cutter) -> list[ValueRun]:
    """Put summed sites together whose values and components are at consecutive places."""
    layout, first = program.latent_layout, program.sites.first_components
    runs: list[list[str]] = []
    for name in names:
        last = runs[-1][-1] if runs else None
        if last is not None and is_next(layout[last], layout[name]):
            if first[last] + program.sites[last].num_components == first[name]:
                runs[-1].append(name)
                continue
        runs.append([name])
    return [ValueRun(tuple(run), cutter.new_number()) for run in runs]


def _run_read(program: Program, run: ValueRun) -> Read:
    site = program.sites[run.names[0]]
    return Read(run.number, (len(run.names), *site.shape), site.dtype)


def _variables(
    program: Program,
    plan: JointPlan,
    runs: Sequence[ValueRun],
    first_read: int,
    inside: dict[str, Fragment],
    cutter: Cutter,
) -> tuple[Summed, ...]:
    where = {
        name: (first_read + index, place)
        for index, run in enumerate(runs)
        for place, name in enumerate(run.names)
    }
    variables = []
    for name, window in zip(plan.summed, plan.windows, strict=True):
        site, (read, place) = program.sites[name], where[name]
        variables.append(
            Summed(
                number=cutter.number(program.traced.values[name]),
                read=read,
                place=place,
                shape=site.shape,
                dtype=site.dtype,
                candidates=() if window else site.candidates,
                window=window,
                inside=inside.get(name),
            )
        )
    return tuple(variables)


def _cut_outputs(
    program: Program, plan: JointPlan, cutter: Cutter, runs: Sequence[ValueRun]
) -> tuple[Fragment, tuple[tuple[str, tuple[int, ...]], ...]]:
    """Cut out the touched outputs; where they are the values of a run, they are its value."""
    traced, layout = program.traced, program.output_layout
    names = (*plan.moved, *plan.summed)
    touched = {output for name in names for output in program.touches[name].outputs}
    wholes = _whole_runs(traced, layout, touched, runs)
    covered = {name for _, members in wholes for name in members}
    single = [name for name in layout.names if name in touched - covered]
    fragment = cutter.cut([traced.outputs[name] for name in single])
    shapes = [(name, traced.graph.avals[traced.outputs[name]].shape) for name in single]
    for run, members in wholes:
        shapes.append((members[0], (len(members), *layout[members[0]].shape)))
        fragment = Fragment(fragment.nodes, (*fragment.outputs, run.number))
    return fragment, tuple(shapes)


def _whole_runs(
    traced: Traced, layout: Layout, touched: set[str], runs: Sequence[ValueRun]
) -> list[tuple[ValueRun, list[str]]]:
    """Return the runs of sites that are outputs themselves, at consecutive places."""
    output_of = {traced.outputs[name]: name for name in touched}
    found = []
    for run in runs:
        outputs = [output_of.get(traced.values[name]) for name in run.names]
        members = [name for name in outputs if name is not None]
        pairs = zip(members, members[1:], strict=False)
        if len(members) == len(run.names) and all(is_next(layout[a], layout[b]) for a, b in pairs):
            found.append((run, members))
    return found


def _scale(traced: Traced, movers: Sequence[str], cutter: Cutter) -> int | None:
    scales = {traced.scales[name] for name in movers}
    return next((n for n, v in cutter.inputs.items() if v in scales), None)
