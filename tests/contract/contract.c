/*
 * The frame of the contract suite: the choice of driver, store and clock, and
 * the program's main. Files that a failed test leaves behind go with the
 * program's directory.
 */
#include "contract.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "coverage.h"

#define CONNS_MAX 16
#define CASES_MAX 512
#define PEER_STOP '\0'

static struct contract_case *cases, **cases_end = &cases;

static struct {
    const struct contract_driver *driver;
    char base[256];   /* the program's directory */
    char folder[300]; /* the test's directory, inside `base` */
    char url[512];
    struct shared_clock *clock;
    struct idem_clock calls;
    struct conn conns[CONNS_MAX];
    unsigned conns_n;
} contract;

void contract_register(struct contract_case *it) {
    *cases_end = it;
    cases_end = &it->next;
}

const struct contract_driver *contract_driver(void) {
    return contract.driver;
}

const char *contract_folder(void) {
    return contract.folder;
}

const struct idem_clock *contract_clock(void) {
    return &contract.calls;
}

void contract_begin(void) {
    snprintf(contract.folder, sizeof(contract.folder), "%s/%d", contract.base, (int)getpid());
    CHECK(mkdir(contract.folder, 0700) == 0);
    contract.driver->url(contract.folder, contract.url, sizeof(contract.url));
    clock_reset(contract.clock);
    if (contract.driver->begin != NULL) {
        contract.clock->lease = contract.clock->wall; /* a server has one clock for both times */
        contract.driver->begin();
    }
    contract.calls = clock_calls(contract.clock);
    contract.conns_n = 0;
}

void contract_end(void) {
    for (unsigned i = 0; i < contract.conns_n; i++)
        conn_close(&contract.conns[i]);
    keep_reset();
    folder_remove(contract.folder);
}

struct conn *another(enum host_kind kind) {
    struct conn *conn = &contract.conns[contract.conns_n];

    CHECK(contract.conns_n < CONNS_MAX);
    contract.conns_n++;
    conn_open(conn, contract.url, kind, &contract.calls);
    return conn;
}

void advance(int64_t ms) {
    contract.clock->lease += ms;
    contract.clock->wall += ms;
}

struct idem_time now(void) {
    return (struct idem_time){.lease = contract.clock->lease, .wall = contract.clock->wall};
}

static void peer_main(int from, int to, void (*obey)(struct conn *, char)) {
    struct conn *c = another(HOST_POLL);
    char word;

    while (read(from, &word, 1) == 1 && word != PEER_STOP) {
        obey(c, word);
        CHECK(write(to, &word, 1) == 1);
    }
    conn_close(c);
    keep_reset();
}

struct peer peer_start(void (*obey)(struct conn *c, char word)) {
    int down[2], up[2];
    struct peer peer;

    CHECK_INT(contract.conns_n, 0);
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    fflush(NULL);
    peer.pid = fork();
    CHECK(peer.pid >= 0);
    if (peer.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(down[1]);
        close(up[0]);
        peer_main(down[0], up[1], obey);
        exit(0);
    }
    close(down[0]);
    close(up[1]);
    peer.to = down[1];
    peer.from = up[0];
    return peer;
}

void peer_tell(struct peer *peer, char word) {
    CHECK(write(peer->to, &word, 1) == 1);
}

void peer_wait(struct peer *peer) {
    char word;

    CHECK(read(peer->from, &word, 1) == 1);
}

void peer_stop(struct peer *peer) {
    int status;

    /* A word rather than end-of-file, because peers inherit each other's pipes, so the ends stay
     * open. */
    peer_tell(peer, PEER_STOP);
    close(peer->to);
    CHECK(waitpid(peer->pid, &status, 0) == peer->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(peer->from);
}

/* Runs last, because it checks the rows that all earlier tests have met. */
static void every_row_of_both_tables_was_met(void) {
    CHECK_INT(coverage_missing(), 0);
}

static const struct contract_driver *driver_find(const struct contract_driver *drivers, size_t n,
                                                 const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(drivers[i].name, name) == 0)
            return &drivers[i];
    fprintf(stderr, "no driver %s here\n", name);
    exit(2);
}

/* Takes --with=NAME out of the arguments and leaves the rest to the test frame. */
static int take_driver(int argc, char **argv, const struct contract_driver *drivers, size_t n) {
    static const char option[] = "--with=";
    int left = 1;

    contract.driver = &drivers[0];
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], option, sizeof(option) - 1) == 0)
            contract.driver = driver_find(drivers, n, argv[i] + sizeof(option) - 1);
        else
            argv[left++] = argv[i];
    }
    return left;
}

static void test_add(struct test *t, const char *name, void (*run)(void)) {
    *t = (struct test){.name = name, .run = run, .seconds = TEST_LIMIT_S};
    *test_last = t;
    test_last = &t->next;
}

int contract_main(int argc, char **argv, const struct contract_driver *drivers, size_t n) {
    static struct test tests[CASES_MAX + 1];
    size_t tests_n = 0;
    int failed, clock_fd;

    argc = take_driver(argc, argv, drivers, n);
    coverage_share();
    folder_make(contract.base, sizeof(contract.base));
    contract.clock = clock_share(&clock_fd);
    if (contract.driver->start != NULL)
        contract.driver->start(contract.base, clock_fd);
    close(clock_fd);
    for (struct contract_case *it = cases; it != NULL; it = it->next) {
        CHECK(tests_n < CASES_MAX);
        test_add(&tests[tests_n++], it->name, it->run);
    }
    if (argc == 1)
        test_add(&tests[tests_n++], "every_row_of_both_tables_was_met",
                 every_row_of_both_tables_was_met);
    failed = test_main(argc, argv);
    if (contract.driver->stop != NULL)
        contract.driver->stop();
    munmap(contract.clock, sizeof(*contract.clock));
    folder_remove(contract.base);
    return failed;
}
