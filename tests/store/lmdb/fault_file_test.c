/*
 * Damaged files: a clear error that names the file, the rest still readable,
 * and never a crash. Each case opens its file in a child of its own, so that a
 * SIGBUS or an abort is one failed case with a name.
 */
#include <sys/stat.h>

#include "raw.h"
#include "rig.h"
#include "test.h"

#define RECORDS 400
#define PAGE 4096

/* A store with something in it. */

/* Sizes from nothing to several pages, so that there are leaves, branches and overflow pages. */
static size_t result_make(unsigned i, unsigned char out[12000]) {
    size_t len = i % 10 == 0 ? 9000 + i : (size_t)i * 7 % 300;

    rig_bytes(i, out, len);
    return len;
}

static void name_make(unsigned i, char out[16]) {
    snprintf(out, 16, "k%u", i);
}

static void fill(void *url) {
    static unsigned char result[12000];
    struct rig rig;
    char name[16];

    rig_open(&rig, url, NULL);
    for (unsigned i = 0; i < RECORDS; i++) {
        name_make(i, name);
        rig_once(&rig, name, result, result_make(i, result));
    }
    rig_close(&rig);
}

/* A closed store of RECORDS records under the test's directory; returns its path. */
static const char *store_made(void) {
    static char path[512];

    snprintf(path, sizeof(path), "%s", rig_path(rig_folder(), "store"));
    rig_child_ok("filling", fill, (void *)rig_url("store", "sync=off"));
    return path;
}

static const char *data_of(const char *folder) {
    return rig_path(folder, "data.mdb");
}

/* Judging the remains. */

struct found {
    unsigned good, corrupt, lost;
};

/* Looks up every record. Wrong bytes, or any error but IDEM_E_CORRUPT, end the test. */
static struct found records_judge(struct rig *rig) {
    static unsigned char result[12000];
    struct found found = {0};

    for (unsigned i = 0; i < RECORDS; i++) {
        struct idem_op op = {.kind = IDEM_OP_LOOKUP};
        char name[16];
        int rc;

        name_make(i, name);
        op.key = rig_key(IDEM_NAME_RECORD, rig->prefix, name);
        rc = rig_run(rig, &op, NULL, NULL);
        if (rc == 0) {
            size_t len = result_make(i, result);

            CHECK(rig_holds(rig, name, result, len));
            found.good++;
        } else if (rc == IDEM_E_ABSENT) {
            found.lost++;
        } else {
            CHECK_INT(rc, IDEM_E_CORRUPT);
            CHECK_HAS(rig->error.text, "damaged");
            CHECK_HAS(rig->error.text, "/store");
            found.corrupt++;
        }
    }
    return found;
}

/* Calls every operation that walks over pages: each may fail with IDEM_E_CORRUPT, but must not
 * crash. */
static void store_exercise(struct rig *rig) {
    struct idem_op stats = {.kind = IDEM_OP_STATS}, list = {.kind = IDEM_OP_LIST},
                   sweep = {.kind = IDEM_OP_SWEEP};
    struct rig_claim claim;
    enum idem_ack ack;
    int rc = rig_run(rig, &stats, NULL, NULL);

    CHECK(rc == 0 || rc == IDEM_E_CORRUPT);
    list.in.list.max = RECORDS;
    rc = rig_run(rig, &list, NULL, NULL);
    CHECK(rc == 0 || rc == IDEM_E_CORRUPT);
    sweep.in.sweep.max = 10;
    rc = rig_run(rig, &sweep, NULL, NULL);
    CHECK(rc == 0 || rc == IDEM_E_CORRUPT);
    for (unsigned i = 0; i < 50; i++) {
        char name[16];

        snprintf(name, sizeof(name), "new%u", i);
        rc = rig_claim(rig, name, &claim);
        CHECK(rc == 0 || rc == IDEM_E_CORRUPT);
        if (rc == 0 && claim.verdict == IDEM_RUN)
            rc = rig_finish(rig, &claim, IDEM_OWNER_DONE, "x", 1, &ack);
        CHECK(rc == 0 || rc == IDEM_E_CORRUPT);
    }
}

struct damage {
    const char *url, *data, *good;
    off_t at;
    int garbage;
};

/* The store is refused, or the records that can be read are right. */
static void damage_survive(void *data) {
    const struct damage *damage = data;
    struct rig rig;
    int rc = rig_try(&rig, damage->url, NULL);

    if (rc != 0) {
        CHECK_INT(rc, IDEM_E_CORRUPT);
        CHECK_HAS(rig.error.text, "data.mdb");
        return;
    }
    (void)records_judge(&rig);
    store_exercise(&rig);
    (void)records_judge(&rig);
    rig_close(&rig);
}

static void garbage_make(int kind, unsigned char page[PAGE]) {
    if (kind < 2)
        memset(page, kind == 0 ? 0 : 0xff, PAGE);
    else
        rig_bytes((uint64_t)kind, page, PAGE);
}

static void damage_try(struct damage *damage, const char *what, void (*survive)(void *data)) {
    char name[64];

    snprintf(name, sizeof(name), "%s at %lld, garbage %d", what, (long long)damage->at,
             damage->garbage);
    rig_child_ok(name, survive, damage);
}

/* Pages. */

static void check_refused(const char *folder, const char *part) {
    struct idem_error err;

    CHECK_INT(rig_refused(rig_url("store", "sync=off"), &err), IDEM_E_CORRUPT);
    CHECK_HAS(err.text, data_of(folder));
    CHECK_HAS(err.text, part);
}

TEST(both_meta_pages_overwritten_is_an_error_that_names_the_file) {
    const char *folder = store_made();
    unsigned char junk[2 * PAGE];

    rig_bytes(1, junk, sizeof(junk));
    rig_file_poke(data_of(folder), 0, junk, sizeof(junk));
    check_refused(folder, "not a store, or its first pages are damaged");
}

TEST(one_meta_page_overwritten_is_refused_rather_than_rolled_back) {
    const char *folder = store_made();
    unsigned char junk[PAGE];

    rig_bytes(1, junk, sizeof(junk));
    rig_file_copy(data_of(folder), rig_path(rig_folder(), "good"));
    for (int page = 0; page < 2; page++) {
        rig_file_copy(rig_path(rig_folder(), "good"), data_of(folder));
        rig_file_poke(data_of(folder), page * PAGE, junk, sizeof(junk));
        check_refused(folder, "damaged");
    }
}

static void pages_overwrite(int garbage) {
    const char *folder = store_made();
    char data[512], good[512];
    struct damage damage = {rig_url("store", "sync=off"), data, good, 0, garbage};
    unsigned char page[PAGE];
    off_t size;

    snprintf(data, sizeof(data), "%s", data_of(folder));
    snprintf(good, sizeof(good), "%s", rig_path(rig_folder(), "good"));
    size = rig_file_size(data);
    rig_file_copy(data, good);
    garbage_make(garbage, page);
    for (damage.at = 2 * PAGE; damage.at < size; damage.at += PAGE) {
        /* Every page in the long form; in the short one, one in seven. */
        if (getenv("IDEM_LONG") == NULL && damage.at / PAGE % 7 != 3)
            continue;
        rig_file_copy(good, data);
        rig_file_poke(data, damage.at, page, PAGE);
        damage_try(&damage, "page", damage_survive);
    }
}

TEST_IN(a_page_of_zeros_is_damage_and_not_a_crash, 300) {
    pages_overwrite(0);
}

TEST_IN(a_page_of_ones_is_damage_and_not_a_crash, 300) {
    pages_overwrite(1);
}

TEST_IN(a_page_of_garbage_is_damage_and_not_a_crash, 300) {
    pages_overwrite(2);
}

/* One record. */

/* Flips one bit at each place of the file that has these bytes, including old copies. */
static unsigned bytes_spoil(const char *path, const unsigned char *bytes, size_t len) {
    size_t size = (size_t)rig_file_size(path);
    unsigned char *all = malloc(size + 1), *at;
    unsigned n = 0;

    CHECK(all != NULL);
    CHECK(rig_file_read(path, all, size) == size);
    for (at = all; (at = memmem(at, (size_t)(all + size - at), bytes, len)) != NULL; at++, n++)
        at[len / 2] ^= 1;
    rig_file_write(path, all, size);
    free(all);
    return n;
}

static void check_bad_record_refused(struct rig *rig, const char *name) {
    struct rig_claim claim;
    struct idem_op op = {.kind = IDEM_OP_LOOKUP};

    op.key = rig_key(IDEM_NAME_RECORD, rig->prefix, name);
    CHECK_INT(rig_run(rig, &op, NULL, NULL), IDEM_E_CORRUPT);
    CHECK_HAS(rig->error.text, "damaged");
    CHECK_INT(rig_claim(rig, name, &claim), IDEM_E_CORRUPT);
    op = (struct idem_op){.kind = IDEM_OP_SETTLE, .key = op.key};
    op.in.settle.to = IDEM_DONE;
    op.in.settle.force = true;
    CHECK_INT(rig_run(rig, &op, NULL, NULL), IDEM_E_CORRUPT);
    op = (struct idem_op){.kind = IDEM_OP_FORGET, .key = op.key};
    CHECK_INT(rig_run(rig, &op, NULL, NULL), IDEM_E_CORRUPT);
}

TEST(a_flipped_bit_damages_one_record_and_no_other) {
    const char *folder = store_made();
    static unsigned char result[12000];
    struct idem_op op = {.kind = IDEM_OP_FORGET, .in.forget.force = true};
    struct found found;
    struct rig rig;
    size_t len = result_make(33, result);

    CHECK(bytes_spoil(data_of(folder), result, len) > 0);
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    found = records_judge(&rig);
    CHECK_INT(found.good, RECORDS - 1);
    CHECK_INT(found.corrupt, 1);
    check_bad_record_refused(&rig, "k33");
    op.key = rig_key(IDEM_NAME_RECORD, rig.prefix, "k33");
    CHECK_INT(rig_run(&rig, &op, NULL, NULL), 0);
    rig_once(&rig, "k33", "again", 5);
    CHECK(rig_holds(&rig, "k33", "again", 5));
    rig_close(&rig);
    CHECK_INT(raw_count(folder, "records"), RECORDS);
}

TEST(a_flipped_bit_in_a_large_result_is_seen) {
    const char *folder = store_made();
    static unsigned char result[12000];
    struct found found;
    struct rig rig;

    (void)result_make(50, result);
    CHECK(bytes_spoil(data_of(folder), result + 5000, 64) > 0);
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    found = records_judge(&rig);
    CHECK_INT(found.good, RECORDS - 1);
    CHECK_INT(found.corrupt, 1);
    rig_close(&rig);
}

/* The number of records of that state in a list. */
static void listed_check(struct idem *h, enum idem_state state, size_t want) {
    static struct idem_entry entries[RECORDS];
    struct idem_filter filter = {.state = state};
    struct idem_cursor cursor = {0};
    size_t n = 0;

    CHECK_INT(idem_list(h, &filter, &cursor, entries, RECORDS, &n, NULL), 0);
    CHECK_INT(n, want);
}

TEST(the_list_shows_a_damaged_record_and_the_stats_leave_it_out) {
    const char *folder = store_made();
    static unsigned char result[12000];
    static struct idem_entry entries[RECORDS];
    struct idem_settlement how = {.to = IDEM_FAILED};
    struct idem_cursor cursor = {0};
    struct idem_stats stats;
    struct idem *h;
    size_t n = 0, bad = 0;

    CHECK(bytes_spoil(data_of(folder), result, result_make(33, result)) > 0);
    h = rig_handle(rig_url("store", "sync=off"));
    CHECK_INT(idem_list(h, NULL, &cursor, entries, RECORDS, &n, NULL), 0);
    CHECK_INT(n, RECORDS);
    for (size_t i = 0; i < n; i++)
        if (entries[i].state == IDEM_DAMAGED) {
            CHECK_HAS(entries[i].reason, "damaged");
            bad++;
        }
    CHECK_INT(bad, 1);
    listed_check(h, IDEM_DAMAGED, 1);
    listed_check(h, IDEM_NEWER, 0);
    listed_check(h, IDEM_DONE, RECORDS - 1);
    CHECK_INT(idem_settle_all(h, NULL, &how, NULL, NULL, &n, NULL), 0);
    CHECK_INT(n, 0);
    CHECK_INT(idem_stats(h, &stats, NULL), 0);
    CHECK_INT(stats.done, RECORDS - 1);
    idem_close(h);
}

/* Length. */

/* Opens the store, if it is accepted, and finds every record. */
static void cut_survive(void *data) {
    const struct damage *damage = data;
    struct found found;
    struct rig rig;
    int rc = rig_try(&rig, damage->url, NULL);

    if (rc != 0) {
        CHECK_INT(rc, IDEM_E_CORRUPT);
        CHECK_HAS(rig.error.text, "data.mdb");
        CHECK_INT(rig_file_size(damage->data), damage->at);
        return;
    }
    found = records_judge(&rig);
    CHECK_INT(found.good, RECORDS);
    rig_close(&rig);
}

/* A cut that removes only free pages is no damage. Any other cut must be refused, and leave the
 * file unchanged. */
TEST_IN(a_file_cut_short_anywhere_is_refused_or_lacks_nothing, 300) {
    const char *folder = store_made();
    char data[512], good[512];
    struct damage damage = {rig_url("store", "sync=off"), data, good, 0, 0};
    off_t size, step = getenv("IDEM_LONG") == NULL ? 23 * 1024 + 512 : 1024;

    snprintf(data, sizeof(data), "%s", data_of(folder));
    snprintf(good, sizeof(good), "%s", rig_path(rig_folder(), "good"));
    size = rig_file_size(data);
    rig_file_copy(data, good);
    for (damage.at = 1; damage.at < size; damage.at += step) {
        rig_file_copy(good, data);
        CHECK(truncate(data, damage.at) == 0);
        damage_try(&damage, "cut", cut_survive);
    }
}

TEST(a_file_without_its_last_pages_is_refused_or_lacks_nothing) {
    const char *folder = store_made();
    char data[512], good[512];
    struct damage damage = {rig_url("store", "sync=off"), data, good, 0, 0};
    off_t size;

    snprintf(data, sizeof(data), "%s", data_of(folder));
    snprintf(good, sizeof(good), "%s", rig_path(rig_folder(), "good"));
    size = rig_file_size(data);
    rig_file_copy(data, good);
    for (off_t off = 1; off <= 12 * PAGE; off += off == 1 ? PAGE - 1 : PAGE / 2) {
        rig_file_copy(good, data);
        damage.at = size - off;
        CHECK(truncate(data, damage.at) == 0);
        damage_try(&damage, "last", cut_survive);
    }
}

TEST(a_file_cut_to_half_says_that_it_is_truncated) {
    const char *folder = store_made();
    off_t size = rig_file_size(data_of(folder)) / 2 / PAGE * PAGE;

    CHECK(truncate(data_of(folder), size) == 0);
    check_refused(folder, "truncated");
    CHECK_INT(rig_file_size(data_of(folder)), size);
}

TEST(a_file_of_two_pages_says_that_it_is_truncated) {
    const char *folder = store_made();

    CHECK(truncate(data_of(folder), 2 * PAGE) == 0);
    check_refused(folder, "truncated");
}

/* Otherwise every key would be free again, so this is as bad as any other cut. */
TEST(an_emptied_file_is_not_taken_for_a_new_store) {
    const char *folder = store_made();

    CHECK(truncate(data_of(folder), 0) == 0);
    check_refused(folder, "empty");
    CHECK_INT(rig_file_size(data_of(folder)), 0);
}

TEST(a_file_moved_away_makes_a_new_store) {
    const char *folder = store_made();
    struct rig rig;

    CHECK(rename(data_of(folder), rig_path(rig_folder(), "kept")) == 0);
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    CHECK_INT(rig_stats(&rig).done, 0);
    rig_close(&rig);
}

/* Other files. */

TEST(a_file_that_is_no_store_is_refused_and_left_alone) {
    static const char text[] = "This is a letter to my grandmother, and nothing else.\n";
    char back[sizeof(text)], big[3 * PAGE];
    struct idem_error err;
    const char *data;

    CHECK(mkdir(rig_path(rig_folder(), "store"), 0700) == 0);
    data = rig_path(rig_folder(), "store/data.mdb");
    rig_file_write(data, text, sizeof(text));
    CHECK_INT(rig_refused(rig_url("store", NULL), &err), IDEM_E_CORRUPT);
    CHECK_HAS(err.text, "store/data.mdb");
    CHECK_INT(rig_file_read(data, back, sizeof(back)), sizeof(text));
    CHECK(memcmp(back, text, sizeof(text)) == 0);
    rig_bytes(3, big, sizeof(big));
    rig_file_write(data, big, sizeof(big));
    CHECK_INT(rig_refused(rig_url("store", NULL), &err), IDEM_E_CORRUPT);
}

static void open_and_find_all(void *url) {
    struct rig rig;

    rig_open(&rig, url, NULL);
    CHECK_INT(records_judge(&rig).good, RECORDS);
    rig_close(&rig);
}

/* These files hold nothing that matters: the store makes them anew. */
TEST(damaged_lock_and_shared_files_are_made_anew) {
    static const char *const names[] = {"lock.mdb", "idem.shared", "idem.lock"};
    const char *folder = store_made();
    unsigned char junk[3000];

    rig_bytes(4, junk, sizeof(junk));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *path = rig_path(folder, names[i]);

        rig_file_poke(path, 0, junk, sizeof(junk));
        rig_child_ok(names[i], open_and_find_all, (void *)rig_url("store", "sync=off"));
        CHECK(truncate(path, 0) == 0);
        rig_child_ok(names[i], open_and_find_all, (void *)rig_url("store", "sync=off"));
        CHECK(truncate(path, 100) == 0);
        rig_child_ok(names[i], open_and_find_all, (void *)rig_url("store", "sync=off"));
        CHECK(unlink(path) == 0);
        rig_child_ok(names[i], open_and_find_all, (void *)rig_url("store", "sync=off"));
    }
}

TEST(a_damaged_state_file_is_an_error_that_names_it) {
    static const char *const texts[] = {
        "",
        "idem-store",
        "idem-store 1\n",
        "idem-store 1\nsync off\n",
        "idem-store 1\nsync off\nclean yes\nboot short\n",
        "idem-store 1\nsync sometimes\nclean yes\nboot 01234567-89ab-cdef-0123-456789abcdef\n",
        "idem-store 1\nsync off\nclean maybe\nboot 01234567-89ab-cdef-0123-456789abcdef\n",
        "\xff\xfe\xfd\xfc garbage",
    };
    const char *folder = store_made();
    struct idem_error err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        rig_file_write(rig_path(folder, "idem.state"), texts[i], strlen(texts[i]));
        CHECK_INT(rig_refused(rig_url("store", "sync=off"), &err), IDEM_E_CORRUPT);
        CHECK_HAS(err.text, "store/idem.state");
    }
    CHECK(unlink(rig_path(folder, "idem.state")) == 0);
    open_and_find_all((void *)rig_url("store", "sync=off"));
}

TEST_MAIN
