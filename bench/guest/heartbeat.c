/* A line every millisecond: sequence number, and CLOCK_MONOTONIC in nanoseconds. The next wait begins after the write. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(void) {
  const struct timespec rest = {0, 1000000};
  char line[64];
  for (unsigned long sequence = 0;; sequence++) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(line, sizeof line, "%lu %lld\n", sequence, now.tv_sec * 1000000000LL + now.tv_nsec);
    if (write(STDOUT_FILENO, line, length) != length) return 1;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL);
  }
}
