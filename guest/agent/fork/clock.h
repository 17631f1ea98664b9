/* Decides when CLOCK sets the wall clock. Pure. */
#ifndef FORKD_CLOCK_H
#define FORKD_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CLOCK_LAG_NS 500000ull      /* a clock that is behind by more than this is set */
#define CLOCK_LEAD_NS 1000000000ull /* larger for a clock that is ahead: time should not run backwards */

static inline bool clock_differs(uint64_t own, uint64_t given)
{
    return given > own ? given - own > CLOCK_LAG_NS : own - given > CLOCK_LEAD_NS;
}

#endif
