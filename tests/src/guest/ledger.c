/*
 * State that a host can check: a chain of numbers, kept several times in the guest. In the pages of a process,
 * in a journal that is synced after each line, in a file that is replaced by renaming, and in a database of
 * SQLite where the host has it (LEDGER_SQLITE).
 *
 *   ledger serve       runs in the background
 *   ledger put TOKEN   adds a link to the chain, then prints its length and end
 *   ledger look        compares them, then prints the length and end of the chain
 *
 * Exits with 1 if they differ and with 2 if the guest's disk failed; the text says what is wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#ifdef LEDGER_SQLITE
#include <sqlite3.h>
#endif

enum { PAGES = 128, WORDS = 4096 / sizeof(uint64_t) };
#define JOURNAL "/root/ledger.journal"
#define STATE "/root/ledger.state"
#define STATE_NEW "/root/ledger.state.new"

static uint64_t (*pages)[WORDS];
static uint64_t length, end;
static int journal, root;

/* The same function is in tests/src/support/model/ledger.ts. */
static uint64_t link_of(uint64_t before, uint64_t token)
{
    uint64_t mixed = (before ^ token) * 0x9E3779B97F4A7C15u;
    return mixed ^ mixed >> 29;
}

static void fill(uint64_t number, uint64_t value)
{
    for (size_t i = 0; i < WORDS; i++)
        pages[number % PAGES][i] = value;
}

static int save_state(void)
{
    char text[64];
    int size = snprintf(text, sizeof text, "%" PRIu64 " %016" PRIx64 "\n", length, end);
    int fd = open(STATE_NEW, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        return -1;
    int bad = write(fd, text, (size_t)size) != size || fsync(fd) != 0;
    bad |= close(fd) != 0;
    return bad || rename(STATE_NEW, STATE) != 0 || fsync(root) != 0 ? -1 : 0;
}

#ifdef LEDGER_SQLITE
#define DATABASE "/root/ledger.db"
static sqlite3 *database;

/* The process that uses a database must be the one that opened it. */
static int open_database(void)
{
    return sqlite3_open(DATABASE, &database) == SQLITE_OK &&
                   sqlite3_exec(database,
                                "PRAGMA synchronous=FULL; CREATE TABLE chain (number INTEGER PRIMARY KEY, end INTEGER)",
                                NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : -1;
}

static int insert(void)
{
    char text[128];
    snprintf(text, sizeof text, "INSERT INTO chain VALUES (%" PRId64 ", %" PRId64 ")", (int64_t)length, (int64_t)end);
    return sqlite3_exec(database, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : -1;
}

/* The rows number and end of the last one, and whether SQLite finds the file sound. */
static int compare_database(char *answer, size_t room)
{
    const char *query = "SELECT count(*), coalesce(max(number), 0), "
                        "coalesce((SELECT end FROM chain ORDER BY number DESC LIMIT 1), 0), "
                        "(SELECT group_concat(integrity_check) FROM pragma_integrity_check) FROM chain";
    sqlite3_stmt *statement = NULL;
    int code = 2;
    if (sqlite3_prepare_v2(database, query, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        uint64_t rows = (uint64_t)sqlite3_column_int64(statement, 0);
        uint64_t last = (uint64_t)sqlite3_column_int64(statement, 1);
        uint64_t found = (uint64_t)sqlite3_column_int64(statement, 2);
        const char *check = (const char *)sqlite3_column_text(statement, 3);
        bool same = rows == length && last == length && found == end && check && strcmp(check, "ok") == 0;
        code = same ? 0 : 1;
        if (!same)
            snprintf(answer, room, "database: %" PRIu64 " rows, last %" PRIu64 " %016" PRIx64 ", %.60s", rows, last,
                     found, check ? check : "");
    } else
        snprintf(answer, room, "disk: database: %s", sqlite3_errmsg(database));
    sqlite3_finalize(statement);
    return code;
}
#else
static int open_database(void) { return 0; }
static int insert(void) { return 0; }
static int compare_database(char *answer, size_t room)
{
    (void)answer;
    (void)room;
    return 0;
}
#endif

static int put(uint64_t token, char *answer, size_t room)
{
    char line[80];
    length++;
    end = link_of(end, token);
    fill(length, end);
    int size = snprintf(line, sizeof line, "%" PRIu64 " %016" PRIx64 " %016" PRIx64 "\n", length, token, end);
    if (write(journal, line, (size_t)size) != size || fsync(journal) != 0 || save_state() != 0 || insert() != 0) {
        snprintf(answer, room, "disk: %s", strerror(errno));
        return 2;
    }
    snprintf(answer, room, "%" PRIu64 " %016" PRIx64, length, end);
    return 0;
}

/* Reads the journal again and checks every page on the way. */
static int look(char *answer, size_t room)
{
    uint64_t count = 0, chain = 0, number, token, written, latest[PAGES] = {0};
    FILE *file = fopen(JOURNAL, "r");
    if (!file) {
        snprintf(answer, room, "disk: %s", strerror(errno));
        return 2;
    }
    while (fscanf(file, "%" SCNu64 " %" SCNx64 " %" SCNx64, &number, &token, &written) == 3) {
        chain = link_of(chain, token);
        if (number != ++count || written != chain) {
            snprintf(answer, room, "journal: wrong line %" PRIu64, count);
            fclose(file);
            return 1;
        }
        latest[number % PAGES] = chain;
    }
    int failed = ferror(file);
    fclose(file);
    if (failed) {
        snprintf(answer, room, "disk: cannot read the journal");
        return 2;
    }
    if (count != length || chain != end) {
        snprintf(answer, room, "journal: %" PRIu64 " %016" PRIx64 ", memory: %" PRIu64 " %016" PRIx64, count, chain,
                 length, end);
        return 1;
    }
    for (size_t page = 0; page < PAGES; page++)
        for (size_t i = 0; i < WORDS; i++)
            if (pages[page][i] != latest[page]) {
                snprintf(answer, room, "memory: page %zu, word %zu", page, i);
                return 1;
            }
    file = fopen(STATE, "r");
    int fields = file ? fscanf(file, "%" SCNu64 " %" SCNx64, &number, &written) : 0;
    if (file)
        fclose(file);
    if (fields != 2 || number != length || written != end) {
        snprintf(answer, room, "state: differs from the journal at %" PRIu64, length);
        return 1;
    }
    int code = compare_database(answer, room);
    if (code == 0)
        snprintf(answer, room, "%" PRIu64 " %016" PRIx64, length, end);
    return code;
}

static int open_socket(struct sockaddr_un *address, socklen_t *size)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, "\0ledger", 7);
    *size = offsetof(struct sockaddr_un, sun_path) + 7;
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

static int serve(void)
{
    struct sockaddr_un address;
    socklen_t size;
    int listener = open_socket(&address, &size);
    pages = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    journal = open(JOURNAL, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    root = open("/root", O_RDONLY | O_DIRECTORY);
    if (pages == MAP_FAILED || journal < 0 || root < 0 || save_state() != 0 ||
        bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 64) != 0)
        return 3;
    /* The caller sees the exit once the socket is there. */
    if (fork() != 0)
        return 0;
    setsid();
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    if (open_database() != 0)
        return 3;
    for (;;) {
        char text[256] = {0}, answer[256] = {0};
        int peer = accept(listener, NULL, NULL);
        if (peer < 0)
            continue;
        ssize_t n = recv(peer, text, sizeof text - 1, 0);
        if (n > 0) {
            int code = text[0] == 'p' ? put(strtoull(text + 1, NULL, 16), answer + 1, sizeof answer - 2)
                                      : look(answer + 1, sizeof answer - 2);
            answer[0] = (char)('0' + code);
            send(peer, answer, strlen(answer), MSG_NOSIGNAL);
        }
        close(peer);
    }
}

static int ask(const char *text)
{
    struct sockaddr_un address;
    socklen_t size;
    char answer[256] = {0};
    int fd = open_socket(&address, &size);
    if (connect(fd, (struct sockaddr *)&address, size) != 0 || send(fd, text, strlen(text), 0) < 0 ||
        recv(fd, answer, sizeof answer - 1, 0) <= 0) {
        printf("ledger: %s\n", strerror(errno));
        return 4;
    }
    puts(answer + 1);
    return answer[0] - '0';
}

int main(int count, char **arguments)
{
    char text[64];
    if (count == 2 && strcmp(arguments[1], "serve") == 0)
        return serve();
    if (count == 2 && strcmp(arguments[1], "look") == 0)
        return ask("l");
    if (count != 3 || strcmp(arguments[1], "put") != 0)
        return 64;
    snprintf(text, sizeof text, "p%s", arguments[2]);
    return ask(text);
}
