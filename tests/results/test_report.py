"""The page of a run: made of a result, of a file, of a stored run; and looked at by a browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray

import adlmh_jax as adlmh
from adlmh_jax.results.reading import read_record
from adlmh_jax.results.report import RunRecord, report_page

SIZES = {"num_chains": 8, "num_warmup": 20, "num_samples": 40, "progress": False}


def model(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    numpyro.sample("flip", dist.Bernoulli(0.3))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run, and the directory that keeps it."""
    directory = tmp_path_factory.mktemp("run")
    return adlmh.sample(0, model, (0.5,), store=directory / "first", **SIZES), directory / "first"


class Addresses(HTMLParser):
    """Collects what a page would load."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.found += [given[name] for name in ("src", "href", "xlink:href") if name in given]


def check_page(page):
    assert page.startswith("<!DOCTYPE html>") and "prefers-color-scheme: dark" in page
    addresses = Addresses()
    addresses.feed(page)
    assert all(address.startswith("#") for address in addresses.found)
    assert "url(http" not in page and "@import" not in page and "<script" not in page
    assert "currentColor" in page and "#010203" not in page
    for word in ("mean", "flip", "nested_r_hat", "Settings", "</svg>"):
        assert word in page


def test_page_of_a_result(stored, tmp_path):
    result, _ = stored
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    check_page(page)
    assert "Cannot tell whether it has converged" in page or "Not converged" in page
    assert "40 draws of 8 chains in 4 superchains" in page and "moves of mean" in page


def test_page_of_a_file(stored, tmp_path):
    result, _ = stored
    result.to_arviz().to_netcdf(str(tmp_path / "draws.nc"))
    record = read_record(tmp_path / "draws.nc")
    assert record.num_superchains == 4 and record.diagnosis is None
    for name, draws in result.draws.items():
        np.testing.assert_array_equal(record.draws[name], draws)
    assert record.schedule.names == result.schedule.names
    np.testing.assert_array_equal(record.schedule.rewards, result.schedule.rewards)
    page = report_page(record)
    check_page(page)
    assert "Judged by the draws alone" in page


def test_page_of_a_stored_run(stored):
    result, directory = stored
    record = read_record(directory)
    assert record.num_superchains == 4 and record.title == "first"
    np.testing.assert_array_equal(record.draws["mean"], result.draws["mean"])
    check_page(report_page(record))


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="There is no"):
        read_record(tmp_path / "nothing.nc")
    (tmp_path / "text.nc").write_text("text")
    with pytest.raises(ValueError, match="no NetCDF file with a group `posterior`"):
        read_record(tmp_path / "text.nc")
    with pytest.raises(adlmh.StoreError, match="holds no stored run"):
        read_record(tmp_path)


def test_draws_of_others(tmp_path):
    """A file that another library wrote has no superchains and no schedule."""
    values = np.random.default_rng(0).normal(size=(4, 50))
    data = xarray.Dataset({"x": (("chain", "draw"), values)})
    data.to_netcdf(tmp_path / "x.nc", group="posterior", engine="h5netcdf")
    record = read_record(tmp_path / "x.nc")
    assert record.num_superchains == 4 and record.schedule is None
    assert "<svg" in report_page(record)


def pixels(path):
    """Return a picture as numbers in [0, 1]."""
    from matplotlib import image

    return image.imread(path)[..., :3]


@pytest.mark.slow
def test_a_browser_shows_the_page(tmp_path):
    """Light and dark in Chromium: the page has another background, and its figure other ink."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser, "This test looks at a page in Chromium: install Debian's package `chromium`."
    rng = np.random.default_rng(0)
    record = RunRecord(
        title="page",
        draws={"x": rng.normal(size=(8, 100)), "n": rng.poisson(3.0, size=(8, 100))},
        num_superchains=4,
        diagnosis=None,
        schedule=None,
        settings={"seed": 0},
    )
    (tmp_path / "page.html").write_text(report_page(record))
    pictures = []
    for scheme in (1, 0):  # light, dark
        picture = tmp_path / f"{scheme}.png"
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1100,1400"]
        command += [f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}"]
        address = (tmp_path / "page.html").as_uri()
        subprocess.run([*command, address], check=True, timeout=120, capture_output=True)
        pictures.append(pixels(picture))
    light, dark = pictures
    assert np.all(light[5, 5] > 0.95) and np.all(dark[5, 5] < 0.15)
    for picture, ink in ((light, picture_range(light)), (dark, picture_range(dark))):
        assert ink > 0.5 and np.std(picture) > 0.03
    left = 0.4 * light.shape[0]
    figure = light[int(left) :]
    colours = {tuple(np.round(c, 1)) for c in figure.reshape(-1, 3)[::7]}
    assert len(colours) > 10  # curves of several superchains
    assert np.all(light[:, -5:] > 0.95)  # nothing is cut off at the right
    assert re.search(r"<title>(not )?converged|<title>cannot", (tmp_path / "page.html").read_text())


def picture_range(picture):
    return float(picture.max() - picture.min())
