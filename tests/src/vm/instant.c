/*
 * Detects whether the memory, the CPUs and the disk of a guest are from one instant. Every thread knows from
 * its registers what memory or disk must hold, and reads before it writes. It finds a page that is older or
 * newer than the state of the CPU, or a mix of both, within one pass, and reports it in every later check.
 *
 *   instant run            maintains the invariants, prints beats on stdout, and serves the other commands
 *   instant check          stops all threads, verifies everything, continues; prints "ok ..." and exits
 *                          with 0, or prints what is wrong and exits with 1
 *   instant corrupt WHAT   breaks one invariant: page, torn, cold, handshake, ring, ahead or log
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { WRITERS = 2, PAGES = 512, COLD = 1024, PAGE = 4096, SLOTS = 512, BLOCK = 512, LOG_EVERY = 16, THREADS = WRITERS + 1 };

typedef struct {
	volatile uint64_t value, complement;
} cell;
/* The offset varies with the page, so that the cells use different cache lines. */
static cell *cell_of(uint8_t *pages, uint64_t k) { return (cell *)(pages + k * PAGE + (k * 64) % (PAGE - 64)); }

typedef struct {
	uint64_t number, complement, filler[BLOCK / 8 - 2];
} record;

static uint8_t *hot[WRITERS], *cold[WRITERS];
static volatile uint64_t *ping, *pong; /* each in its own page */
static volatile uint64_t *durable, *logged;
static _Atomic uint64_t passes[WRITERS];
static _Atomic int freeze, frozen, corrupting;
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static char report[2048];

static void bad(const char *format, ...) {
	char text[256];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	pthread_mutex_lock(&report_lock);
	if (strlen(report) + strlen(text) + 3 < sizeof report) strcat(strcat(report, text), "; ");
	pthread_mutex_unlock(&report_lock);
}

static void die(const char *what) {
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

static void *pages_of(size_t count) {
	uint8_t *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) die("mmap");
	memset(at, 0, count * PAGE);
	return at;
}

static int corrupt_here(int what) {
	int wanted = what;
	return atomic_compare_exchange_strong(&corrupting, &wanted, 0);
}

/* Waits while main reports. */
static void wait_frozen(void) {
	atomic_fetch_add(&frozen, 1);
	while (atomic_load(&freeze)) usleep(200);
	atomic_fetch_sub(&frozen, 1);
}

static void verify_hot(int me, uint64_t v, uint64_t next) {
	for (uint64_t k = 0; k < PAGES; k++) {
		cell *at = cell_of(hot[me], k);
		uint64_t want = k < next ? v : v - 1;
		if (at->value != want || at->complement != ~want)
			return bad("writer %d: page %lu has %lu/%lu, not %lu", me, k, at->value, ~at->complement, want);
	}
}

static void verify_cold(int me, uint64_t sum) {
	uint64_t found = 0;
	for (uint64_t k = 0; k < COLD; k++) {
		cell *at = cell_of(cold[me], k);
		if (at->value != ~at->complement) return bad("writer %d: cold page %lu is torn", me, k);
		found += at->value;
	}
	if (found != sum) bad("writer %d: the cold pages sum up to %lu, not %lu", me, found, sum);
}

static void *writer(void *arg) {
	int me = (int)(intptr_t)arg;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(me, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
	uint64_t sum = 0, random = 88172645463325252ull + me, hand = 0;
	for (uint64_t k = 0; k < PAGES; k++) cell_of(hot[me], k)->complement = ~0ull;
	for (uint64_t k = 0; k < COLD; k++) cell_of(cold[me], k)->complement = ~0ull;
	for (uint64_t v = 1;; v++) {
		for (uint64_t k = 0; k < PAGES; k++) {
			cell *at = cell_of(hot[me], k);
			if (at->value != v - 1 || at->complement != ~(v - 1)) {
				bad("writer %d: page %lu had %lu/%lu before %lu", me, k, at->value, ~at->complement, v);
			}
			at->value = v;
			at->complement = ~v;
			if (k % 8 != 0) continue;
			random ^= random << 13, random ^= random >> 7, random ^= random << 17;
			cell *other = cell_of(cold[me], random % COLD);
			uint64_t value = other->value + (random >> 40);
			sum += random >> 40;
			other->value = value;
			other->complement = ~value;
			if (!atomic_load_explicit(&freeze, memory_order_relaxed)) continue;
			verify_hot(me, v, k + 1);
			verify_cold(me, sum);
			wait_frozen();
		}
		/* The two writers take turns: ping is one ahead of pong, or they are equal. */
		uint64_t mine = me == 0 ? *ping : *pong, theirs = me == 0 ? *pong : *ping;
		if (mine != hand) bad("writer %d: its word is %lu, not %lu", me, mine, hand);
		if (me == 0 ? theirs != mine && theirs + 1 != mine : theirs != mine && theirs != mine + 1)
			bad("writer %d: the words are %lu and %lu", me, mine, theirs);
		if (me == 0 && theirs == mine) *ping = ++hand;
		if (me == 1 && theirs == mine + 1) *pong = ++hand;
		atomic_store(&passes[me], v);
		/* Leaves CPU time to the other threads. */
		if (v % 6 == 0) usleep(300);
		if (me != 0) continue;
		if (corrupt_here('p')) cell_of(hot[0], 100)->value = v - 1, cell_of(hot[0], 100)->complement = ~(v - 1);
		if (corrupt_here('t')) cell_of(hot[0], 200)->complement = ~(v - 1);
		if (corrupt_here('c')) cell_of(cold[0], 7)->value += 1, cell_of(cold[0], 7)->complement -= 1;
		if (corrupt_here('h')) *ping += 1;
	}
	return NULL;
}

static void fill(record *at, uint64_t n) {
	at->number = n;
	at->complement = ~n;
	for (unsigned i = 0; i < BLOCK / 8 - 2; i++) at->filler[i] = n * 0x9e3779b97f4a7c15ull + i;
}

static int is_record(const record *at, uint64_t n) {
	static record want;
	fill(&want, n);
	return memcmp(at, &want, BLOCK) == 0;
}

/* The record that the slot holds after the records up to n are written. */
static uint64_t slot_after(uint64_t slot, uint64_t n) { return n < slot ? 0 : n - (n - slot) % SLOTS; }

static void drop_caches(void) {
	sync();
	int file = open("/proc/sys/vm/drop_caches", O_WRONLY);
	if (file < 0 || write(file, "3", 1) != 1) die("drop_caches");
	close(file);
}

static void verify_disk(int ring, record *block, uint64_t n) {
	drop_caches();
	if (pread(ring, block, SLOTS * BLOCK, 0) != SLOTS * BLOCK) return bad("the ring cannot be read");
	for (uint64_t slot = 0; slot < SLOTS; slot++) {
		uint64_t want = slot_after(slot, n), number = block[slot].number;
		if (!is_record(&block[slot], want)) return bad("slot %lu has record %lu, not %lu", slot, number, want);
	}
	int log = open("/root/log", O_RDONLY);
	if (log < 0) return bad("the log is gone");
	char line[32];
	uint64_t count = 0;
	for (; pread(log, line, 16, count * 16) == 16; count++)
		if (strtoull(line, NULL, 10) != count + 1) {
			bad("line %lu of the log is %.15s", count, line);
			break;
		}
	if (count != *logged) bad("the log has %lu lines, not %lu", count, *logged);
	close(log);
}

/* Writes a record to disk first, and only then marks it as durable in memory. */
static void *journal(void *arg) {
	(void)arg;
	record *block;
	if (posix_memalign((void **)&block, PAGE, SLOTS * BLOCK) != 0) die("memalign");
	int ring = open("/root/ring", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	int log = open("/root/log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	if (ring < 0 || log < 0) die("open");
	for (int slot = 0; slot < SLOTS; slot++) fill(&block[slot], 0);
	if (pwrite(ring, block, SLOTS * BLOCK, 0) != SLOTS * BLOCK || fsync(ring) != 0) die("write");
	for (uint64_t n = 1;; n++) {
		uint64_t at = n % SLOTS * BLOCK, before = slot_after(n % SLOTS, n - 1);
		if (*durable != n - 1) bad("record %lu is durable before %lu", *durable, n);
		if (pread(ring, block, BLOCK, at) != BLOCK) bad("slot %lu cannot be read", n % SLOTS);
		else if (!is_record(block, before))
			bad("slot %lu had record %lu, not %lu, before %lu", n % SLOTS, block->number, before, n);
		fill(block, n);
		if (pwrite(ring, block, BLOCK, at) != BLOCK || fdatasync(ring) != 0) bad("record %lu: %s", n, strerror(errno));
		*durable = n;
		if (n % LOG_EVERY == 0) {
			char line[32];
			snprintf(line, sizeof line, "%015lu\n", n / LOG_EVERY);
			if (write(log, line, 16) != 16 || fsync(log) != 0) bad("log: %s", strerror(errno));
			*logged = n / LOG_EVERY;
		}
		/* A record that is too old, one that is too new, a lost line. */
		if (corrupt_here('r')) fill(block, n > SLOTS ? n - SLOTS : 0), pwrite(ring, block, BLOCK, at);
		if (corrupt_here('a')) fill(block, n + 2), pwrite(ring, block, BLOCK, (n + 2) % SLOTS * BLOCK);
		if (corrupt_here('l') && ftruncate(log, (*logged > 0 ? *logged - 1 : 0) * 16) != 0) die("ftruncate");
		if (atomic_load(&freeze)) {
			verify_disk(ring, block, n);
			wait_frozen();
		}
		usleep(500);
	}
	return NULL;
}

static void *heart(void *arg) {
	(void)arg;
	for (uint64_t n = 1;; n++) {
		char line[32];
		int length = snprintf(line, sizeof line, "beat %lu\n", n);
		if (write(1, line, length) != length) die("stdout");
		usleep(2000);
	}
	return NULL;
}

static int at_socket(int (*act)(int, const struct sockaddr *, socklen_t)) {
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/root/instant.sock"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || act(fd, (struct sockaddr *)&address, sizeof address) != 0) die("socket");
	return fd;
}

static void check(int peer) {
	atomic_store(&freeze, 1);
	while (atomic_load(&frozen) != THREADS) usleep(200);
	pthread_mutex_lock(&report_lock);
	dprintf(peer, "%s passes=%lu,%lu hands=%lu durable=%lu logged=%lu\n", report[0] ? report : "ok",
	        atomic_load(&passes[0]), atomic_load(&passes[1]), *pong, *durable, *logged);
	pthread_mutex_unlock(&report_lock);
	atomic_store(&freeze, 0);
	while (atomic_load(&frozen) != 0) usleep(200);
}

static _Noreturn void run(void) {
	for (int each = 0; each < WRITERS; each++) hot[each] = pages_of(PAGES), cold[each] = pages_of(COLD);
	ping = pages_of(1), pong = pages_of(1), durable = pages_of(1), logged = pages_of(1);
	unlink("/root/instant.sock");
	int server = at_socket(bind);
	if (listen(server, 4) != 0) die("listen");
	pthread_t thread;
	for (intptr_t each = 0; each < WRITERS; each++) pthread_create(&thread, NULL, writer, (void *)each);
	pthread_create(&thread, NULL, journal, NULL);
	pthread_create(&thread, NULL, heart, NULL);
	for (;;) {
		int peer = accept(server, NULL, NULL);
		char what = 0;
		if (peer < 0 || read(peer, &what, 1) != 1) die("accept");
		if (what == '?') {
			check(peer);
		} else {
			atomic_store(&corrupting, what);
			while (atomic_load(&corrupting)) usleep(200);
			/* A pass or two, so that the threads that read before they write find it as well. */
			usleep(20000);
		}
		close(peer);
	}
}

int main(int argc, char **argv) {
	if (argc < 2) return 2;
	if (strcmp(argv[1], "run") == 0) run();
	int peer = at_socket(connect);
	char what = argc > 2 ? argv[2][0] : '?';
	if (argc > 2 && strcmp(argv[2], "torn") == 0) what = 't';
	if (write(peer, &what, 1) != 1) die("write");
	char answer[4096];
	ssize_t length, total = 0;
	while ((length = read(peer, answer + total, sizeof answer - total)) > 0) total += length;
	if (fwrite(answer, 1, total, stdout) != (size_t)total) die("stdout");
	return total == 0 || strncmp(answer, "ok ", 3) == 0 ? 0 : 1;
}
