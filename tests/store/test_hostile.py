"""Files of a stored run that were changed: `StoreError`, or the draws that were stored."""

import json
import shutil
import tempfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_run import run

from adlmh_jax.store import Directory, StoreError, directory, zarr

HOSTILE = [None, True, -1, 0, 1, 7, 2**31, 10**15, 1e308, "", "../../x", "object", [], [7], {}]
HOSTILE += [{"rate": 1}, "[" * 20, [10**15, 10**15], float("nan")]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return a stored run, and how a process would open it."""
    path, calls = tmp_path_factory.mktemp("stored") / "run", []

    class Spy(Directory):
        def __init__(self, place, *arguments):
            super().__init__(place, *arguments)
            calls.append(arguments)

        def load(self, *arguments):
            calls.append(arguments)
            return super().load(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adlmh_jax.session.Directory", Spy)
        patch.setattr(zarr, "CHUNK_BYTES", 16 * 6 * 4)
        result = run(path, keep=["rate"])
    (chosen, superchains, num_samples, _), load = calls
    opening = (chosen, superchains, num_samples, True)
    return SimpleNamespace(path=path, opening=opening, load=load, draws=result.draws["rate"])


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file())


def open_again(stored, path):
    """Open a run; whatever it returns must be what was stored."""
    done = Directory(path, *stored.opening).load(*stored.load)
    for part in done.parts:
        values = part.values["rate"]
        np.testing.assert_array_equal(values, stored.draws[:, : values.shape[1]])
        assert values.shape[1] == done.num_samples


def sealed(header, body):
    text = json.dumps(header).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text) + body


def header_of(path):
    line, _, body = (path / directory.STATE).read_bytes().partition(b"\n")
    return json.loads(line[9:]), body


def places(tree, path=()):
    """Return where the values of a JSON tree are."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in inside:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def forge(data, path):
    """Change the header, with a right checksum."""
    header, body = header_of(path)
    *above, last = data.draw(st.sampled_from(list(places(header))))
    inner = header
    for key in above:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[last] = data.draw(st.sampled_from(HOSTILE))
    else:
        del inner[last]
    (path / directory.STATE).write_bytes(sealed(header, body))


def damage(data, path):
    """Change the bytes of a file, or the file."""
    paths = files_of(path)
    file, other = data.draw(st.sampled_from(paths)), data.draw(st.sampled_from(paths))
    content = bytearray(file.read_bytes())
    deed = data.draw(st.sampled_from(["flip", "cut", "grow", "swap", "noise", "remove", "folder"]))
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    if deed == "flip" and content:
        content[at] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
    elif deed == "cut":
        file.write_bytes(content[:at])
    elif deed == "grow":
        file.write_bytes(content + data.draw(st.binary(max_size=50)))
    elif deed == "swap":
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif deed == "noise":
        file.write_bytes(data.draw(st.binary(max_size=200)))
    else:
        file.unlink()
        if deed == "folder":
            file.mkdir()


def check_one(stored, data):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "run"
        shutil.copytree(stored.path, path)
        for _ in range(data.draw(st.integers(1, 2))):
            state = path / directory.STATE
            has_header = state.is_file() and state.read_bytes()[9:10] == b"{"
            try:
                data.draw(st.sampled_from([forge, damage] if has_header else [damage]))(data, path)
            except ValueError:  # an earlier change left no JSON to change
                pass
        try:
            open_again(stored, path)
        except StoreError as error:
            assert str(path) in str(error)


COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=50, derandomize=True, **COMMON)
@given(data=st.data())
def test_changed_files(stored, data):
    check_one(stored, data)


@pytest.mark.slow
@settings(max_examples=2000, **COMMON)
@given(data=st.data())
def test_many_changed_files(stored, data):
    check_one(stored, data)


@pytest.fixture
def copy(stored, tmp_path):
    return shutil.copytree(stored.path, tmp_path / "run")


def test_unchanged_files(stored, copy):
    open_again(stored, copy)


@pytest.mark.parametrize("name", ["posterior/rate/0.0", "sample_stats/lp/0.1"])
@pytest.mark.parametrize("deed", ["flip", "cut", "remove"])
def test_a_damaged_chunk_is_named(stored, copy, name, deed):
    file = copy / "draws.zarr" / name
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content if deed == "flip" else content[:-1])
    if deed == "remove":
        file.unlink()
    with pytest.raises(StoreError, match=f"{name}` of a stored run is damaged: .*Take it from"):
        open_again(stored, copy)


def test_chunks_that_changed_places(stored, copy):
    first, second = (copy / "draws.zarr/posterior/rate" / f"0.{i}" for i in (0, 1))
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    with pytest.raises(StoreError, match="its draws were changed"):
        open_again(stored, copy)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h: h["arrays"][0].update(shape=[10**15]), "its array 0 should be"),
        (lambda h: h["arrays"][0].update(dtype="object"), "its array 0 should be"),
        (lambda h: h["arrays"].pop(), "does not have the"),
        (lambda h: h.update(num_samples=10**15), "`num_samples` is 1000000000000000"),
        (lambda h: h["draws"]["posterior/rate"].update(chunk_draws=2**31 - 1), "chunks of draws"),
        (lambda h: h["draws"].update({"posterior/../../x": {}}), None),
        (lambda h: h["settings"].update(keep=["../../x"]), "is another one: it differs in keep"),
        (lambda h: h.update(arrays=[]), "does not have the"),
        (lambda h: h.update(format="other"), "not of this version"),
    ],
)
def test_forged_headers(stored, copy, change, reason):
    header, body = header_of(copy)
    change(header)
    (copy / directory.STATE).write_bytes(sealed(header, body))
    if reason is None:
        open_again(stored, copy)
        return
    with pytest.raises(StoreError, match=reason):
        open_again(stored, copy)


@pytest.mark.parametrize("text", [b"{", b"[" * 100_000, b"[]", b"NaN", b"\xff"])
def test_a_header_that_is_no_json(stored, copy, text):
    (copy / directory.STATE).write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    with pytest.raises(StoreError, match="state.bin` of a stored run is damaged: its first line"):
        open_again(stored, copy)


def test_names_never_leave_the_directory():
    names = ["..", ".", "", "a/b", "a.b", "/etc/x", "chain", "draw", "__x", "\0"]
    names += [".zgroup", ".x.part"]
    stored = zarr.storable(names)
    assert len(set(stored.values())) == len(names)
    assert not any("/" in new or new in zarr.RESERVED for new in stored.values())
