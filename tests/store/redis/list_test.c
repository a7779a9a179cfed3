/*
 * Lists and counts when servers return values that are not records, change
 * meanwhile, or are slow: with fake servers, each of which has names of its own
 * on two pages.
 */
#include "fake_server.h"
#include "loop_clock.h"
#include "protocol/record_key.h"
#include "store/driver_call.h"
#include "store/redis/redis_store.h"
#include "wait.h"

#define PER_PAGE 12
#define PER_FAKE (2 * PER_PAGE)
#define NAMES (FAKES_MAX * PER_FAKE)

/* Name number i belongs to server i / PER_FAKE. */
static char names[NAMES][100], hashes[NAMES][IDEM_HEX_LEN + 1];
static unsigned told[NAMES];
static _Atomic unsigned seen[NAMES]; /* how often each name was looked up */
static _Atomic unsigned scripts, scans, events_asked;
static _Atomic unsigned map_kind, maps;

static void names_make(void) {
    for (size_t i = 0; i < NAMES; i++) {
        char key[32];
        struct idem_record_key at;

        snprintf(key, sizeof(key), "n%zu", i);
        at = key_in("t:", key);
        idem_record_key_hex(&at, hashes[i]);
        name_of(key, names[i], sizeof(names[i]));
        told[i] = 0;
        seen[i] = 0;
    }
    scripts = 0;
    scans = 0;
    events_asked = 0;
    map_kind = 0;
}

static size_t number_of(const char *name) {
    size_t i = 0;

    while (i < NAMES && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static unsigned slot_of(size_t i) {
    return redis_cluster_slot(names[i], strlen(names[i]));
}

/* The fakes' replies. */

static void page_say(size_t fake, unsigned page, unsigned pages, char *out, size_t size) {
    size_t n = (size_t)snprintf(out, size, "*2\r\n$1\r\n%u\r\n*%d\r\n",
                                page + 1 < pages ? page + 1 : 0, page < pages ? PER_PAGE : 0);

    for (size_t i = 0; page < pages && i < PER_PAGE; i++) {
        const char *name = names[fake * PER_FAKE + (page % 2) * PER_PAGE + i];

        n += (size_t)snprintf(out + n, size - n, "$%zu\r\n%s\r\n", strlen(name), name);
    }
}

/* A record that cannot be read; without NULs, for snprintf(). */
static void record_say(char *out, size_t size) {
    snprintf(out, size, "*4\r\n$1\r\n\xe1\r\n:1000\r\n:1700000000000\r\n:1\r\n");
}

static void range_say(char *out, size_t size, unsigned first, unsigned last, size_t fake) {
    size_t n = strlen(out);

    snprintf(out + n, size - n, "*3\r\n:%u\r\n:%u\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", first, last,
             fakes.port[fake]);
}

static void scan_say(const struct fake_command *command, char *out, size_t size) {
    scans++;
    page_say(command->fake, (unsigned)strtoul(command->word[1], NULL, 10), 2, out, size);
}

/* Listing. */

static void url_open(struct conn *c, const char *scheme, const char *options) {
    char url[300];

    snprintf(url, sizeof(url), "%s://127.0.0.1:%d?%s", scheme, fakes.port[0], options);
    conn_open(c, url, HOST_POLL, NULL);
}

static void entries_note(const struct idem_entry *entries, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < NAMES; k++)
            told[k] += strcmp(hashes[k], entries[i].hash) == 0;
}

/* Lists one page; returns the number of its entries. */
static size_t page_list(struct conn *c, struct idem_cursor *cursor, size_t max, bool note) {
    struct call call;

    kind_fill(&call, c, IDEM_OP_LIST, "");
    call.op.in.list.prefix = bytes_of("t:");
    call.op.in.list.cursor = *cursor;
    call.op.in.list.max = max;
    (void)call_run(&call);
    if (call.rc != 0)
        fprintf(stderr, "# %s\n", call.op.error.text);
    CHECK_INT(call.rc, 0);
    if (note)
        entries_note(call.entries, call.op.out.list.n);
    *cursor = call.op.out.list.cursor;
    return call.op.out.list.n;
}

static void list_rest(struct conn *c, struct idem_cursor *cursor, size_t max) {
    for (unsigned pages = 0; !cursor->end; pages++) {
        CHECK(pages < 200);
        (void)page_list(c, cursor, max, true);
    }
}

/* The list had each of the server's names between `least` and `most` times. */
static void told_check(size_t fake, unsigned least, unsigned most) {
    for (size_t i = fake * PER_FAKE; i < (fake + 1) * PER_FAKE; i++) {
        if (told[i] < least || told[i] > most)
            fprintf(stderr, "# name %zu of server %zu: %u times\n", i % PER_FAKE, fake, told[i]);
        CHECK(told[i] >= least && told[i] <= most);
    }
}

/* A third of the first server's names is moving: it replies ASK, and the other server MOVED if
 * the command comes without ASKING. The rest fail at first for other reasons. */
static bool trouble_say(const struct fake_command *command, size_t i, char *out, size_t size) {
    static const char *const first[] = {
        "-TRYAGAIN Multiple keys\r\n",      "-LOADING Redis is loading\r\n",
        "-BUSY Redis is busy\r\n",          "-CLUSTERDOWN The cluster is down\r\n",
        "-NOSCRIPT No matching script\r\n",
    };

    if (i % 3 == 0) {
        if (command->fake == 1 && command->asking)
            return false;
        snprintf(out, size, "-%s %u 127.0.0.1:%d\r\n", command->fake == 0 ? "ASK" : "MOVED",
                 slot_of(i), fakes.port[1 - command->fake]);
        return true;
    }
    if (i % 3 == 1 && command->fake == 0) {
        snprintf(out, size, "-MOVED %u 127.0.0.1:%d\r\n", slot_of(i), fakes.port[1]);
        return true;
    }
    if (seen[i]++ > 0)
        return false;
    snprintf(out, size, "%s", first[i % 5]);
    return true;
}

static bool say_trouble(const struct fake_command *command, char *out, size_t size) {
    bool look = fake_is(command, "EVALSHA", NULL);
    const char *name = command->word[look ? 3 : 1];
    size_t i;

    if (fake_is(command, "CLUSTER", "SLOTS")) {
        snprintf(out, size, "*2\r\n");
        range_say(out, size, 0, REDIS_SLOTS - 2, 0);
        range_say(out, size, REDIS_SLOTS - 1, REDIS_SLOTS - 1, 1);
    } else if (fake_is(command, "SCAN", NULL)) {
        scan_say(command, out, size);
    } else if (fake_is(command, "HGETALL", NULL)) {
        if (events_asked++ == 0)
            snprintf(out, size, "-TRYAGAIN Multiple keys\r\n");
        else if (command->fake == 0)
            snprintf(out, size, "-ASK %u 127.0.0.1:%d\r\n",
                     redis_cluster_slot(REDIS_EVENTS_NAME, strlen(REDIS_EVENTS_NAME)),
                     fakes.port[1]);
        else if (command->asking)
            snprintf(out, size, "*2\r\n$%zu\r\n%s\r\n$1\r\n5\r\n",
                     strlen(idem_event_name((enum idem_event)0)),
                     idem_event_name((enum idem_event)0));
        else
            snprintf(out, size, "-ERR not here\r\n");
    } else {
        i = number_of(name);
        if (i == NAMES)
            snprintf(out, size, "-ERR what\r\n");
        else if (!trouble_say(command, i, out, size) && look)
            record_say(out, size);
        else if (out[0] == '\0')
            snprintf(out, size, "%s", fake_is(command, "PTTL", NULL) ? ":1000\r\n" : "$0\r\n\r\n");
    }
    return true;
}

TEST(a_list_follows_what_a_moving_slot_or_a_busy_server_answers) {
    struct idem_cursor cursor = {0};
    struct conn c;

    names_make();
    fakes_start(2, say_trouble);
    url_open(&c, "redis+cluster", "timeout=100s");
    list_rest(&c, &cursor, 100);
    told_check(0, 1, 1);
    told_check(1, 1, 1);
    conn_close(&c);
    fakes_stop();
}

TEST(stats_follows_what_the_slot_of_the_counts_answers) {
    struct call call;
    struct conn c;

    names_make();
    fakes_start(2, say_trouble);
    url_open(&c, "redis+cluster", "timeout=100s");
    kind_fill(&call, &c, IDEM_OP_STATS, "");
    (void)call_run(&call);
    CHECK_INT(call.rc, 0);
    CHECK_INT(call.op.out.stats.events[0], 5);
    conn_close(&c);
    fakes_stop();
}

/* One key has another type, another may not be read. */
static _Atomic bool broken;

static bool say_foreign(const struct fake_command *command, char *out, size_t size) {
    size_t i;

    if (fake_is(command, "SCAN", NULL)) {
        scan_say(command, out, size);
        return true;
    }
    i = number_of(command->word[3]);
    if (i == 3)
        snprintf(out, size, "-WRONGTYPE Operation against a key holding the wrong kind\r\n");
    else if (i == 4)
        snprintf(out, size, "-NOPERM this user has no permissions to access one of the keys\r\n");
    else if (i == 5 && broken)
        snprintf(out, size,
                 "-NOPERM this user has no permissions to run the 'evalsha' command\r\n");
    else
        record_say(out, size);
    return true;
}

TEST(a_key_that_is_none_of_ours_is_passed_over_and_any_other_error_is_told) {
    struct idem_cursor cursor = {0};
    struct call call;
    struct conn c;

    names_make();
    fakes_start(1, say_foreign);
    url_open(&c, "redis", "");
    list_rest(&c, &cursor, 100);
    CHECK_INT(told[3] + told[4], 0);
    CHECK_INT(told[5], 1);
    broken = true;
    kind_fill(&call, &c, IDEM_OP_LIST, "");
    (void)call_run(&call);
    CHECK_INT(call.rc, IDEM_E_REFUSED);
    CHECK_HAS(call.op.error.text, "NOPERM");
    conn_close(&c);
    fakes_stop();
}

/* Three servers. Then the server that is fully listed disappears, and the one that is half
 * listed gets its slots; or a fourth server takes the latter's place; or the fourth joins. */
enum { MAP_THREE, MAP_GONE, MAP_TAKEN, MAP_JOINED };
static _Atomic size_t first, second;

static size_t owner_of(size_t range) {
    if (map_kind == MAP_GONE && range == first)
        return second;
    return map_kind == MAP_TAKEN && range == second ? 3 : range;
}

static bool say_three(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "CLUSTER", "SLOTS")) {
        maps++;
        snprintf(out, size, "*%d\r\n", map_kind == MAP_JOINED ? 4 : 3);
        range_say(out, size, 0, 4999, owner_of(0));
        range_say(out, size, 5000, 9999, owner_of(1));
        range_say(out, size, 10000, 15999, owner_of(2));
        if (map_kind == MAP_JOINED)
            range_say(out, size, 16000, REDIS_SLOTS - 1, 3);
    } else if (fake_is(command, "SCAN", NULL)) {
        scan_say(command, out, size);
    } else if (fake_is(command, "EVALSHA", NULL) && number_of(command->word[3]) == NAMES) {
        snprintf(out, size, "-MOVED 0 127.0.0.1:%d\r\n", fakes.port[owner_of(0)]);
    } else {
        record_say(out, size);
    }
    return true;
}

static unsigned told_of(size_t fake) {
    unsigned n = 0;

    for (size_t i = fake * PER_FAKE; i < (fake + 1) * PER_FAKE; i++)
        n += told[i];
    return n;
}

/* Lists one server fully and another half, and then changes the map. */
static void three_open(struct conn *c, struct idem_cursor *cursor, unsigned kind) {
    struct call call;

    names_make();
    fakes_start(4, say_three);
    url_open(c, "redis+cluster", "timeout=100s");
    for (size_t n = 0; n < PER_FAKE + PER_PAGE;)
        n += page_list(c, cursor, PER_PAGE, true);
    for (size_t i = 0; i < 3; i++) {
        if (told_of(i) == PER_FAKE)
            first = i;
        if (told_of(i) == PER_PAGE)
            second = i;
    }
    CHECK(told_of(first) == PER_FAKE && told_of(second) == PER_PAGE);
    map_kind = kind;
    maps = 0;
    kind_fill(&call, c, IDEM_OP_LOOKUP, "nobody's"); /* MOVED, so that the store asks for the map */
    CHECK_INT(call_submit(&call), 0);
    TURN_UNTIL(c, maps >= 2); /* the store has read the first map */
    c->store->driver->cancel(c->store, &call.op);
    list_rest(c, cursor, PER_PAGE);
}

TEST(a_list_leaves_nothing_out_when_a_server_that_was_gone_through_goes) {
    struct idem_cursor cursor = {0};
    struct conn c;

    three_open(&c, &cursor, MAP_GONE);
    for (size_t i = 0; i < 3; i++)
        told_check(i, 1, 2);
    conn_close(&c);
    fakes_stop();
}

TEST(a_list_begins_anew_with_a_server_that_has_taken_anothers_place) {
    struct idem_cursor cursor = {0};
    struct conn c;

    three_open(&c, &cursor, MAP_TAKEN);
    told_check(first, 1, 2);
    told_check(3 - first - second, 1, 2);
    told_check(3, 1, 2);
    conn_close(&c);
    fakes_stop();
}

TEST(a_list_goes_through_a_server_that_has_joined) {
    struct idem_cursor cursor = {0};
    struct conn c;

    three_open(&c, &cursor, MAP_JOINED);
    for (size_t i = 0; i < 4; i++)
        told_check(i, 1, 2);
    conn_close(&c);
    fakes_stop();
}

static bool say_alone(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "SCAN", NULL))
        scan_say(command, out, size);
    else
        record_say(out, size);
    return true;
}

TEST(a_cursor_may_be_asked_for_twice) {
    struct idem_cursor cursors[PER_FAKE + 2] = {0}, other;
    size_t order[PER_FAKE], n = 0; /* order: the call that listed it */
    unsigned before[NAMES];
    struct conn c;

    names_make();
    fakes_start(1, say_alone);
    url_open(&c, "redis", "");
    for (; !cursors[n].end; n++) {
        CHECK(n < PER_FAKE + 1);
        cursors[n + 1] = other = cursors[n];
        memcpy(before, told, sizeof(told));
        (void)page_list(&c, &cursors[n + 1], 1, true);
        for (size_t i = 0; i < PER_FAKE; i++)
            if (told[i] != before[i])
                order[i] = n;
        memcpy(before, told, sizeof(told));
        (void)page_list(&c, &other, 1, true);
        for (size_t i = 0; i < PER_FAKE; i++)
            if (told[i] != before[i])
                CHECK_INT(order[i], n); /* the same entry */
        CHECK_INT(other.end, cursors[n + 1].end);
    }
    told_check(0, 2, 2);
    /* From each cursor on, and in any order, the list continues with the same entries. The page
     * kept for a cursor may be gone by now, and then it is read again. */
    for (size_t k = 0; k < n; k++) {
        memset(told, 0, sizeof(told));
        other = cursors[k];
        list_rest(&c, &other, 5);
        for (size_t i = 0; i < PER_FAKE; i++)
            CHECK(told[i] >= (order[i] >= k));
    }
    conn_close(&c);
    fakes_stop();
}

/* Ten pages, and each takes a fifth of the deadline. No other time passes. */
#define SLOW_MS 60

static bool say_slow(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "SCAN", NULL)) {
        loop_clock_forward(SLOW_MS);
        page_say(0, (unsigned)strtoul(command->word[1], NULL, 10), 10, out, size);
        scans++;
    } else if (fake_is(command, "GETRANGE", NULL)) {
        snprintf(out, size, "$0\r\n\r\n");
    } else if (fake_is(command, "HGETALL", NULL)) {
        snprintf(out, size, "*0\r\n");
    } else {
        scripts++;
        snprintf(out, size, "-ERR what\r\n");
    }
    return true;
}

TEST(stats_that_gets_on_may_take_longer_than_an_operation) {
    struct call call;
    struct conn c;

    names_make();
    fakes_start(1, say_slow);
    loop_clock_stop();
    url_open(&c, "redis", "timeout=300ms");
    kind_fill(&call, &c, IDEM_OP_STATS, "");
    (void)call_run(&call);
    if (call.rc != 0)
        fprintf(stderr, "# %s\n", call.op.error.text);
    CHECK_INT(call.rc, 0);
    CHECK_INT(scans, 10);
    CHECK_INT(scripts, 0); /* nor another command for each record */
    conn_close(&c);
    fakes_stop();
}

/* The deadlines of other operations do not suffer from it. */
static bool say_silence(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "EVALSHA", NULL))
        return true;
    return say_slow(command, out, size);
}

TEST(an_operation_beside_a_long_stats_is_given_up_in_its_time) {
    struct call call, beside;
    struct conn c;
    int64_t begun;

    names_make();
    fakes_start(1, say_slow);
    loop_clock_stop();
    url_open(&c, "redis", "timeout=300ms");
    kind_fill(&call, &c, IDEM_OP_STATS, "");
    CHECK_INT(call_submit(&call), 0);
    TURN_UNTIL(&c, scans >= 2);
    fakes.say = say_silence;
    begun = idem_loop_now();
    kind_fill(&beside, &c, IDEM_OP_LOOKUP, "k");
    CHECK_INT(call_submit(&beside), 0);
    while (beside.completed == 0) {
        conn_turn(&c, 1);
        loop_clock_forward(10);
    }
    CHECK(beside.rc != 0);
    CHECK(idem_loop_now() - begun < 1000);
    loop_clock_go_on();
    (void)call_wait(&call);
    conn_close(&c);
    fakes_stop();
}

TEST_MAIN
