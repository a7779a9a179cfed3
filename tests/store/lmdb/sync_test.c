/*
 * Power loss: with sync=always nothing is acknowledged before it is on the
 * disk, and no store is marked clean before that. The test watches the system
 * calls that write and sync from inside: this program's own definitions replace
 * those of the C library, for LMDB too.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "rig.h"
#include "test.h"

static atomic_bool dirty;    /* data.mdb has writes that are not synced */
static atomic_uint syncs;    /* of data.mdb */
static atomic_uint writes;   /* to it */
static atomic_bool unsealed; /* the state was renamed into place while data.mdb was dirty */
static atomic_bool unsafe;   /* the state was renamed into place before it was synced itself */
static atomic_bool state_dirty;
static off_t length; /* of data.mdb, if it matters: a sync of a shorter range leaves it dirty */

/* True if the descriptor is that file of a store. */
static bool is_file(int fd, const char *name) {
    char link[64], path[512];
    size_t len = strlen(name);
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path));
    return n > (ssize_t)len && memcmp(path + n - len, name, len) == 0;
}

static void saw_write(int fd) {
    if (is_file(fd, "/data.mdb")) {
        writes++;
        if ((fcntl(fd, F_GETFL) & O_DSYNC) == 0)
            dirty = true;
    } else if (is_file(fd, "/idem.state.new")) {
        state_dirty = true;
    }
}

static void saw_sync(int fd) {
    if (is_file(fd, "/data.mdb")) {
        dirty = false;
        syncs++;
    } else if (is_file(fd, "/idem.state.new")) {
        state_dirty = false;
    }
}

ssize_t write(int fd, const void *bytes, size_t len) {
    saw_write(fd);
    return syscall(SYS_write, fd, bytes, len);
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    saw_write(fd);
    return syscall(SYS_writev, fd, parts, n);
}

/* A library may have been compiled for either name. */
#define PWRITE(function, symbol)                                                                   \
    ssize_t function(int fd, const void *bytes, size_t len, int64_t at) __asm__(symbol);           \
    ssize_t function(int fd, const void *bytes, size_t len, int64_t at) {                          \
        saw_write(fd);                                                                             \
        return syscall(SYS_pwrite64, fd, bytes, len, at);                                          \
    }
PWRITE(pwrite_seen, "pwrite")
PWRITE(pwrite64_seen, "pwrite64")

#define PWRITEV(function, symbol)                                                                  \
    ssize_t function(int fd, const struct iovec *parts, int n, int64_t at) __asm__(symbol);        \
    ssize_t function(int fd, const struct iovec *parts, int n, int64_t at) {                       \
        saw_write(fd);                                                                             \
        return syscall(SYS_pwritev, fd, parts, n, at, 0);                                          \
    }
PWRITEV(pwritev_seen, "pwritev")
PWRITEV(pwritev64_seen, "pwritev64")

int fdatasync(int fd) {
    int rc = (int)syscall(SYS_fdatasync, fd);

    saw_sync(fd);
    return rc;
}

int fsync(int fd) {
    int rc = (int)syscall(SYS_fsync, fd);

    saw_sync(fd);
    return rc;
}

/* With sync=off LMDB writes in the map. Nothing else here is mapped for writing and synced. */
int msync(void *at, size_t len, int flags) {
    int rc = (int)syscall(SYS_msync, at, len, flags);

    if (flags == MS_SYNC && (off_t)len >= length) {
        dirty = false;
        syncs++;
    }
    return rc;
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    if (strcmp(to, "idem.state") == 0) {
        unsealed = dirty;
        unsafe = state_dirty;
    }
    return (int)syscall(SYS_renameat, from_fd, from, to_fd, to);
}

static void check_safe(struct rig *rig, unsigned n) {
    char name[32];
    struct rig_claim claim;
    enum idem_ack ack;

    for (unsigned i = 0; i < n; i++) {
        unsigned before = syncs;

        snprintf(name, sizeof(name), "k%u", i);
        CHECK_INT(rig_claim(rig, name, &claim), 0);
        CHECK_INT(claim.verdict, IDEM_RUN);
        CHECK(!dirty);
        CHECK(syncs > before);
        before = syncs;
        CHECK_INT(rig_finish(rig, &claim, IDEM_OWNER_DONE, "result", 6, &ack), 0);
        CHECK(!dirty);
        CHECK(syncs > before);
    }
}

TEST(with_sync_always_nothing_is_acknowledged_before_it_is_on_the_disk) {
    struct rig rig;

    rig_open(&rig, rig_url("store", "sync=always"), NULL);
    check_safe(&rig, 50);
    CHECK(writes > 100);
    rig_close(&rig);
    rig_open(&rig, rig_url("store", "sync=always"), NULL);
    CHECK(!dirty);
    rig_close(&rig);
}

TEST(with_sync_off_nothing_waits_for_the_disk) {
    struct rig rig;
    unsigned before;

    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    before = syncs;
    for (unsigned i = 0; i < 50; i++) {
        char name[32];

        snprintf(name, sizeof(name), "k%u", i);
        rig_once(&rig, name, "result", 6);
    }
    CHECK(dirty);
    CHECK_INT(syncs, before);
    rig_close(&rig);
}

TEST(a_store_is_called_clean_only_when_all_of_it_is_on_the_disk) {
    static const char *const ways[] = {"sync=off", "sync=always"};

    for (unsigned i = 0; i < 2; i++) {
        struct rig rig;

        rig_open(&rig, rig_url(ways[i], ways[i]), NULL);
        rig_once(&rig, "k", "result", 6);
        unsealed = unsafe = dirty = true; /* the test does not see writes in the map */
        rig_close(&rig);
        CHECK(!unsealed);
        CHECK(!unsafe);
        CHECK(!dirty);
    }
}

static void write_much(void *data) {
    static const char large[512 << 10];
    struct rig rig;
    char name[32];

    rig_open(&rig, data, NULL);
    for (unsigned i = 0; i < 10; i++) {
        snprintf(name, sizeof(name), "large%u", i);
        rig_once(&rig, name, large, sizeof(large));
    }
    rig_close(&rig);
}

/* The last process to close may never have mapped the part of the file that another process has
 * written. */
TEST(who_leaves_last_syncs_what_others_have_written_too) {
    struct rig rig;
    char url[512];

    snprintf(url, sizeof(url), "%s", rig_url("store", "sync=off"));
    rig_open(&rig, url, NULL);
    rig_once(&rig, "k", "result", 6);
    rig_child_ok("growing", write_much, url);
    length = rig_file_size(rig_path(rig_path(rig_folder(), "store"), "data.mdb"));
    CHECK(length > 4 << 20);
    unsealed = dirty = true;
    rig_close(&rig);
    length = 0;
    CHECK(!unsealed);
    CHECK(!dirty);
}

/* Writes of an earlier sync=off are made durable before the state reads sync=always. */
TEST(what_sync_off_left_is_on_the_disk_before_sync_always_begins) {
    struct rig rig;

    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    rig_once(&rig, "k", "result", 6);
    rig_close(&rig);
    dirty = true; /* as if another process had left it */
    unsealed = true;
    rig_open(&rig, rig_url("store", "sync=always"), NULL);
    CHECK(!dirty);
    CHECK(!unsealed);
    rig_close(&rig);
}

TEST_MAIN
