/* Writes to every page of its memory in turn, at a steady rate: MIB of memory, MIB_PER_SECOND. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  const size_t pages = strtoul(argv[1], NULL, 10) << 8, rate = strtoul(argv[2], NULL, 10) << 8;
  const struct timespec rest = {0, 5000000};
  unsigned char *memory = malloc(pages * 4096);
  if (!memory) return 1;
  memset(memory, 1, pages * 4096);
  struct timespec begun, now;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  for (size_t done = 0;;) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double seconds = (double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) / 1e9;
    const size_t due = (size_t)(seconds * (double)rate);
    /* After a stop of the VM the writes that it missed are not made up for. */
    if (due > done + rate / 10) done = due - rate / 10;
    for (; done < due; done++) memory[done % pages * 4096]++;
    nanosleep(&rest, NULL);
  }
}
