/* AdLMH on the paper's hidden Markov model, by hand: the physical reference for the benchmarks.
 *
 * Algorithms 2 and 3 with eq. 17 at every step: a prior proposal for one state, accepted by its
 * Markov blanket; on acceptance only, rewards and weights follow. Per output a multiset history;
 * each of the K = 2 outputs weighs 1/K; C = 0.5; r = c = 1 at the start; alpha_k >= 0.1 / N.
 *
 * Build:  cc -O3 -march=native reference_hmm.c -lm -o reference_hmm
 * Usage:  reference_hmm CHAINS STEPS SEED ADAPT     (ADAPT 1: AdLMH, 0: LMH)
 */
#ifdef __AVX__
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 18, VALUES = 3, OUTPUTS = 2 };

static const double OBSERVATIONS[N - 2] = {0.9, 0.8,  0.7,  0,   -0.025, 5,   2,  0.1,
                                           0,   0.13, 0.45, 6.0, 0.2,    0.3, -1, -1};
static const double TRANSITION[VALUES][VALUES] = {
    {0.1, 0.5, 0.4}, {0.2, 0.2, 0.6}, {0.15, 0.15, 0.7}};
static const double MEANS[VALUES] = {-1, 1, 0};
static const float EXPLORATION = 0.5f, FLOOR = 0.1f;

/* Random numbers: xoshiro128+ (Blackman and Vigna), seeded by splitmix64. */

typedef struct {
    uint32_t s[4];
} Random;

static inline uint32_t rotate(uint32_t x, int k) { return (x << k) | (x >> (32 - k)); }

static inline uint32_t draw(Random *random) {
    uint32_t *s = random->s, result = s[0] + s[3], t = s[1] << 9;
    s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t;
    s[3] = rotate(s[3], 11);
    return result;
}

static Random seeded(uint64_t seed, uint64_t chain) {
    Random random;
    uint64_t z = (seed << 32) ^ chain;
    for (int i = 0; i < 4; i++) {
        uint64_t y = (z += 0x9e3779b97f4a7c15u);
        y = (y ^ (y >> 30)) * 0xbf58476d1ce4e5b9u;
        y = (y ^ (y >> 27)) * 0x94d049bb133111ebu;
        random.s[i] = (uint32_t)((y ^ (y >> 31)) >> 32);
    }
    return random;
}

static inline float uniform(Random *random) { return (float)(draw(random) >> 8) * 0x1p-24f; }

/* The model. Probabilities are thresholds of 32-bit random numbers. An index "none" stands for
 * what comes before the first state (whose prior is uniform) and after the last one. */

enum { NONE = VALUES };
static uint32_t prior_below[VALUES + 1][2];                /* [before]: P(0), P(0 or 1) */
static uint32_t acceptance[N][VALUES + 1][VALUES][VALUES]; /* [state][after][old][new] */

static uint32_t threshold(double probability) {
    return probability >= 1 ? UINT32_MAX : (uint32_t)(probability * 0x1p32);
}

static double likelihood(int state, int value) {
    if (state == 0 || state == N - 1) return 1;
    double residual = OBSERVATIONS[state - 1] - MEANS[value];
    return exp(-0.5 * residual * residual);
}

static void make_tables(void) {
    for (int before = 0; before <= NONE; before++) {
        double p0 = before == NONE ? 1. / 3 : TRANSITION[before][0];
        double p1 = before == NONE ? 1. / 3 : TRANSITION[before][1];
        prior_below[before][0] = threshold(p0), prior_below[before][1] = threshold(p0 + p1);
    }
    /* The proposal is the prior, so only the state's observation and the next state remain. */
    for (int state = 0; state < N; state++)
        for (int after = 0; after <= NONE; after++)
            for (int old = 0; old < VALUES; old++)
                for (int new = 0; new < VALUES; new++) {
                    double ratio = likelihood(state, new) / likelihood(state, old);
                    if (after != NONE) ratio *= TRANSITION[new][after] / TRANSITION[old][after];
                    acceptance[state][after][old][new] = threshold(ratio);
                }
}

static inline int propose(Random *random, int before) {
    uint32_t u = draw(random);
    return (u >= prior_below[before][0]) + (u >= prior_below[before][1]);
}

/* The schedule. Rewards and counts are doubles, so that long runs keep counting. */

typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8 __attribute__((vector_size(32)));
enum { VECTORS = (N + 7) / 8, PADDED = 8 * VECTORS };

static Float8 is_choice[VECTORS];     /* 1, then 0 for the padding */
static double is_selected[N][PADDED]; /* row k: 1 for choice k, else 0 */

static void make_masks(void) {
    for (int k = 0; k < N; k++) is_choice[k / 8][k % 8] = 1, is_selected[k][k] = 1;
}

typedef struct {
    double rewards[PADDED], counts[PADDED], total_count;
    float history[OUTPUTS][PADDED], history_size[OUTPUTS];
    Float8 cumulative[VECTORS];
    float total_weight;
} Schedule;

/* Sums of a vector's first elements, in three steps: shift by 1, 2 and 4 elements and add. */
static inline Float8 prefix_sums(Float8 x) {
    const Float8 zero = {0};
    x += __builtin_shufflevector(x, zero, 8, 0, 1, 2, 3, 4, 5, 6);
    x += __builtin_shufflevector(x, zero, 8, 9, 0, 1, 2, 3, 4, 5);
    x += __builtin_shufflevector(x, zero, 8, 9, 10, 11, 0, 1, 2, 3);
    return x;
}

static inline Float8 last(Float8 x) {
    return __builtin_shufflevector(x, x, 7, 7, 7, 7, 7, 7, 7, 7);
}

/* A loop of sqrtf stays scalar, because of errno, unless the compiler is told otherwise. */
static inline Float8 square_roots(Float8 x) {
#ifdef __AVX__
    return (Float8)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < 8; i++) x[i] = sqrtf(x[i]);
    return x;
#endif
}

/* Selection needs the cumulative sums of the weights. */
static inline void accumulate(Schedule *schedule, const Float8 weights[VECTORS]) {
    Float8 before = {0};
    for (int v = 0; v < VECTORS; v++) {
        schedule->cumulative[v] = prefix_sums(weights[v]) + before;
        before = last(schedule->cumulative[v]);
    }
    schedule->total_weight = before[0];
}

/* Raising weights to `least` adds at most FLOOR / (1 - FLOOR) of their sum, so that afterwards
 * alpha_k >= FLOOR / N for all k. Seldom needed, so the common path does not wait for it. */
static inline void apply_floor(Schedule *schedule, Float8 weights[VECTORS]) {
    float least = schedule->total_weight * (FLOOR / ((1 - FLOOR) * N));
    Int8 low = {0};
    for (int v = 0; v < VECTORS; v++) low |= weights[v] < least * is_choice[v];
    int is_low = 0;
    for (int i = 0; i < 8; i++) is_low |= low[i];
    if (__builtin_expect(!is_low, 1)) return;
    for (int k = 0; k < N; k++) weights[k / 8][k % 8] = fmaxf(weights[k / 8][k % 8], least);
    accumulate(schedule, weights);
}

static inline void update_weights(Schedule *schedule) {
    Float8 per_count[VECTORS], unit_reward[VECTORS], weights[VECTORS];
    for (int k = 0; k < PADDED; k++) {
        float inverse = 1 / (float)schedule->counts[k];
        ((float *)per_count)[k] = inverse;
        ((float *)unit_reward)[k] = (float)schedule->rewards[k] * inverse;
    }
    float spread = EXPLORATION * EXPLORATION * logf((float)schedule->total_count);
    for (int v = 0; v < VECTORS; v++) /* eq. 17 */
        weights[v] = (unit_reward[v] + square_roots(spread * per_count[v])) * is_choice[v];
    accumulate(schedule, weights);
    apply_floor(schedule, weights);
}

static void start(Schedule *schedule) {
    memset(schedule, 0, sizeof *schedule);
    for (int k = 0; k < PADDED; k++) schedule->rewards[k] = schedule->counts[k] = 1;
    schedule->total_count = N;
    update_weights(schedule);
}

static inline int select_choice(const Schedule *schedule, Random *random) {
    float u = uniform(random) * schedule->total_weight;
    Int8 passed = {0};
    for (int v = 0; v < VECTORS; v++) passed -= schedule->cumulative[v] <= u;
    int choice = 0;
    for (int i = 0; i < 8; i++) choice += passed[i];
    return choice < N ? choice : N - 1; /* u may round up to the sum */
}

static inline int select_uniformly(Random *random) { return (uint64_t)draw(random) * N >> 32; }

/* Algorithm 3, for outputs that weigh 1 / OUTPUTS each. */
static inline void award(Schedule *schedule, int choice, const int changed[OUTPUTS]) {
    double penalty = 0;
    for (int output = 0; output < OUTPUTS; output++) {
        float *history = schedule->history[output];
        history[choice] += 1;
        schedule->history_size[output] += 1;
        if (changed[output]) {
            float share = 1.0f / (OUTPUTS * schedule->history_size[output]);
            for (int k = 0; k < PADDED; k++) {
                double reward = history[k] * share;
                schedule->rewards[k] += reward, schedule->counts[k] += reward;
                history[k] = 0;
            }
            schedule->history_size[output] = 0;
        } else {
            penalty += 1.0 / OUTPUTS;
        }
    }
    /* Added as a vector, since the weights are about to be read as vectors. */
    for (int k = 0; k < PADDED; k++) schedule->counts[k] += penalty * is_selected[choice][k];
    schedule->total_count += 1; /* 1 / OUTPUTS for each output, changed or not */
}

/* One chain. Visits to the values of the first and the last state are added to the tables. */

typedef struct {
    uint64_t visits[OUTPUTS][VALUES], accepted, selected[N];
} Tally;

static void run_chain(uint64_t steps, int adapt, Random random, Tally *tally) {
    uint8_t padded[N + 2], *states = padded + 1;
    Schedule schedule;
    padded[0] = padded[N + 1] = NONE;
    for (int k = 0; k < N; k++) states[k] = propose(&random, states[k - 1]);
    start(&schedule);
    for (uint64_t step = 0; step < steps; step++) {
        int k = adapt ? select_choice(&schedule, &random) : select_uniformly(&random);
        int old = states[k], new = propose(&random, states[k - 1]);
        tally->selected[k]++;
        if (draw(&random) <= acceptance[k][states[k + 1]][old][new]) {
            states[k] = new;
            tally->accepted++;
            if (adapt) {
                const int changed[OUTPUTS] = {k == 0 && old != new, k == N - 1 && old != new};
                award(&schedule, k, changed);
                update_weights(&schedule);
            }
        }
        tally->visits[0][states[0]]++;
        tally->visits[1][states[N - 1]]++;
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s CHAINS STEPS SEED ADAPT\n", argv[0]);
        return 2;
    }
    uint64_t chains = strtoull(argv[1], NULL, 10), steps = strtoull(argv[2], NULL, 10);
    uint64_t seed = strtoull(argv[3], NULL, 10);
    int adapt = atoi(argv[4]);
    double total = (double)chains * (double)steps;
    Tally tally = {0};
    make_tables();
    make_masks();
    double begin = seconds();
    for (uint64_t chain = 0; chain < chains; chain++)
        run_chain(steps, adapt, seeded(seed, chain), &tally);
    printf("steps_per_second %.4g\n", total / (seconds() - begin));
    printf("accepted %.4f\n", tally.accepted / total);
    for (int output = 0; output < OUTPUTS; output++) {
        printf("state_%d", output == 0 ? 0 : N - 1);
        for (int value = 0; value < VALUES; value++)
            printf(" %.5f", tally.visits[output][value] / total);
        printf("\n");
    }
    printf("selected");
    for (int k = 0; k < N; k++) printf(" %.4f", tally.selected[k] / total);
    printf("\n");
    return 0;
}
