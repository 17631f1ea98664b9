/*
 * --tsc-khz: measures the frequency of the host's time stamp counter, for the guests' kernel argument
 * tsc_early_khz.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

#include "fork/fork.h"

#define TRIES 16
#define PERIOD_NS 250000000

struct sample {
    uint64_t tsc, ns;
};

/* Reads the clock between two readings of the counter; the shortest of several tries is the most exact. */
static struct sample take(void)
{
    struct sample best = {0, 0};
    uint64_t narrowest = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        struct timespec t;
        uint64_t before = __rdtsc();
        clock_gettime(CLOCK_MONOTONIC_RAW, &t);
        uint64_t after = __rdtsc();
        if (after - before < narrowest) {
            narrowest = after - before;
            best.tsc = before + (after - before) / 2;
            best.ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
        }
    }
    return best;
}

int tsc_print(void)
{
    struct timespec period = {.tv_nsec = PERIOD_NS};
    struct sample a = take();
    nanosleep(&period, NULL);
    struct sample b = take();
    if (b.ns <= a.ns || b.tsc <= a.tsc)
        return 1;
    printf("%llu\n", (unsigned long long)((double)(b.tsc - a.tsc) * 1e6 / (double)(b.ns - a.ns) + 0.5));
    return 0;
}
