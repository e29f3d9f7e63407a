"""The models in WebPPL."""

_MIXTURE = """
var centres = [-3, 0, 4];
var model = function() {
  var means = map(function(centre) { return gaussian(centre, 1); }, centres);
  map(function(y) {
    var z = categorical({ps: [0.3, 0.3, 0.4], vs: [0, 1, 2]});
    observe(Gaussian({mu: means[z], sigma: 1}), y);
  }, data.y);
  return {means: means};
};
"""

PROGRAMS = {
    "hmm": """
var move = function(state) { return categorical({ps: data.transition[state], vs: [0, 1, 2]}); };
var walk = function(time, state) {
  var next = move(state);
  if (time === data.observations.length) { return next; }
  observe(Gaussian({mu: data.means[next], sigma: 1}), data.observations[time]);
  return walk(time + 1, next);
};
var model = function() {
  var first = categorical({ps: data.initial, vs: [0, 1, 2]});
  return {state_0: first, state_17: walk(0, first)};
};
""",
    "gp": """
var model = function() {
  var a = gaussian(0, 1);
  var b = gaussian(0, 1);
  var c = gaussian(0, 1);
  var d = gamma(1, 1);
  var g = gamma(1, 1);
  var mu = Vector(map(function(x) { return (a * x + b) * x + c; }, data.x));
  var cov = Matrix(mapIndexed(function(i, x) {
    return mapIndexed(function(j, other) {
      return d * (Math.exp(-(x - other) * (x - other) / (2 * g)) + (i === j ? 1e-6 : 0));
    }, data.x);
  }, data.x));
  observe(MultivariateGaussian({mu: mu, cov: cov}), Vector(data.y));
  return {a: a, b: b, c: c};
};
""",
    "mixture_200": _MIXTURE,
    "mixture_10000": _MIXTURE,
    "dawid_skene": """
var model = function() {
  var share = dirichlet(Vector([1, 1, 1]));
  var confusion = repeat(5, function() {
    return map(function(right) {
      return dirichlet(Vector(map(function(k) { return k === right ? 5 : 1; }, [0, 1, 2])));
    }, [0, 1, 2]);
  });
  map(function(votes) {
    var c = discrete(share);
    mapIndexed(function(j, vote) {
      observe(Discrete({ps: confusion[j][c]}), vote);
    }, votes);
  }, data.y);
  return {share: [T.get(share, 0), T.get(share, 1), T.get(share, 2)]};
};
""",
    "change_point": """
var model = function() {
  var early = exponential(1);
  var late = exponential(1);
  var point = randomInteger(111);
  mapIndexed(function(year, count) {
    observe(Poisson({mu: year < point ? early : late}), count);
  }, data.counts);
  return {early: early, late: late, switch: point};
};
""",
    "n_mixture": """
var model = function() {
  var rate = gamma(2, 5);
  var detection = beta(2, 2);
  var counts = mapN(function(i) {
    var count = poisson(rate);
    map(function(visit) {
      if (visit[i] > count) { factor(-Infinity); } else {
        observe(Binomial({p: detection, n: count}), visit[i]);
      }
    }, data.seen);
    return count;
  }, 20);
  return {rate: rate, detection: detection, total: sum(counts)};
};
""",
    "occupancy": """
var model = function() {
  var occupancy = uniform(0, 1);
  var detection = uniform(0, 1);
  var sites = map(function(detected) {
    var isThere = flip(occupancy);
    if (isThere) { observe(Binomial({p: detection, n: 4}), detected); }
    else { condition(detected === 0); }
    return isThere ? 1 : 0;
  }, data.detected);
  return {occupancy: occupancy, detection: detection, occupied: sum(sites)};
};
""",
    "recapture": """
var live = function(captures, time, isAlive, survival, recapture) {
  if (time === captures.length) { return 0; }
  var next = flip(isAlive ? survival : 0);
  observe(Bernoulli({p: next ? recapture : 0}), captures[time] === 1);
  return live(captures, time + 1, next, survival, recapture);
};
var model = function() {
  var survival = uniform(0, 1);
  var recapture = uniform(0, 1);
  map(function(captures) { return live(captures, 1, true, survival, recapture); }, data.captures);
  return {survival: survival, recapture: recapture};
};
""",
    "poisson_hmm": """
var transition = [[0.95, 0.05], [0.08, 0.92]];
var walk = function(time, ps, rates) {
  if (time === data.counts.length) { return []; }
  var z = categorical({ps: ps, vs: [0, 1]});
  observe(Poisson({mu: rates[z]}), data.counts[time]);
  return [z].concat(walk(time + 1, transition[z], rates));
};
var model = function() {
  var low = gamma(2, 0.5);
  var high = gamma(4, 1);
  condition(low < high);
  var z = walk(0, [0.5, 0.5], [low, high]);
  return {low: low, high: high, z_0: z[0], z_50: z[50], z_99: z[99]};
};
""",
    "photons": """
var model = function() {
  var rate = Math.exp(gaussian(1, 1));
  var photons = map(function(reading) {
    var count = poisson(rate);
    observe(Gaussian({mu: count, sigma: 0.5}), reading);
    return count;
  }, data.readings);
  return {rate: rate, photons: photons};
};
""",
}

# Random choices: an iteration updates one of them.
SITES = {
    "hmm": lambda data: 18,
    "gp": lambda data: 5,
    "mixture_200": lambda data: len(data["y"]) + 3,
    "mixture_10000": lambda data: len(data["y"]) + 3,
    "dawid_skene": lambda data: 1016,
    "change_point": lambda data: 3,
    "n_mixture": lambda data: 22,
    "occupancy": lambda data: 62,
    "recapture": lambda data: 482,
    "poisson_hmm": lambda data: 102,
    "photons": lambda data: 6,
}
