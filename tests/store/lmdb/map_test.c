/*
 * How data.mdb is mapped with sync=off: for writing, with every page allocated
 * before it is mapped, and extended step by step by the process that first
 * needs more. Where an allocation guarantees nothing, the store writes as with
 * sync=always.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"
#include "test.h"
#include "wait.h"

#define BIG ((size_t)512 << 10)
#define WRITERS 3
#define OPENERS 2
#define PER_WRITER 30
#define PER_OPENER 60
#define LOCK_LENGTH 2 /* the offset of the byte of idem.lock, as in state.c */

static const char *data_path(void) {
    return rig_path(rig_path(rig_folder(), "store"), "data.mdb");
}

/* A URL in the parent's directory: a child has its own directory. */
static char store_url[512];

static const char *url_make(const char *name) {
    snprintf(store_url, sizeof(store_url), "%s", rig_url(name, "sync=off"));
    return store_url;
}

static bool is_allocated(const char *path) {
    struct stat st;

    NEED(stat(path, &st) == 0);
    return (off_t)st.st_blocks * 512 >= st.st_size;
}

/* The access of this process's mapping of the file: "rw-s" or "r--s". */
static void mapped_how(const char *path, char out[5]) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];

    NEED(maps != NULL);
    out[0] = '\0';
    while (fgets(line, sizeof(line), maps) != NULL)
        if (strstr(line, path) != NULL)
            sscanf(line, "%*s %4s", out);
    fclose(maps);
}

static void big_once(struct rig *rig, unsigned who, unsigned i) {
    static unsigned char bytes[BIG];
    char name[32];

    snprintf(name, sizeof(name), "%u.%u", who, i);
    rig_bytes(who * 1000 + i, bytes, sizeof(bytes));
    rig_once(rig, name, bytes, sizeof(bytes));
}

static bool big_is_there(struct rig *rig, unsigned who, unsigned i) {
    static unsigned char bytes[BIG];
    char name[32];

    snprintf(name, sizeof(name), "%u.%u", who, i);
    rig_bytes(who * 1000 + i, bytes, sizeof(bytes));
    return rig_holds(rig, name, bytes, sizeof(bytes));
}

TEST(every_page_that_is_mapped_was_allocated) {
    struct rig rig;
    char how[5];

    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    for (unsigned i = 0; i < 20; i++) {
        big_once(&rig, 0, i);
        CHECK(is_allocated(data_path()));
    }
    mapped_how(data_path(), how);
    CHECK_STR(how, "rw-s");
    rig_close(&rig);
}

TEST(holes_that_were_there_before_are_filled) {
    struct rig rig;

    rig_open(&rig, rig_url("store", "sync=always"), NULL);
    rig_once(&rig, "k", "result", 6);
    rig_close(&rig);
    CHECK(truncate(data_path(), 8 << 20) == 0);
    CHECK(!is_allocated(data_path()));
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    CHECK(is_allocated(data_path()));
    CHECK(rig_holds(&rig, "k", "result", 6));
    rig_close(&rig);
}

static void write_twenty(void *data) {
    struct rig rig;

    (void)data;
    rig_open(&rig, store_url, NULL);
    for (unsigned i = 0; i < 20; i++)
        big_once(&rig, 1, i);
    rig_close(&rig);
}

/* LMDB would cut the file to the length that this process knows. */
TEST(a_process_that_is_behind_takes_the_length_over) {
    struct rig rig;
    off_t size;

    rig_open(&rig, url_make("store"), NULL);
    big_once(&rig, 0, 0);
    rig_child_ok("growing", write_twenty, NULL);
    size = rig_file_size(data_path());
    CHECK(size > (off_t)(20 * BIG));
    for (unsigned i = 0; i < 20; i++)
        CHECK(big_is_there(&rig, 1, i));
    CHECK_INT(rig_file_size(data_path()), size);
    big_once(&rig, 0, 1);
    CHECK(rig_file_size(data_path()) >= size);
    rig_close(&rig);
}

static void writer_main(void *data) {
    unsigned who = *(unsigned *)data;
    struct rig rig;

    rig_open(&rig, store_url, NULL);
    for (unsigned i = 0; i < PER_WRITER; i++)
        big_once(&rig, who, i);
    rig_close(&rig);
}

static void opener_main(void *data) {
    unsigned who = *(unsigned *)data;
    struct rig rig;
    char name[32];

    for (unsigned i = 0; i < PER_OPENER; i++) {
        snprintf(name, sizeof(name), "small %u.%u", who, i);
        rig_open(&rig, store_url, NULL);
        rig_once(&rig, name, "result", 6);
        rig_close(&rig);
    }
}

TEST(processes_that_lengthen_it_and_open_it_at_once_lose_nothing) {
    unsigned who[WRITERS + OPENERS];
    pid_t pids[WRITERS + OPENERS];
    struct rig rig;
    int status;

    (void)url_make("store");
    for (unsigned i = 0; i < WRITERS + OPENERS; i++) {
        who[i] = i;
        pids[i] = rig_spawn(i < WRITERS ? writer_main : opener_main, &who[i]);
    }
    for (unsigned i = 0; i < WRITERS + OPENERS; i++) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
    rig_open(&rig, store_url, NULL);
    for (unsigned i = 0; i < WRITERS; i++)
        for (unsigned k = 0; k < PER_WRITER; k++)
            CHECK(big_is_there(&rig, i, k));
    CHECK_INT(rig_stats(&rig).done, WRITERS * PER_WRITER + OPENERS * PER_OPENER);
    rig_close(&rig);
}

/* Another process, which extends the file at moments that the test chooses. */

static int other_go[2], other_done[2];
static unsigned opening_meets, reading_meets; /* how many more times the file is extended then */

static void other_main(void *data) {
    struct rig rig;
    unsigned n = 0;
    char byte = 'o';

    (void)data;
    rig_open(&rig, store_url, NULL);
    while (byte != 'e') {
        off_t before = rig_file_size(data);

        while (byte == 'g' && rig_file_size(data) == before)
            big_once(&rig, 1, n++);
        NEED(write(other_done[1], "d", 1) == 1 && read(other_go[0], &byte, 1) == 1);
    }
    rig_close(&rig);
}

static pid_t other_start(void) {
    static char path[512];
    pid_t pid;
    char byte;

    (void)url_make("store");
    snprintf(path, sizeof(path), "%s", data_path());
    CHECK(pipe(other_go) == 0 && pipe(other_done) == 0);
    pid = rig_spawn(other_main, path);
    CHECK(read(other_done[0], &byte, 1) == 1);
    return pid;
}

static void other_end(pid_t pid) {
    int status;

    CHECK(write(other_go[1], "e", 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

static void other_meet(unsigned *left) {
    char byte;

    if (*left == 0)
        return;
    --*left;
    NEED(write(other_go[1], "g", 1) == 1 && read(other_done[0], &byte, 1) == 1);
}

/* LMDB calls this while it opens, after it has mapped the file and before it reads it. */
int mdb_reader_check(MDB_env *env, int *dead) {
    int (*real)(MDB_env * env, int *dead) = dlsym(RTLD_NEXT, "mdb_reader_check");

    other_meet(&opening_meets);
    return real(env, dead);
}

int mdb_txn_begin(MDB_env *env, MDB_txn *parent, unsigned flags, MDB_txn **ret) {
    int (*real)(MDB_env * env, MDB_txn * parent, unsigned flags, MDB_txn **ret) =
        dlsym(RTLD_NEXT, "mdb_txn_begin");

    other_meet(&reading_meets);
    return real(env, parent, flags, ret);
}

TEST(who_opens_it_while_another_lengthens_it_takes_the_length_over) {
    pid_t pid = other_start();
    struct rig rig;

    opening_meets = 1;
    rig_open(&rig, store_url, NULL);
    CHECK_INT(opening_meets, 0);
    CHECK(big_is_there(&rig, 1, 0));
    other_end(pid);
    rig_close(&rig);
}

/* While the file is small, each larger result extends it, and many processes may write. */
TEST(a_length_that_changes_again_and_again_is_taken_over) {
    pid_t pid = other_start();
    struct rig rig;

    rig_open(&rig, store_url, NULL);
    reading_meets = 5;
    CHECK_INT(rig_ask(&rig, "k"), IDEM_RUN);
    CHECK_INT(reading_meets, 0);
    CHECK(big_is_there(&rig, 1, 0));
    other_end(pid);
    rig_close(&rig);
}

static void open_refused(void *data) {
    struct rig rig;

    (void)data;
    NEED(rig_try(&rig, store_url, NULL) == IDEM_E_REFUSED);
    NEED(strstr(rig.error.text, "another process has been changing the length") != NULL);
}

/* A process that was stopped while it extended the file. */
TEST(a_length_that_another_holds_is_an_error_and_not_a_hang) {
    struct flock lock = {.l_type = F_WRLCK, .l_start = LOCK_LENGTH, .l_len = 1};
    struct rig_claim claim;
    enum idem_ack ack;
    struct rig rig;
    static const char large[BIG / 4];
    char name[32];
    int fd, rc = 0;

    lmdb_patience.length = 1;
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    fd = open(rig_path(rig_path(rig_folder(), "store"), "idem.lock"), O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    for (unsigned i = 0; rc == 0 && i < 1000; i++) {
        snprintf(name, sizeof(name), "k%u", i);
        CHECK_INT(rig_claim(&rig, name, &claim), 0);
        rc = rig_finish(&rig, &claim, IDEM_OWNER_DONE, large, sizeof(large), &ack);
    }
    CHECK_INT(rc, IDEM_E_REFUSED);
    CHECK_HAS(rig.error.text, "another process has been changing the length");
    (void)url_make("store");
    rig_child_ok("opening", open_refused, NULL);
    close(fd);
    CHECK_INT(rig_finish(&rig, &claim, IDEM_OWNER_DONE, large, sizeof(large), &ack), 0);
    CHECK_INT(ack, IDEM_ACK);
    rig_close(&rig);
}

static atomic_bool map_refused, map_slow;

/* A library may have been compiled for either name. sleep: for as long as a thread may take to
 * run into the gap; none is right, too. */
#define MMAP(function, symbol)                                                                     \
    void *function(void *at, size_t len, int prot, int flags, int fd,                              \
                   int64_t from) __asm__(symbol);                                                  \
    void *function(void *at, size_t len, int prot, int flags, int fd, int64_t from) {              \
        if (map_refused && fd >= 0) {                                                              \
            errno = ENOMEM;                                                                        \
            return MAP_FAILED;                                                                     \
        }                                                                                          \
        if (map_slow && fd >= 0) /* sleep: a slow machine */                                       \
            rig_sleep(400);                                                                        \
        return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, from);                          \
    }
MMAP(mmap_seen, "mmap")
MMAP(mmap64_seen, "mmap64")

/* LMDB has already unmapped the old length at this point. */
TEST(a_length_that_cannot_be_mapped_is_an_error_until_it_is_opened_again) {
    static const char large[BIG];
    struct rig_claim claim;
    enum idem_ack ack;
    struct rig rig;
    char name[32];
    int rc = 0;

    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    rig_once(&rig, "k", "result", 6);
    map_refused = true;
    for (unsigned i = 0; rc == 0 && i < 100; i++) {
        snprintf(name, sizeof(name), "k%u", i);
        rc = rig_claim(&rig, name, &claim);
        if (rc == 0)
            rc = rig_finish(&rig, &claim, IDEM_OWNER_DONE, large, sizeof(large), &ack);
    }
    CHECK(rc != 0);
    CHECK_INT(rig_finish(&rig, &claim, IDEM_OWNER_RELEASE, NULL, 0, &ack), IDEM_E_REFUSED);
    CHECK_INT(rig_claim(&rig, "other", &claim), IDEM_E_REFUSED);
    CHECK_HAS(rig.error.text, "must be opened anew");
    map_refused = false;
    rig_close(&rig);
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    CHECK(rig_holds(&rig, "k", "result", 6));
    rig_close(&rig);
}

/* Threads with handles of their own share the map. One has read the records and is about to
 * write when the other has unmapped the old length and not yet mapped the new one. */

static _Thread_local bool looks;
static atomic_bool looked;

int mdb_env_info(MDB_env *env, MDB_envinfo *ret) {
    int (*real)(MDB_env * env, MDB_envinfo * ret) = dlsym(RTLD_NEXT, "mdb_env_info");

    if (looks) {
        looks = false;
        looked = true;
        rig_sleep(200); /* sleep: so that the other thread unmaps; any moment is right */
    }
    return real(env, ret);
}

static void *grow_main(void *data) {
    struct rig rig;

    (void)data;
    rig_open(&rig, store_url, NULL);
    WAIT_UNTIL(looked);
    map_slow = true;
    for (unsigned i = 0; i < 4; i++)
        big_once(&rig, 0, i);
    map_slow = false;
    rig_close(&rig);
    return NULL;
}

TEST(a_thread_that_is_about_to_write_is_waited_for_by_who_maps_anew) {
    struct rig rig;
    pthread_t thread;

    (void)url_make("store");
    rig_open(&rig, store_url, NULL);
    CHECK(pthread_create(&thread, NULL, grow_main, NULL) == 0);
    looks = true;
    rig_once(&rig, "k", "result", 6);
    CHECK(looked);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(rig_holds(&rig, "k", "result", 6));
    CHECK(big_is_there(&rig, 0, 3));
    rig_close(&rig);
}

static atomic_bool never_allocates;

int fallocate_seen(int fd, int mode, int64_t from, int64_t len) __asm__("fallocate64");

int fallocate_seen(int fd, int mode, int64_t from, int64_t len) {
    if (never_allocates) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, from, len);
}

/* For example an ext4 whose files have no extents. */
TEST(a_file_that_cannot_be_allocated_is_mapped_for_reading) {
    struct rig rig;
    char how[5];

    never_allocates = true;
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    for (unsigned i = 0; i < 5; i++)
        big_once(&rig, 0, i);
    mapped_how(data_path(), how);
    CHECK_STR(how, "r--s");
    CHECK(big_is_there(&rig, 0, 4));
    rig_close(&rig);
}

/* The result needs more room than one step, and than several. */
TEST(the_largest_result_fits_into_a_new_store) {
    unsigned char *bytes = malloc(IDEM_RESULT_MAX);
    struct rig rig;

    CHECK(bytes != NULL);
    rig_bytes(1, bytes, IDEM_RESULT_MAX);
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    rig_once(&rig, "k", bytes, IDEM_RESULT_MAX);
    CHECK(rig_holds(&rig, "k", bytes, IDEM_RESULT_MAX));
    rig_close(&rig);
    free(bytes);
}

#define HELD 12

/* The limit is size= plus the room reserved for finishes; a file that is longer already keeps
 * its length. */
TEST(it_becomes_no_longer_than_it_may_and_never_shorter) {
    struct rig_claim held[HELD], claim;
    enum idem_ack ack;
    struct rig rig;
    off_t before;
    char name[32];
    int rc = 0;

    rig_open(&rig, rig_url("store", "sync=off&size=5M"), NULL);
    for (unsigned i = 0; i < HELD; i++) {
        snprintf(name, sizeof(name), "held%u", i);
        CHECK_INT(rig_claim(&rig, name, &held[i]), 0);
    }
    for (unsigned i = 0; rc == 0 && i < 20; i++) {
        static const char large[BIG];

        snprintf(name, sizeof(name), "k%u", i);
        rc = rig_claim(&rig, name, &claim);
        if (rc == 0)
            rc = rig_finish(&rig, &claim, IDEM_OWNER_DONE, large, sizeof(large), &ack);
    }
    CHECK_INT(rc, IDEM_E_FULL);
    before = rig_file_size(data_path());
    CHECK_INT(before, 6 << 20);
    rig_close(&rig);
    rig_open(&rig, rig_url("store", "sync=off&size=1M"), NULL);
    for (unsigned i = 0; i < HELD; i++) {
        static const char large[BIG];

        rc = rig_finish(&rig, &held[i], IDEM_OWNER_DONE, large, sizeof(large), &ack);
        CHECK(rc == 0 || rc == IDEM_E_FULL);
        CHECK_INT(rig_file_size(data_path()), before);
    }
    CHECK_INT(rc, IDEM_E_FULL);
    rig_close(&rig);
}

static bool is_inherited(const char *path) {
    char link[64], target[512];
    bool inherited = false;

    for (int fd = 0; fd < 256; fd++) {
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, target, sizeof(target) - 1);
        if (n < 0)
            continue;
        target[n] = '\0';
        inherited |= strcmp(target, path) == 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
    }
    return inherited;
}

TEST(a_command_that_is_started_does_not_inherit_it) {
    struct rig rig;

    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    CHECK(!is_inherited(data_path()));
    rig_close(&rig);
    rig_open(&rig, rig_url("other", "sync=always"), NULL);
    CHECK(!is_inherited(rig_path(rig_path(rig_folder(), "other"), "data.mdb")));
    rig_close(&rig);
}

static volatile sig_atomic_t signalled;

static void signal_count(int number) {
    (void)number;
    signalled++;
}

/* A step asks for more room than needed. That must not end a process halfway to its limit. */
TEST(a_limit_on_the_size_of_files_is_used_up_before_there_is_a_signal) {
    struct rlimit limit = {3 << 20, RLIM_INFINITY};
    struct rig rig;
    struct rig_claim claim;
    enum idem_ack ack;
    static const char large[64 << 10];
    char name[32];
    int rc = 0;

    signal(SIGXFSZ, signal_count);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    rig_open(&rig, rig_url("store", "sync=off"), NULL);
    for (unsigned i = 0; i < 38; i++) {
        snprintf(name, sizeof(name), "k%u", i);
        rig_once(&rig, name, large, sizeof(large));
    }
    CHECK_INT(rig_file_size(data_path()), 3 << 20);
    CHECK_INT(signalled, 0);
    for (unsigned i = 38; rc == 0 && i < 100; i++) {
        snprintf(name, sizeof(name), "k%u", i);
        rc = rig_claim(&rig, name, &claim);
        if (rc == 0)
            rc = rig_finish(&rig, &claim, IDEM_OWNER_DONE, large, sizeof(large), &ack);
    }
    CHECK_INT(rc, IDEM_E_FULL);
    CHECK(signalled > 0);
    rig_close(&rig);
}

static bool overlay_mount(const char *at) {
    char options[1024];

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", at, "tmpfs", 0, "size=64m") < 0)
        return false;
    snprintf(options, sizeof(options), "lowerdir=%s/low,upperdir=%s/up,workdir=%s/work", at, at,
             at);
    return mkdir(rig_path(at, "low"), 0700) == 0 && mkdir(rig_path(at, "up"), 0700) == 0 &&
           mkdir(rig_path(at, "work"), 0700) == 0 && mkdir(rig_path(at, "over"), 0700) == 0 &&
           mount("overlay", rig_path(at, "over"), "overlay", 0, options) == 0;
}

/* Exits with 77 if such a file system is not available. */
static void overlay_case(void *data) {
    const char *at = data;
    struct rig rig;
    char how[5];

    if (!overlay_mount(at))
        exit(77);
    rig_open(&rig, store_url, NULL);
    for (unsigned i = 0; i < 20; i++)
        big_once(&rig, 0, i);
    mapped_how("/over/store/data.mdb", how);
    NEED(strcmp(how, "r--s") == 0);
    NEED(big_is_there(&rig, 0, 19));
    rig_close(&rig);
}

TEST(where_allocating_promises_nothing_it_is_mapped_for_reading) {
    char at[512];
    int status;

    snprintf(at, sizeof(at), "%s", rig_path(rig_folder(), "disk"));
    CHECK(mkdir(at, 0700) == 0);
    (void)url_make("disk/over/store");
    status = rig_child(overlay_case, at);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        fprintf(stderr, "# no overlay can be mounted here\n");
    else
        CHECK_INT(status, 0);
}

TEST_MAIN
