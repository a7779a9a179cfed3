/*
 * No more room, in the map or on the disk: a clear error that names the cause
 * and the store. Acknowledged records stay, runs can be finished, and new room
 * is used. Never a SIGBUS.
 *
 * The full disk is a small tmpfs in a mount namespace of the test's own; where
 * that is not allowed these tests are skipped.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "rig.h"
#include "test.h"

#define RESULT_LEN 1500
#define HELD 16 /* claims that run while the store fills up */
#define MANY 20000

/* Filling. */

struct filled {
    struct rig rig;
    struct rig_claim held[HELD];
    unsigned next, n;     /* the next number to try; the count of acknowledged ones */
    unsigned acked[MANY]; /* the acknowledged numbers */
    int rc;               /* the code that ended the filling */
};

/* Static, because it is large. */
static struct filled filled;

static void result_make(unsigned i, unsigned char out[RESULT_LEN]) {
    rig_bytes(i, out, RESULT_LEN);
}

static void held_take(struct filled *f) {
    char name[32];

    for (unsigned i = 0; i < HELD; i++) {
        snprintf(name, sizeof(name), "held%u", i);
        CHECK_INT(rig_claim(&f->rig, name, &f->held[i]), 0);
        CHECK_INT(f->held[i].verdict, IDEM_RUN);
    }
}

/* Stores one more record; returns 0, or the code of the refusal. A claim whose finish was
 * refused is released, if there is room for that; its name is not used again. */
static int fill_one(struct filled *f) {
    unsigned char result[RESULT_LEN];
    struct rig_claim claim;
    enum idem_ack ack = IDEM_LOST;
    char name[32];
    int rc;

    snprintf(name, sizeof(name), "r%u", f->next);
    result_make(f->next++, result);
    rc = rig_claim(&f->rig, name, &claim);
    if (rc != 0)
        return rc;
    CHECK_INT(claim.verdict, IDEM_RUN);
    rc = rig_finish(&f->rig, &claim, IDEM_OWNER_DONE, result, sizeof(result), &ack);
    if (rc != 0) {
        struct idem_error why = f->rig.error;

        (void)rig_finish(&f->rig, &claim, IDEM_OWNER_RELEASE, NULL, 0, &ack);
        f->rig.error = why;
        return rc;
    }
    CHECK_INT(ack, IDEM_ACK);
    CHECK(f->n < MANY);
    f->acked[f->n++] = f->next - 1;
    return 0;
}

static void fill(struct filled *f) {
    f->rc = 0;
    while (f->rc == 0 && f->n < MANY)
        f->rc = fill_one(f);
}

static void check_all_there(struct filled *f) {
    unsigned char result[RESULT_LEN];
    char name[32];

    for (unsigned i = 0; i < f->n; i++) {
        snprintf(name, sizeof(name), "r%u", f->acked[i]);
        result_make(f->acked[i], result);
        CHECK(rig_holds(&f->rig, name, result, sizeof(result)));
    }
}

static void check_held_finish(struct filled *f) {
    enum idem_ack ack = IDEM_LOST;
    char name[32];

    for (unsigned i = 0; i < HELD; i++) {
        CHECK_INT(rig_finish(&f->rig, &f->held[i], IDEM_OWNER_DONE, "held", 4, &ack), 0);
        CHECK_INT(ack, IDEM_ACK);
        snprintf(name, sizeof(name), "held%u", i);
        CHECK(rig_holds(&f->rig, name, "held", 4));
    }
}

static int forget(struct rig *rig, const char *name) {
    struct idem_op op = {.kind = IDEM_OP_FORGET};

    op.key = rig_key(IDEM_NAME_RECORD, rig->prefix, name);
    return rig_run(rig, &op, NULL, NULL);
}

static void forget_some(struct filled *f, unsigned n) {
    char name[32];

    for (; n > 0; n--) {
        snprintf(name, sizeof(name), "r%u", f->acked[--f->n]);
        CHECK_INT(forget(&f->rig, name), 0);
    }
}

/* The map. */

static void map_fill(struct filled *f, const char *options, struct rig_clock *clock) {
    struct idem_clock calls = rig_clock_calls(clock);

    rig_open(&f->rig, rig_url("store", options), &calls);
    held_take(f);
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK_HAS(f->rig.error.text, rig_path(rig_folder(), "store"));
    CHECK_HAS(f->rig.error.text, "size of ");
    CHECK_HAS(f->rig.error.text, "MiB");
    CHECK(f->n > 200);
}

static void full_map_case(const char *options, const char *larger) {
    struct filled *f = &filled;
    struct rig_clock *clock = rig_clock_new();
    struct idem_clock calls = rig_clock_calls(clock);
    unsigned before;

    map_fill(f, options, clock);
    check_all_there(f);
    check_held_finish(f);
    CHECK_INT(fill_one(f), IDEM_E_FULL);
    check_all_there(f);
    forget_some(f, 150);
    before = f->n;
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK(f->n > before + 50);
    check_all_there(f);
    rig_close(&f->rig);
    rig_open(&f->rig, rig_url("store", larger), &calls);
    check_all_there(f);
    before = f->n;
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK(f->n > before + 200);
    check_all_there(f);
    rig_close(&f->rig);
}

TEST(a_full_map_loses_nothing_and_runs_can_be_finished_with_sync_off) {
    full_map_case("sync=off&size=1M", "sync=off&size=3M");
}

TEST(a_full_map_loses_nothing_and_runs_can_be_finished_with_sync_always) {
    full_map_case("sync=always&size=1M", "sync=always&size=2M");
}

TEST(a_full_map_is_empty_again_when_its_records_have_expired) {
    struct filled *f = &filled;
    struct rig_clock *clock = rig_clock_new();
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.max = 50};
    unsigned first;

    map_fill(f, "sync=off&size=1M", clock);
    first = f->n;
    rig_clock_pass(clock, DAY_MS + 3600000);
    do
        CHECK_INT(rig_run(&f->rig, &op, NULL, NULL), 0);
    while (op.out.sweep.more);
    f->n = 0;
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK(f->n > first * 9 / 10);
    check_all_there(f);
    rig_close(&f->rig);
}

/* A sweep of any size works: the part that does not fit into one step is left for the next. */
TEST(a_full_map_can_be_swept_in_large_steps) {
    struct filled *f = &filled;
    struct rig_clock *clock = rig_clock_new();
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.max = MANY};

    map_fill(f, "sync=off&size=4M", clock);
    rig_clock_pass(clock, DAY_MS + 3600000);
    do
        CHECK_INT(rig_run(&f->rig, &op, NULL, NULL), 0);
    while (op.out.sweep.more);
    CHECK_INT(fill_one(f), 0);
    rig_close(&f->rig);
}

/* Expired records are swept before a claim is refused. */
TEST(a_claim_finds_room_as_soon_as_records_have_expired) {
    struct filled *f = &filled;
    struct rig_clock *clock = rig_clock_new();

    map_fill(f, "sync=off&size=1M", clock);
    rig_clock_pass(clock, DAY_MS + 3600000);
    f->n = 0;
    CHECK_INT(fill_one(f), 0);
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK(f->n > 200);
    rig_close(&f->rig);
}

static int nonce_spend(struct rig *rig, unsigned i) {
    struct idem_op op = {.kind = IDEM_OP_ONCE, .in.once.ttl_ms = DAY_MS};
    char name[32];

    snprintf(name, sizeof(name), "n%u", i);
    op.key = rig_key(IDEM_NAME_NONCE, "nonce:", name);
    return rig_run(rig, &op, NULL, NULL);
}

static int counter_count(struct rig *rig, unsigned i) {
    struct idem_op op = {.kind = IDEM_OP_COUNT};
    char name[32];

    op.in.count = (struct idem_count_in){IDEM_COUNT_ADD, 1, DAY_MS};
    snprintf(name, sizeof(name), "c%u", i);
    op.key = rig_key(IDEM_NAME_COUNTER, "counter:", name);
    return rig_run(rig, &op, NULL, NULL);
}

static int token_issue(struct rig *rig, unsigned i) {
    struct idem_op op = {.kind = IDEM_OP_ISSUE, .in.issue.ttl_ms = DAY_MS};
    char name[32];

    snprintf(name, sizeof(name), "t%u", i);
    op.key = rig_key(IDEM_NAME_RECORD, "token:", name);
    return rig_run(rig, &op, NULL, NULL);
}

/* An operation that fills the map leaves the room that is reserved for finishes free. */
static void full_of(int (*one)(struct rig *rig, unsigned i)) {
    struct filled *f = &filled;
    struct rig_clock *clock = rig_clock_new();
    struct idem_clock calls = rig_clock_calls(clock);
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.max = 50};
    unsigned i = 0;
    int rc;

    rig_open(&f->rig, rig_url("store", "sync=off&size=1M"), &calls);
    held_take(f);
    while ((rc = one(&f->rig, i)) == 0)
        CHECK(++i < MANY);
    CHECK_INT(rc, IDEM_E_FULL);
    check_held_finish(f);
    rig_clock_pass(clock, DAY_MS + 3600000);
    do
        CHECK_INT(rig_run(&f->rig, &op, NULL, NULL), 0);
    while (op.out.sweep.more);
    CHECK_INT(one(&f->rig, i), 0);
    rig_close(&f->rig);
}

TEST(nonces_cannot_take_the_room_that_finishes_need) {
    full_of(nonce_spend);
}

TEST(counters_cannot_take_the_room_that_finishes_need) {
    full_of(counter_count);
}

TEST(tokens_cannot_take_the_room_that_finishes_need) {
    full_of(token_issue);
}

TEST(a_result_that_does_not_fit_is_refused_and_its_claim_can_be_released) {
    struct filled *f = &filled;
    static unsigned char large[2 << 20];
    struct rig_clock *clock = rig_clock_new();
    enum idem_ack ack = IDEM_LOST;

    map_fill(f, "sync=off&size=1M", clock);
    CHECK_INT(rig_finish(&f->rig, &f->held[0], IDEM_OWNER_DONE, large, sizeof(large), &ack),
              IDEM_E_FULL);
    CHECK_INT(rig_finish(&f->rig, &f->held[0], IDEM_OWNER_RELEASE, NULL, 0, &ack), 0);
    CHECK_INT(ack, IDEM_ACK);
    check_all_there(f);
    rig_close(&f->rig);
}

struct grow {
    const char *url;
    struct rig_clock *clock;
};

static void grow_elsewhere(void *data) {
    static struct filled other;
    struct filled *f = &other;
    struct grow *grow = data;
    struct idem_clock calls = rig_clock_calls(grow->clock);

    rig_open(&f->rig, grow->url, &calls);
    f->rig.prefix = "other:";
    while (f->n < 2000)
        CHECK_INT(fill_one(f), 0);
    rig_close(&f->rig);
}

TEST(a_store_that_another_process_enlarged_is_followed) {
    struct filled *f = &filled;
    struct rig_clock *clock = rig_clock_new();
    struct grow grow = {rig_url("store", "sync=off&size=16M"), clock};

    map_fill(f, "sync=off&size=1M", clock);
    rig_child_ok("the other process", grow_elsewhere, &grow);
    check_all_there(f);
    check_held_finish(f);
    CHECK_INT(rig_stats(&f->rig).done, f->n + 2000 + HELD);
    rig_close(&f->rig);
}

/* The disk. */

static void map_write(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, text, strlen(text)) < 0)
            errno = 0;
        close(fd);
    }
}

/* A tmpfs of `kib` KiB at `path`, which only this process and its children see. */
static bool disk_mount(const char *path, unsigned kib) {
    char options[64], uid[64], gid[64];
    bool root = geteuid() == 0;

    snprintf(uid, sizeof(uid), "0 %u 1", (unsigned)geteuid());
    snprintf(gid, sizeof(gid), "0 %u 1", (unsigned)getegid());
    if (unshare(root ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0)
        return false;
    if (!root) {
        map_write("/proc/self/setgroups", "deny");
        map_write("/proc/self/uid_map", uid);
        map_write("/proc/self/gid_map", gid);
    }
    snprintf(options, sizeof(options), "size=%uk", kib);
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", path, "tmpfs", 0, options) == 0;
}

static void disk_try(void *data) {
    const char *path = data;

    exit(disk_mount(path, 1024) ? 0 : 1);
}

static char disk_path[512];
static pid_t disk_owner;

/* Runs before the directory is removed. Children leave the mount alone. */
static void disk_unmount(void) {
    if (disk_owner == getpid())
        (void)umount2(disk_path, MNT_DETACH);
}

static const char *disk_new(unsigned kib) {
    snprintf(disk_path, sizeof(disk_path), "%s", rig_path(rig_folder(), "disk"));
    CHECK(mkdir(disk_path, 0700) == 0);
    CHECK(disk_mount(disk_path, kib));
    disk_owner = getpid();
    atexit(disk_unmount);
    return disk_path;
}

/* Fills the disk except for `spare` bytes. */
static void ballast_take(const char *disk, size_t spare) {
    static const char block[4096];
    int fd = open(rig_path(disk, "ballast"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    off_t size = 0;

    CHECK(fd >= 0);
    while (write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
        size += (off_t)sizeof(block);
    CHECK(ftruncate(fd, size > (off_t)spare ? size - (off_t)spare : 0) == 0);
    close(fd);
}

static size_t disk_left(const char *disk) {
    struct statvfs fs;

    CHECK(statvfs(disk, &fs) == 0);
    return fs.f_bfree * fs.f_bsize;
}

static void full_disk_case(const char *options) {
    struct filled *f = &filled;
    const char *disk = disk_new(4096);
    unsigned before;

    ballast_take(disk, 2 << 20);
    rig_open(&f->rig, rig_url("disk/store", options), NULL);
    held_take(f);
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK_HAS(f->rig.error.text, "disk is full");
    CHECK_HAS(f->rig.error.text, "disk/store");
    CHECK(f->n > 100);
    check_all_there(f);
    CHECK_INT(fill_one(f), IDEM_E_FULL);
    CHECK(unlink(rig_path(disk, "ballast")) == 0);
    check_held_finish(f);
    before = f->n;
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK(f->n > before + 100);
    CHECK(disk_left(disk) < 64 << 10);
    check_all_there(f);
    rig_close(&f->rig);
    CHECK(rig_try(&f->rig, rig_url("disk/store", options), NULL) == 0 ||
          f->rig.error.code == IDEM_E_FULL);
    if (f->rig.store == NULL)
        return;
    check_all_there(f);
    rig_close(&f->rig);
}

TEST(a_full_disk_loses_nothing_with_sync_off) {
    full_disk_case("sync=off");
}

TEST(a_full_disk_loses_nothing_with_sync_always) {
    full_disk_case("sync=always");
}

/* The disk has no byte left, or a few pages, so that each file of the store is once the one that
 * fails. */
static void open_full(void *data) {
    struct rig rig;
    int rc = rig_try(&rig, data, NULL);

    if (rc != 0) {
        CHECK_INT(rc, IDEM_E_FULL);
        CHECK_HAS(rig.error.text, "disk/store");
        return;
    }
    for (unsigned i = 0; i < 20; i++) {
        struct rig_claim claim;
        enum idem_ack ack;
        char name[16];

        snprintf(name, sizeof(name), "%u", i);
        rc = rig_claim(&rig, name, &claim);
        if (rc == 0)
            rc = rig_finish(&rig, &claim, IDEM_OWNER_DONE, "x", 1, &ack);
        if (rc != 0) {
            CHECK_INT(rc, IDEM_E_FULL);
            CHECK_HAS(rig.error.text, "disk/store");
        }
    }
    rig_close(&rig);
}

static void store_remove(const char *disk) {
    static const char *const names[] = {"data.mdb",    "lock.mdb",   "idem.lock",
                                        "idem.shared", "idem.state", "idem.state.new"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[600];

        snprintf(path, sizeof(path), "%s/store/%s", disk, names[i]);
        if (unlink(path) < 0)
            CHECK_INT(errno, ENOENT);
    }
    if (rmdir(rig_path(disk, "store")) < 0)
        CHECK_INT(errno, ENOENT);
}

static void open_on_full_case(const char *options) {
    const char *disk = disk_new(1024);
    char what[32];

    for (unsigned kib = 0; kib <= 400; kib += 4) {
        ballast_take(disk, kib << 10);
        snprintf(what, sizeof(what), "%u KiB left", kib);
        rig_child_ok(what, open_full, (void *)rig_url("disk/store", options));
        store_remove(disk);
    }
}

TEST(a_new_store_on_a_full_disk_is_an_error_and_not_a_crash_with_sync_off) {
    open_on_full_case("sync=off");
}

TEST(a_new_store_on_a_full_disk_is_an_error_and_not_a_crash_with_sync_always) {
    open_on_full_case("sync=always");
}

static void fill_hundred(void *url) {
    struct filled *f = &filled;

    rig_open(&f->rig, url, NULL);
    while (f->n < 100)
        CHECK_INT(fill_one(f), 0);
    rig_close(&f->rig);
}

static void find_hundred(void *url) {
    struct filled *f = &filled;

    rig_open(&f->rig, url, NULL);
    f->n = 100;
    check_all_there(f);
    rig_close(&f->rig);
}

TEST(a_store_on_a_disk_that_filled_up_meanwhile_is_opened_or_refused_and_keeps_everything) {
    const char *disk = disk_new(2048);
    char *url = (char *)rig_url("disk/store", "sync=off");
    char what[32];

    rig_child_ok("filling", fill_hundred, url);
    for (unsigned kib = 0; kib <= 100; kib += 4) {
        ballast_take(disk, kib << 10);
        snprintf(what, sizeof(what), "%u KiB left", kib);
        rig_child_ok(what, open_full, url);
        CHECK(unlink(rig_path(disk, "ballast")) == 0);
        rig_child_ok(what, find_hundred, url);
    }
}

/* The limit on a file's size. */

static void limit_set(rlim_t bytes) {
    struct rlimit limit = {bytes, RLIM_INFINITY};

    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void limit_case(const char *options) {
    struct filled *f = &filled;
    unsigned before;

    signal(SIGXFSZ, SIG_IGN);
    rig_open(&f->rig, rig_url("store", options), NULL);
    held_take(f);
    limit_set(1 << 20);
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK_HAS(f->rig.error.text, rig_path(rig_folder(), "store"));
    CHECK(f->n > 100);
    check_all_there(f);
    CHECK_INT(fill_one(f), IDEM_E_FULL);
    limit_set(2 << 20);
    check_held_finish(f);
    before = f->n;
    fill(f);
    CHECK_INT(f->rc, IDEM_E_FULL);
    CHECK(f->n > before + 100);
    check_all_there(f);
    limit_set(RLIM_INFINITY);
    rig_close(&f->rig);
    rig_open(&f->rig, rig_url("store", options), NULL);
    check_all_there(f);
    rig_close(&f->rig);
}

TEST(a_limit_on_the_size_of_files_is_a_full_disk_with_sync_off) {
    limit_case("sync=off");
}

TEST(a_limit_on_the_size_of_files_is_a_full_disk_with_sync_always) {
    limit_case("sync=always");
}

/* Skipping. */

static void nothing(void) {
}

int main(int argc, char **argv) {
    if (rig_child(disk_try, (void *)rig_folder()) != 0)
        for (struct test *t = test_first; t != NULL; t = t->next)
            if (strstr(t->name, "_disk_") != NULL && strstr(t->name, "limit") == NULL) {
                static char names[16][160];
                static size_t n;

                snprintf(names[n], sizeof(names[n]), "%s # SKIP cannot mount a tmpfs here",
                         t->name);
                t->name = names[n++];
                t->run = nothing;
            }
    return test_main(argc, argv);
}
