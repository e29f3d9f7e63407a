"""An environment of their own for the samplers, in ``.cache/peers``."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.results import HERE

CACHE = HERE.parent / ".cache" / "peers"
PYTHON = CACHE / "venv" / "bin" / "python"
WEBPPL = CACHE / "webppl" / "node_modules" / ".bin" / "webppl"
# Ours and NumPyro run with what this process has: the same as in the other benchmarks.
SAME = ("jax", "numpyro", "arviz", "numpy", "scipy", "tqdm")
PACKAGES = ("pymc", "blackjax", "funsor")


def install():
    """Install what is missing; what cannot be had is said by the cells that need it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if not _is_complete():
        print(f"installing {', '.join(PACKAGES)} into {CACHE / 'venv'}", flush=True)
        _call(sys.executable, "-m", "venv", CACHE / "venv")
        pinned = [f"{name}=={importlib.metadata.version(name)}" for name in SAME]
        _call(PYTHON, "-m", "pip", "install", "-q", *pinned, *PACKAGES, is_needed=True)
    if not WEBPPL.exists() and shutil.which("npm"):
        print(f"installing webppl into {CACHE / 'webppl'}", flush=True)
        _call("npm", "install", "--silent", "--prefix", CACHE / "webppl", "webppl")
    if not shutil.which("jags") and shutil.which("apt-get") and os.geteuid() == 0:
        print("installing jags", flush=True)
        _call("apt-get", "install", "-qq", "-y", "--no-install-recommends", "jags")


def _is_complete():
    """Whether the environment has all packages, in the same versions as this one."""
    if not PYTHON.exists():
        return False
    wanted = {name: importlib.metadata.version(name) for name in SAME}
    asked = [*SAME, *PACKAGES]
    code = f"import importlib.metadata as m; print(*[m.version(name) for name in {asked}])"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
    found = dict(zip(asked, done.stdout.split(), strict=False))
    return len(found) == len(asked) and all(found[name] == wanted[name] for name in SAME)


def _call(*command, is_needed=False):
    """Run a command quietly; only some of them must work."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode and is_needed:
        raise RuntimeError(f"`{' '.join(map(str, command))}` failed: {done.stderr[-500:]}")


def variables():
    """Return the environment variables of a cell: this source, and no code compiled before."""
    root = Path(HERE).parent
    paths = os.pathsep.join([str(root), str(root / "src")])
    return {**os.environ, "PYTHONPATH": paths, "ADLMH_CACHE": "off", "PYTHONWARNINGS": "ignore"}
