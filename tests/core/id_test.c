/*
 * Identifiers: their form, their order, and that none is issued twice: not to
 * threads, forks, machines whose clocks differ, or processes that were killed.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "calls.h"
#include "core/id.h"
#include "test.h"

#define THREADS 8
#define EACH 4000

static int text_cmp(const void *a, const void *b) {
    return strcmp(a, b);
}

static void check_form(const char *text, char version) {
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

    CHECK_INT(strlen(text), IDEM_UUID_LEN);
    for (size_t i = 0; i < IDEM_UUID_LEN; i++)
        CHECK(form[i] == '-' ? text[i] == '-' : strchr("0123456789abcdef", text[i]) != NULL);
    CHECK_INT(text[14], version);
    CHECK(strchr("89ab", text[19]) != NULL);
}

static int64_t uuid_ms(const char *text) {
    char hex[13];

    memcpy(hex, text, 8);
    memcpy(hex + 8, text + 9, 4);
    hex[12] = '\0';
    return (int64_t)strtoull(hex, NULL, 16);
}

TEST(a_uuid_of_version_7_has_its_form_and_the_time) {
    char text[IDEM_UUID_LEN + 1];
    int64_t before = (int64_t)time(NULL) * 1000;

    CHECK_INT(idem_uuid7(text, NULL), 0);
    check_form(text, '7');
    CHECK(uuid_ms(text) >= before - 1000 && uuid_ms(text) <= (int64_t)time(NULL) * 1000 + 2000);
}

TEST(uuids_of_version_7_are_in_order_within_a_process) {
    char last[IDEM_UUID_LEN + 1] = "", next[IDEM_UUID_LEN + 1];

    for (unsigned i = 0; i < 100000; i++) {
        CHECK_INT(idem_uuid7(next, NULL), 0);
        CHECK(strcmp(last, next) < 0);
        memcpy(last, next, sizeof(last));
    }
}

TEST(uuids_of_version_7_are_in_order_although_the_clock_goes_back) {
    char last[IDEM_UUID_LEN + 1] = "", text[IDEM_UUID_LEN + 1];
    static const int64_t times[] = {2000000000000, 2000000000001, 1900000000000, 1,
                                    2000000000001, 2000000000002};

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        for (unsigned k = 0; k < 3; k++) {
            CHECK_INT(idem_uuid7_at(times[i], text, NULL), 0);
            check_form(text, '7');
            CHECK(strcmp(last, text) < 0);
            memcpy(last, text, sizeof(last));
        }
    }
    CHECK_INT(uuid_ms(last), 2000000000002);
}

TEST(uuids_of_version_4_are_random) {
    char(*texts)[IDEM_UUID_LEN + 1] = calloc(10000, sizeof(*texts));
    unsigned ones = 0;

    CHECK(texts != NULL);
    for (unsigned i = 0; i < 10000; i++) {
        CHECK_INT(idem_uuid4(texts[i], NULL), 0);
        check_form(texts[i], '4');
        ones += (unsigned)(strtoul(texts[i] + 35, NULL, 16) & 1);
    }
    CHECK(ones > 4500 && ones < 5500);
    qsort(texts, 10000, sizeof(*texts), text_cmp);
    for (unsigned i = 1; i < 10000; i++)
        CHECK(strcmp(texts[i - 1], texts[i]) != 0);
    free(texts);
}

/* The 128 bits of a UUID. */
struct bits {
    uint64_t high, low;
};

static struct bits bits_of(const char *text) {
    char hex[33];
    struct bits bits;
    size_t n = 0;

    for (const char *c = text; *c != '\0'; c++)
        if (*c != '-')
            hex[n++] = *c;
    CHECK_INT(n, 32);
    hex[n] = '\0';
    bits.low = strtoull(hex + 16, NULL, 16);
    hex[16] = '\0';
    bits.high = strtoull(hex, NULL, 16);
    return bits;
}

/* Of many: which bits were 1 in some and 0 in others. That one which is random stays the same in
   all 256 happens once in 2^255. */
#define MANY 256
static struct bits bits_that_vary(const struct bits *many) {
    struct bits ones = many[0], all = many[0];

    for (size_t i = 1; i < MANY; i++) {
        ones.high |= many[i].high;
        ones.low |= many[i].low;
        all.high &= many[i].high;
        all.low &= many[i].low;
    }
    return (struct bits){ones.high & ~all.high, ones.low & ~all.low};
}

TEST(a_uuid_of_version_4_has_122_random_bits) {
    struct bits many[MANY], vary;
    char text[IDEM_UUID_LEN + 1];

    for (size_t i = 0; i < MANY; i++) {
        CHECK_INT(idem_uuid4(text, NULL), 0);
        many[i] = bits_of(text);
    }
    vary = bits_that_vary(many);
    CHECK(vary.high == 0xffffffffffff0fff);
    CHECK(vary.low == 0x3fffffffffffffff);
}

/* 42 bits of counter lie around the variant's two, before 32 random ones. */
static uint64_t counter_of(struct bits bits) {
    return (bits.high & 0xfff) << 30 | (bits.low >> 32 & 0x3fffffff);
}

TEST(a_uuid_of_version_7_ends_in_32_random_bits) {
    struct bits many[MANY];
    char text[IDEM_UUID_LEN + 1];

    for (size_t i = 0; i < MANY; i++) {
        CHECK_INT(idem_uuid7_at(2000000000000, text, NULL), 0);
        many[i] = bits_of(text);
        CHECK_INT(uuid_ms(text), 2000000000000);
        CHECK_INT(counter_of(many[i]), counter_of(many[0]) + i);
    }
    CHECK((bits_that_vary(many).low & 0xffffffff) == 0xffffffff);
}

TEST(the_counter_of_version_7_begins_anywhere_in_its_lower_half_each_ms) {
    struct bits many[MANY], vary;
    char text[IDEM_UUID_LEN + 1];

    for (size_t i = 0; i < MANY; i++) {
        CHECK_INT(idem_uuid7_at(2000000000000 + (int64_t)i, text, NULL), 0);
        many[i] = bits_of(text);
    }
    vary = bits_that_vary(many);
    CHECK(counter_of(vary) == ((uint64_t)1 << 41) - 1);
    CHECK(counter_of(many[0]) < (uint64_t)1 << 41);
}

static char (*shared_texts(size_t n))[IDEM_UUID_LEN + 1] {
    void *at = mmap(NULL, n * (IDEM_UUID_LEN + 1), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

static void *make_uuids(void *data) {
    char(*at)[IDEM_UUID_LEN + 1] = data;

    for (unsigned i = 0; i < EACH; i++)
        CHECK_INT(idem_uuid7(at[i], NULL), 0);
    return NULL;
}

static void check_distinct(char (*texts)[IDEM_UUID_LEN + 1], size_t n) {
    qsort(texts, n, sizeof(*texts), text_cmp);
    for (size_t i = 1; i < n; i++)
        CHECK(strcmp(texts[i - 1], texts[i]) != 0);
}

TEST(threads_never_get_the_same_uuid) {
    char(*texts)[IDEM_UUID_LEN + 1] = shared_texts((size_t)THREADS * EACH);
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, make_uuids, texts + i * EACH) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    check_distinct(texts, (size_t)THREADS * EACH);
}

/* Forked while others ask, so that the lock may be held; the child goes on after its parent. */
TEST(forked_children_never_get_the_same_uuid_and_stay_in_order) {
    char(*texts)[IDEM_UUID_LEN + 1] = shared_texts((size_t)THREADS * EACH);
    char before[IDEM_UUID_LEN + 1];
    pthread_t busy;
    pid_t pids[THREADS - 1];

    CHECK_INT(idem_uuid7(before, NULL), 0);
    CHECK(pthread_create(&busy, NULL, make_uuids, texts) == 0);
    for (size_t i = 1; i < THREADS; i++) {
        pids[i - 1] = fork();
        CHECK(pids[i - 1] >= 0);
        if (pids[i - 1] == 0) {
            alarm(TEST_LIMIT_S); /* an orphan that waits for ever would keep the output open */
            make_uuids(texts + i * EACH);
            _exit(strcmp(before, texts[i * EACH]) < 0 ? 0 : 1);
        }
    }
    CHECK(pthread_join(busy, NULL) == 0);
    for (size_t i = 1; i < THREADS; i++) {
        int status;

        CHECK(waitpid(pids[i - 1], &status, 0) == pids[i - 1]);
        CHECK_INT(status, 0);
    }
    check_distinct(texts, (size_t)THREADS * EACH);
}

/* All of it but the random end. */
#define PLACE_LEN (IDEM_UUID_LEN - 8)

static void uuid_at_fork(char (*texts)[IDEM_UUID_LEN + 1], unsigned depth) {
    pid_t pid = fork();
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(TEST_LIMIT_S);
        CHECK_INT(idem_uuid7_at(2000000000000, texts[0], NULL), 0);
        CHECK_INT(idem_uuid7_at(2000000000000, texts[1], NULL), 0);
        if (depth > 0)
            uuid_at_fork(texts + 2, depth - 1);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

/* While the clock stands: two children and a grandchild of each begin where their parent was. No
   two may have the same time and counter, however they end. */
TEST(forked_children_go_on_after_their_parent_and_never_at_its_place) {
    char(*texts)[IDEM_UUID_LEN + 1] = shared_texts(10), before[IDEM_UUID_LEN + 1];

    for (unsigned i = 0; i < 3; i++)
        CHECK_INT(idem_uuid7_at(2000000000000, before, NULL), 0);
    uuid_at_fork(texts, 1);
    uuid_at_fork(texts + 4, 1);
    CHECK_INT(idem_uuid7_at(2000000000000, texts[8], NULL), 0);
    CHECK_INT(idem_uuid7_at(2000000000000, texts[9], NULL), 0);
    for (size_t i = 0; i < 10; i++)
        CHECK(strncmp(before, texts[i], PLACE_LEN) < 0);
    for (size_t i = 0; i < 8; i += 4)
        for (size_t k = 1; k < 4; k++)
            CHECK(strncmp(texts[i + k - 1], texts[i + k], PLACE_LEN) < 0);
    CHECK(strncmp(texts[8], texts[9], PLACE_LEN) < 0);
    for (size_t i = 0; i < 10; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(strncmp(texts[k], texts[i], PLACE_LEN) != 0);
}

static atomic_bool enough;

static void *ask_on(void *data) {
    char text[IDEM_UUID_LEN + 1];

    (void)data;
    while (!enough) {
        CHECK_INT(idem_uuid7_at(2000000000000, text, NULL), 0);
        wait_us(20); /* sleep: fork() takes the lock as well, and could wait for it for minutes */
    }
    return NULL;
}

/* So often that some of the forks come while another thread has the lock. */
TEST(a_child_that_is_forked_while_others_ask_can_ask_as_well) {
    char text[IDEM_UUID_LEN + 1];
    pthread_t busy[THREADS];
    int status;

    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&busy[i], NULL, ask_on, NULL) == 0);
    for (unsigned i = 0; i < 100; i++) {
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(TEST_LIMIT_S);
            _exit(idem_uuid7_at(2000000000000, text, NULL) == 0 ? 0 : 1);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK_INT(status, 0);
    }
    enough = true;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(busy[i], NULL) == 0);
}

/* Snowflakes. Tests that move the clock are in snowflake_test.c. */

#define WORKER(id) ((int)((id) >> 12 & 1023))
#define MS(id) ((id) >> 22)
#define EPOCH_MS 1577836800000

static struct idem_snowflake *snowflakes(struct idem *h) {
    struct idem_snowflake *s = NULL;
    struct idem_error err;

    if (idem_snowflake_new(h, NULL, &s, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return s;
}

static int64_t next(struct idem_snowflake *s) {
    struct idem_error err;
    int64_t id = 0;

    if (idem_snowflake_next(s, &id, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    CHECK(id > 0);
    return id;
}

TEST(snowflakes_grow_and_tell_the_time) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h);
    int64_t before = (int64_t)time(NULL) * 1000 - EPOCH_MS, last = next(s);

    CHECK(MS(last) >= before - 1000 && MS(last) <= (int64_t)time(NULL) * 1000 - EPOCH_MS + 2000);
    for (unsigned i = 0; i < 50000; i++) {
        int64_t id = next(s);

        CHECK(id > last);
        CHECK_INT(WORKER(id), WORKER(last));
        last = id;
    }
    idem_snowflake_free(s);
    idem_close(h);
}

TEST(two_who_are_open_have_two_workers) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *many[64];
    bool taken[1024] = {false};

    for (size_t i = 0; i < 64; i++) {
        many[i] = snowflakes(h);
        CHECK(!taken[WORKER(next(many[i]))]);
        taken[WORKER(next(many[i]))] = true;
    }
    for (size_t i = 0; i < 64; i++)
        idem_snowflake_free(many[i]);
    idem_close(h);
}

TEST(a_worker_id_is_free_again_when_it_was_given_back) {
    struct idem *h = open_store("sync=off");

    /* More than there are: each must have been given back. */
    for (unsigned i = 0; i < 1100; i++) {
        struct idem_snowflake *s = snowflakes(h);

        (void)next(s);
        idem_snowflake_free(s);
    }
    idem_close(h);
}

TEST(when_all_workers_are_taken_it_says_so) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *many[1024], *more = NULL;
    struct idem_error err;

    for (size_t i = 0; i < 1024; i++)
        many[i] = snowflakes(h);
    CHECK_INT(idem_snowflake_new(h, NULL, &more, &err), IDEM_E_REFUSED);
    CHECK_HAS(err.text, "1024 worker ids");
    /* Another name has its own. */
    CHECK_INT(idem_snowflake_new(h, "other:", &more, &err), 0);
    idem_snowflake_free(more);
    idem_snowflake_free(many[77]);
    WAIT_UNTIL(idem_snowflake_new(h, NULL, &many[77], &err) == 0); /* it lives for a ms more */
    for (size_t i = 0; i < 1024; i++)
        idem_snowflake_free(many[i]);
    idem_close(h);
}

/* The clock goes back while no process uses the worker: the store remembers the identifiers that
   were issued. */
static int64_t wall_offset;

TEST(what_is_given_out_after_the_clock_went_back_was_not_given_out_before) {
    struct idem *h = open_store("sync=off");
    int64_t highest[1024] = {0};

    for (unsigned i = 0; i < 1500; i++) {
        struct idem_snowflake *s = snowflakes(h);
        int64_t id;

        idem_snowflake_shift(s, wall_offset);
        id = next(s);
        CHECK(id > highest[WORKER(id)]);
        for (unsigned k = 0; k < 20; k++)
            id = next(s);
        highest[WORKER(id)] = id;
        idem_snowflake_free(s);
        wall_offset = i % 2 ? -3600000 - (int64_t)i : 0;
    }
    idem_close(h);
}

TEST(a_snowflake_that_was_inherited_over_a_fork_is_refused) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h);
    pid_t pid;
    int status;

    (void)next(s);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct idem_error err;
        int64_t id;

        CHECK_INT(idem_snowflake_next(s, &id, &err), IDEM_E_FORK);
        idem_snowflake_free(s);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    (void)next(s);
    idem_snowflake_free(s);
    idem_close(h);
}

TEST_MAIN
