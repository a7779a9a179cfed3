/*
 * Transfers between accounts from many processes, many of them requested twice
 * or more, while clients are killed, sessions are ended at the server, and the
 * server itself is killed and restarted. At the end each transfer has happened
 * exactly once, and every account holds the sum of the transfers, which follow
 * from the seed alone.
 *
 * IDEM_SEED=N replays the transfers and their requests (not how they meet);
 * IDEM_LONG=1 makes 20,000 of them.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "db.h"
#include "store/sql/process.h"
#include "test.h"
#include "tx/tx_dialect.h"
#include "wait.h"

#define WORKERS 8
#define ACCOUNTS 12
#define OPENING 1000000 /* no account runs out of money */
#define TRIES 6000      /* for one transfer: the server is away for a while */
#define TEXT_MAX 64

/* The state of a worker, for its successor. */
struct slot {
    atomic_long id;      /* the transfer that may not be done, plus 1; 0: none */
    atomic_long session; /* at the server; 0: none */
    atomic_ulong turn;   /* the state of its random numbers */
};

/* Shared by all processes. */
struct board {
    atomic_long next;     /* the first transfer that no worker has taken */
    atomic_bool troubled; /* each kind of kill has happened at least once */
    struct slot slots[WORKERS];
    atomic_long firsts, duplicates, unknown, happened, again;
};

static struct board *board;
static uint64_t seed;
static long transfers;
static char url[1000];
static struct idem_guard *guard;

/* Transfers, which follow from the seed. */

struct transfer {
    long id;
    int from, to, amount;
    bool turned;  /* the receiver's account is written first, so that transfers deadlock */
    bool by_hand; /* idem_tx_once() and a COMMIT of the test's own; otherwise idem_tx_call() */
};

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static struct transfer transfer_of(long id) {
    uint64_t x = mix(seed ^ mix((uint64_t)id));
    struct transfer t = {.id = id,
                         .from = (int)(x % ACCOUNTS),
                         .to = (int)(x / 100 % (ACCOUNTS - 1)),
                         .amount = 1 + (int)(x / 10000 % 100),
                         .turned = x >> 62 & 1,
                         .by_hand = x >> 63};

    t.to += t.to >= t.from;
    return t;
}

static void receipt(const struct transfer *t, char text[TEXT_MAX]) {
    snprintf(text, TEXT_MAX, "%ld: %d from %d to %d", t->id, t->amount, t->from, t->to);
}

/* The work of one transfer. */

static int add(struct idem_sql conn, int account, int amount, struct idem_error *err) {
    char sql[100];

    snprintf(sql, sizeof(sql), "UPDATE account SET balance = balance + (%d) WHERE id = %d", amount,
             account);
    return db_try(conn, sql, err);
}

static int apply(struct idem_sql conn, const struct transfer *t, struct idem_error *err) {
    char sql[100];
    int rc = t->turned ? add(conn, t->to, t->amount, err) : add(conn, t->from, -t->amount, err);

    if (rc == 0)
        rc = t->turned ? add(conn, t->from, -t->amount, err) : add(conn, t->to, t->amount, err);
    snprintf(sql, sizeof(sql), "INSERT INTO moved VALUES (%ld, %d, %d, %d)", t->id, t->from, t->to,
             t->amount);
    return rc != 0 ? rc : db_try(conn, sql, err);
}

static int apply_in(struct idem_tx *tx, void *data) {
    const struct transfer *t = data;
    struct idem_error err;
    char text[TEXT_MAX];
    int rc = apply(idem_tx_conn(tx), t, &err);

    receipt(t, text);
    if (idem_tx_attempt(tx) > 1)
        atomic_fetch_add(&board->again, 1);
    return rc != 0 ? rc : idem_tx_keep(tx, 200, text, strlen(text));
}

/* The same without idem_tx_call(). A COMMIT that fails may have happened. */
static int by_hand(struct idem_sql conn, const struct transfer *t, const struct idem_args *args,
                   struct idem_tx_answer *ret, struct idem_error *err) {
    const struct idem_dialect *dialect = idem_dialect_find(conn.kind);
    char text[TEXT_MAX];
    int rc = dialect->begin(conn, 0, err);

    receipt(t, text);
    if (rc == 0)
        rc = idem_tx_once(conn, guard, args, ret, err);
    if (rc == 0 && ret->verdict == IDEM_TX_FIRST) {
        rc = apply(conn, t, err);
        if (rc == 0)
            rc = idem_tx_result(conn, guard, args, 200, text, strlen(text), err);
        if (rc == 0 && db_try(conn, "COMMIT", err) != 0)
            return IDEM_E_UNKNOWN;
    }
    if (rc != 0 || ret->verdict != IDEM_TX_FIRST)
        db_rollback(conn);
    return rc;
}

/* Every caller gets the first result, whichever worker was first. */
static void answer_judge(const struct transfer *t, struct idem_tx_answer *answer) {
    char want[TEXT_MAX], got[TEXT_MAX];

    receipt(t, want);
    if (answer->verdict == IDEM_TX_FIRST) {
        atomic_fetch_add(&board->firsts, 1);
    } else {
        CHECK(answer->verdict == IDEM_TX_DUPLICATE || answer->verdict == IDEM_TX_HAPPENED);
        CHECK_INT(answer->status, 200);
        snprintf(got, sizeof(got), "%.*s", (int)answer->result_len, (const char *)answer->result);
        CHECK_STR(got, want);
    }
    atomic_fetch_add(&board->duplicates, answer->verdict == IDEM_TX_DUPLICATE);
    atomic_fetch_add(&board->happened, answer->verdict == IDEM_TX_HAPPENED);
    idem_tx_answer_release(answer);
}

/* Workers. */

struct worker {
    struct slot *slot;
    struct idem_sql conn;
    bool open;
};

static void leave(struct worker *w) {
    atomic_store(&w->slot->session, 0);
    if (w->open)
        idem_sql_close(w->conn);
    w->open = false;
}

/* Makes a connection, if the server is up. */
static bool reach(struct worker *w, struct idem_error *err) {
    if (w->open)
        return true;
    w->open = idem_sql_open(url, &w->conn, err) == 0;
    if (!w->open)
        return false;
    if (db_kind == IDEM_SQL_SQLITE)
        db_do(w->conn, "PRAGMA synchronous = OFF");
    else
        atomic_store(&w->slot->session, db_session(w->conn));
    return true;
}

static uint64_t draw(struct worker *w) {
    return mix(seed ^ mix((uint64_t)(w->slot - board->slots + 1) << 40 |
                          atomic_fetch_add(&w->slot->turn, 1)));
}

/* Makes one attempt. Returns 0 with a result, or the code of the failure. */
static int transfer_try(struct worker *w, struct transfer *t, struct idem_error *err) {
    static const struct idem_tx_options options = {.backoff_min_ms = 1, .backoff_max_ms = 20};
    struct idem_tx_answer answer = {0};
    struct idem_args args;
    char key[32];
    int rc;

    snprintf(key, sizeof(key), "%ld", t->id);
    args = db_key(key);
    rc = t->by_hand ? by_hand(w->conn, t, &args, &answer, err)
                    : idem_tx_call(w->conn, guard, &args, &options, apply_in, t, &answer, err);
    if (rc == IDEM_E_UNKNOWN) {
        atomic_fetch_add(&board->unknown, 1);
        leave(w);
        rc = reach(w, err) ? idem_tx_outcome(w->conn, guard, &args, 120000, &answer, err)
                           : IDEM_E_REFUSED;
        if (rc == 0 && answer.verdict == IDEM_TX_NEVER)
            return IDEM_E_RETRY_TX;
    }
    if (rc == 0)
        answer_judge(t, &answer);
    return rc;
}

/* The codes that a kill may cause. Any other is a fault. */
static bool may_be(int rc) {
    return rc == IDEM_E_REFUSED || rc == IDEM_E_UNKNOWN || rc == IDEM_E_RETRY_TX ||
           rc == IDEM_E_TX_LOST;
}

static void transfer_do(struct worker *w, long id) {
    struct transfer t = transfer_of(id);
    struct idem_error err = {0};
    int rc = IDEM_E_REFUSED;

    for (int i = 0; i < TRIES && may_be(rc); i++) {
        if (reach(w, &err))
            rc = transfer_try(w, &t, &err);
        /* After most failures a new connection is right; but a transaction that conflicted with
         * another left its connection sound. */
        if (rc != 0 && rc != IDEM_E_RETRY_TX && rc != IDEM_E_TX_LOST)
            leave(w);
        if (rc != 0 && !w->open)
            usleep(20000); /* sleep: the server may be on its way up; TRIES is the limit */
    }
    if (rc != 0)
        fprintf(stderr, "# transfer %ld: %s\n", id, err.text);
    CHECK_INT(rc, 0);
}

/* Returns a transfer that another worker has at this moment, or that was done, or will be. */
static long somebody_elses(struct worker *w) {
    uint64_t x = draw(w);
    long id = atomic_load(&board->slots[x % WORKERS].id) - 1;

    return id >= 0 && x >> 63 ? id : (long)(x / WORKERS % (uint64_t)transfers);
}

static void work(struct slot *slot) {
    struct worker w = {.slot = slot};
    struct idem_error err;

    for (;;) {
        /* The worker's predecessor may have been killed during a transfer. */
        long id = atomic_load(&slot->id) - 1;

        if (id < 0)
            id = atomic_fetch_add(&board->next, 1);
        if (id >= transfers)
            break;
        atomic_store(&slot->id, id + 1);
        /* The last transfers wait until every kind of kill has happened, with a session to end. */
        while (id >= transfers / 10 * 9 && !atomic_load(&board->troubled)) {
            (void)reach(&w, &err);
            wait_step();
        }
        transfer_do(&w, id);
        atomic_store(&slot->id, 0);
        if (draw(&w) % 2 == 0)
            transfer_do(&w, somebody_elses(&w));
    }
    leave(&w);
}

static pid_t worker_start(int i) {
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        work(&board->slots[i]);
    _exit(0);
}

/* The kills. */

struct trouble {
    pid_t pids[WORKERS]; /* 0: the worker is done */
    int left;
    int clients, sessions, servers; /* numbers of kills */
    struct idem_sql conn;
    bool open;
    uint64_t turn;
    long seen; /* how many transfers were done at the last kill */
};

/* A killed worker has a successor, which continues with its transfer. */
static void workers_look(struct trouble *t) {
    int status;
    pid_t pid;

    while (t->left > 0 && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < WORKERS; i++) {
            if (t->pids[i] != pid)
                continue;
            CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
            t->pids[i] = WIFSIGNALED(status) ? worker_start(i) : 0;
            t->left -= t->pids[i] == 0;
        }
    }
}

static void session_end(struct trouble *t, long session) {
    struct idem_error err;

    if (!t->open)
        t->open = idem_sql_open(url, &t->conn, &err) == 0;
    if (!t->open || session == 0)
        return;
    t->sessions +=
        db_session_end(t->conn, session, &err) == 0; /* the session may have ended already */
}

static void server_bounce(struct trouble *t) {
    if (t->open)
        idem_sql_close(t->conn);
    t->open = false;
    db_server_kill();
    db_server_restart();
    t->servers++;
}

static long done(void) {
    return board->firsts + board->duplicates + board->happened;
}

static void trouble_make(struct trouble *t, int servers) {
    uint64_t x = mix(seed + ++t->turn);
    int who = (int)(x % WORKERS);

    if (t->servers < servers &&
        atomic_load(&board->next) > transfers / (servers + 1) * (t->servers + 1))
        server_bounce(t);
    else if (db_kind == IDEM_SQL_SQLITE || x >> 63)
        t->clients += t->pids[who] != 0 && kill(t->pids[who], SIGKILL) == 0;
    else
        session_end(t, atomic_load(&board->slots[who].session));
    usleep(1000 * (2 + (useconds_t)(x >> 32) % 20)); /* sleep: any moment will do */
    /* On a slow machine, the kills must not outnumber the work. */
    for (int i = 0; i < 50 && done() - t->seen < WORKERS; i++)
        wait_step();
    t->seen = done();
}

/* The final check. */

static void tables_make(struct idem_sql conn) {
    db_do(conn, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)");
    /* Only the guard prevents a transfer from being written twice. */
    db_do(conn,
          "CREATE TABLE moved (id INTEGER, sender INTEGER, receiver INTEGER, amount INTEGER)");
    for (int i = 0; i < ACCOUNTS; i++)
        db_dof(conn, "INSERT INTO account VALUES (%d, %d)", i, OPENING);
}

static void reckon(struct idem_sql conn) {
    static long balances[ACCOUNTS];

    for (long id = 0; id < transfers; id++) {
        struct transfer t = transfer_of(id);

        balances[t.from] -= t.amount;
        balances[t.to] += t.amount;
    }
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM moved"), transfers);
    CHECK_INT(db_ask(conn, "SELECT count(DISTINCT id) FROM moved"), transfers);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), transfers);
    CHECK_INT(db_ask(conn, "SELECT sum(balance) FROM account"), (long)ACCOUNTS * OPENING);
    for (int i = 0; i < ACCOUNTS; i++) {
        CHECK_INT(db_askf(conn, "SELECT balance FROM account WHERE id = %d", i),
                  OPENING + balances[i]);
        CHECK_INT(db_askf(conn,
                          "SELECT sum(CASE WHEN receiver = %d THEN amount ELSE -amount END) FROM "
                          "moved WHERE sender = %d OR receiver = %d",
                          i, i, i),
                  balances[i]);
    }
}

static void board_print(const struct trouble *t) {
    printf(
        "# %ld transfers: %ld first, %ld duplicates; COMMIT not answered %ld times, of which %ld "
        "had happened; %ld begun anew\n"
        "# killed: %d clients, %d sessions, %d times the server\n",
        transfers, board->firsts, board->duplicates, board->unknown, board->happened, board->again,
        t->clients, t->sessions, t->servers);
}

static void begin(bool whole) {
    const char *said = getenv("IDEM_SEED");

    seed = said != NULL ? strtoull(said, NULL, 0) : (uint64_t)time(NULL);
    printf("# IDEM_SEED=%" PRIu64 " replays this\n", seed);
    transfers = whole ? 20000 : 2000;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    guard = db_guard("transfer:");
    db_start();
    db_url(url, sizeof(url));
}

TEST_IN(transfers_under_kills_happen_exactly_once, 1500) {
    bool whole = getenv("IDEM_LONG") != NULL;
    struct trouble trouble = {.left = WORKERS};
    int servers;
    struct idem_sql conn;

    begin(whole);
    servers = db_kind == IDEM_SQL_SQLITE ? 0 : whole ? 6 : 2;
    conn = db_open(NULL);
    tables_make(conn);
    db_close(conn);
    for (int i = 0; i < WORKERS; i++)
        trouble.pids[i] = worker_start(i);
    while (trouble.left > 0) {
        trouble_make(&trouble, servers);
        workers_look(&trouble);
        if (trouble.servers == servers && trouble.clients > 0 &&
            (servers == 0 || trouble.sessions > 0))
            atomic_store(&board->troubled, true);
    }
    board_print(&trouble);
    CHECK(board->troubled);
    CHECK(board->duplicates > transfers / 10);
    conn = db_open(NULL);
    reckon(conn);
    db_close(conn);
    if (trouble.open)
        idem_sql_close(trouble.conn);
    idem_guard_free(guard);
    db_stop();
}

TEST_MAIN
