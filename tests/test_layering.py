"""Packages are the layers: imports go down the list, through what a package exports."""

import ast
from pathlib import Path

import pytest

PACKAGE = "adlmh_jax"
ROOT = Path(__file__).parents[1] / "src" / PACKAGE
FILES = sorted(ROOT.rglob("*.py"))

# Lowest first. Packages of one rank do not import each other.
ORDER = [
    ["types", "version", "warning"],
    ["graph"],
    ["statistics"],
    ["model"],
    ["proposals", "schedules"],
    ["moves"],
    ["engine"],
    ["store"],
    ["results"],
    ["executing", "session"],
    ["sampling"],
    ["many"],
    ["calibrating"],
    ["interop"],
    ["paper"],
    ["cli"],
    ["__init__", "__main__"],
]
RANKS = {name: rank for rank, names in enumerate(ORDER) for name in names}
OWNERS = {
    "numpyro": {"model", "interop", "paper"},
    "arviz": {"results"},
    "matplotlib": {"results"},
}
DEVICES = {"jax.devices", "jax.device_put", "Mesh", "shard_map"}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60  # signature and docstring not counted

each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())


def package_of(path):
    """Name the package, or the module directly under the root, that a file belongs to."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def parse(path):
    return ast.parse(path.read_text(), filename=str(path))


def imports(tree):
    """Yield (line, module, name) of every import, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = "." * node.level + (node.module or "")
            yield from ((node.lineno, parent, alias.name) for alias in node.names)


def exported(package):
    """Return what the ``__init__`` of a package exports."""
    path = ROOT / package / "__init__.py"
    if not path.exists():
        return None
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def import_error(own, module, name):
    """Say what is wrong with a file of package ``own`` importing from ``module``."""
    if module.startswith("."):
        return "is relative: write it absolute"
    top, *inside = module.split(".")
    if top != PACKAGE:
        owners = OWNERS.get(top.partition("_")[0], {own})  # arviz_base counts as arviz
        return None if own in owners else f"belongs only in {', '.join(sorted(owners))}"
    target = inside[0] if inside else name
    if target == own:
        return None
    if target not in RANKS:
        return "is of the whole package: import from the layer that defines it"
    if RANKS[target] >= RANKS[own]:
        return f"goes up, or sideways, from {own} to {target}"
    names = exported("/".join(inside or [name]))
    if names is None:
        is_module = len(inside) == 1 or not inside
        return None if is_module else f"goes past what {target} exports"
    return None if not inside or name in names else f"is not exported by {target}"


def function_length(node):
    """Count the lines of a function's body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@each_file
def test_imports(path):
    own = package_of(path)
    assert own in RANKS, f"{own} has no rank: give it one in ORDER of {__file__}"
    found = ((*item, import_error(own, *item[1:])) for item in imports(parse(path)))
    errors = [f"line {n}: import of {m} {name} {error}" for n, m, name, error in found if error]
    assert not errors, "\n".join(errors)


@each_file
def test_lengths(path):
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = function_length(node)
            assert length <= MAX_FUNCTION_LINES, f"line {node.lineno}: {node.name} has {length}"


def module_graph():
    """Return for each module inside a package the modules of the same package that it imports."""
    graph = {}
    for path in FILES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if len(parts) < 2 or parts[-1] == "__init__":
            continue
        own = ".".join((PACKAGE, *parts))
        graph[own] = set()
        for _, module, name in imports(parse(path)):
            for target in (module, f"{module}.{name}"):
                if target.startswith(f"{PACKAGE}.{parts[0]}.") and target != own:
                    graph[own].add(target)
    return graph


def test_no_cycles_inside_a_package():
    graph = module_graph()
    done, under_way = set(), []

    def visit(module):
        if module in done or module not in graph:
            return
        assert module not in under_way, " -> ".join([*under_way, module])
        under_way.append(module)
        for target in sorted(graph[module]):
            visit(target)
        under_way.pop()
        done.add(module)

    for module in sorted(graph):
        visit(module)


def test_devices_are_touched_in_one_place():
    users = {
        p.relative_to(ROOT).as_posix() for p in FILES if any(d in p.read_text() for d in DEVICES)
    }
    users.discard("types.py")  # `as_array` puts arrays where JAX likes
    assert users <= {"engine/runner.py", "engine/host.py"}


def test_every_file_is_on_the_map():
    codemap = (ROOT.parents[1] / "docs" / "codemap.md").read_text()
    missing = [p for p in FILES if p.name != "__init__.py" and p.name not in codemap]
    assert not missing
